"""A training run as its folder tells it: config.json, the evaluations (eval.csv) and the training log (train.csv).

A run may still be writing, or may have been killed while it wrote, so tables are read line by line and what is not a
whole row is left out.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timerewarder.errors import UserError
from timerewarder.files import read_json

CONFIG, EVALUATIONS, LOG = "config.json", "eval.csv", "train.csv"
DO_NOT_MATTER = ("seed", "frames", "beside", "threads", "replay_on_disk", "eval_every", "eval_episodes")

Table = Mapping[str, np.ndarray]  # column -> float64 (rows,)
Line = tuple[np.ndarray, np.ndarray]  # places (n,) and values (n,)


@dataclass(frozen=True)
class PolicyRun:
    """A training run as its folder tells it. Columns of a table are float64 (rows,); env_frames increase."""

    folder: Path
    name: str
    task: str
    reward: str  # the name in legends: the method of the reward model, or env, sparse, bc
    obs: str
    preset: str
    seed: int
    config: Mapping[str, Any]
    evaluations: Table
    log: Table
    variant: str = ""  # what else tells it from the other runs that are read with it, such as "discount 0.99"

    @property
    def kind(self) -> tuple[str, str, str, str, str]:
        """What the runs behind one line of a chart have in common; they differ in their seed."""
        return self.task, self.reward, self.obs, self.preset, self.variant

    @property
    def frames(self) -> int:
        """Environment frames of the last row of either table."""
        return int(max(_last(table, "env_frames") for table in (self.evaluations, self.log)))

    @property
    def seconds(self) -> float:
        """Time of training so far."""
        return max(_last(table, "seconds") for table in (self.evaluations, self.log))

    @property
    def planned(self) -> int | None:
        """Frames the run was asked for; None when its configuration does not say."""
        frames = self.config.get("frames", self.config.get("config", {}).get("frames"))
        return frames if isinstance(frames, int) else None

    @property
    def offline(self) -> bool:
        """Behaviour cloning: it learns without the environment, so it has no frames to count or to finish."""
        return self.config.get("reward") == "bc" and self.frames == 0

    @property
    def status(self) -> str:
        """Why the run is not complete; empty if it is, or if nothing says how long it should be."""
        if len(self.evaluations.get("env_frames", ())) == 0:
            return "not evaluated yet"
        short = not self.offline and self.planned is not None and self.frames < self.planned
        return "unfinished" if short else ""

    def line(self, measure: str, axis: str = "frames") -> Line:
        """Places (env frames, or minutes) and values of the evaluations that have this measure."""
        if measure == "learned_return" and self.config.get("reward") != "learned":
            return np.empty(0), np.empty(0)  # there is no learned reward
        values = self.evaluations.get(measure, np.empty(0))
        if axis == "frames":
            places = self.evaluations.get("env_frames", np.empty(0))
        else:
            places = np.fmax.accumulate(self.evaluations.get("seconds", np.empty(0))) / 60
        if len(places) != len(values):
            return np.empty(0), np.empty(0)
        known = np.isfinite(values) & np.isfinite(places)
        return places[known], values[known]


def is_policy_run(folder: Path | str) -> bool:
    """Whether `timerewarder train` wrote this folder."""
    try:
        config = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("kind") == "policy"


def policy_runs_in(folder: Path | str) -> list[Path]:
    """The run that a folder is, or those right inside it."""
    path = Path(folder)
    if is_policy_run(path):
        return [path]
    return sorted(filter(is_policy_run, path.iterdir())) if path.is_dir() else []


def read_policy_runs(folders: Sequence[Path | str]) -> list[PolicyRun]:
    """Read the runs, each once, in order of task, reward, observation, preset and seed.

    A folder that holds runs stands for all of them; pages beside them are passed over, so that `report runs/*` can be
    typed twice.
    """
    found = [run for folder in folders for run in policy_runs_in(folder) or [Path(folder)]]
    unique = list({path.resolve(): path for path in found if not (path.is_file() and path.suffix == ".html")}.values())
    if not unique:
        raise UserError("no run to report: give folders that `timerewarder train` wrote")
    for folder in unique:
        _check_is_run(folder)
    common = common_folder(unique)
    runs = _told_apart([_read_run(folder, folder.resolve().relative_to(common).as_posix()) for folder in unique])
    runs.sort(key=lambda run: (run.kind, run.seed))
    for one, other in itertools.pairwise(runs):
        if (one.kind, one.seed) == (other.kind, other.seed):
            raise UserError(
                f"{one.folder} and {other.folder} are both {', '.join(filter(None, one.kind))}, seed {one.seed}: "
                f"leave one out, or tell them apart by reward_name in their {CONFIG}"
            )
    return runs


def read_table(path: Path) -> Table:
    """Columns of a csv of numbers; an empty cell is NaN. No file, or an empty one, is an empty table.

    A run may be writing the file, or may have been killed while it wrote: a last line without its end and lines that
    do not fit the header are left out. A resumed run repeats what came after its checkpoint: the later row counts.
    """
    text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    lines = [line.strip("\r").split(",") for line in text.split("\n")[:-1]]
    if not lines:
        return {}
    header = lines[0]
    if "env_frames" not in header:
        raise UserError(f"{path} has no column env_frames: give folders that `timerewarder train` wrote")
    rows = [numbers for cells in lines[1:] if (numbers := _numbers(cells, len(header)))]
    values = np.array(rows, np.float64).reshape(-1, len(header))
    frames = values[:, header.index("env_frames")]
    values, frames = values[np.isfinite(frames)], frames[np.isfinite(frames)]
    later = np.append(np.minimum.accumulate(frames[::-1])[::-1], np.inf)[1:]
    return dict(zip(header, values[frames < later].T, strict=True))


def common_folder(folders: Sequence[Path]) -> Path:
    """The deepest folder that holds all of them."""
    return Path(os.path.commonpath([folder.resolve().parent for folder in folders]))


def _check_is_run(folder: Path) -> None:
    if is_policy_run(folder):
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give folders that `timerewarder train` wrote")
    if (folder / CONFIG).exists() and "method" in read_json(folder / CONFIG):
        raise UserError(f"{folder} is a reward model, not a training run: report it in a call of its own")
    raise UserError(f"{folder} is no training run: give folders that `timerewarder train` wrote")


def _read_run(folder: Path, name: str) -> PolicyRun:
    config = read_json(folder / CONFIG)
    for key, kind in {"task": str, "reward_name": str, "obs": str, "preset": str, "seed": int, "config": dict}.items():
        if not isinstance(config.get(key), kind):
            raise UserError(f"{folder / CONFIG} has no valid {key!r}: leave this run out, or train it again")
    return PolicyRun(
        folder=folder,
        name=name,
        task=config["task"],
        reward=config["reward_name"],
        obs=config["obs"],
        preset=config["preset"],
        seed=config["seed"],
        config=config,
        evaluations=read_table(folder / EVALUATIONS),
        log=read_table(folder / LOG),
    )


def _told_apart(runs: Sequence[PolicyRun]) -> list[PolicyRun]:
    """The runs, with what else than the seed differs among those of the same task, reward, observation and preset."""
    told = []
    for run in runs:
        options = _options(run)
        others = [_options(other) for other in runs if other.kind == run.kind]
        keys = [key for key in options if any(other.get(key) != options[key] for other in others)]
        shown = options | {"model": run.config.get("reward_model")}
        told.append(replace(run, variant=", ".join(f"{key.replace('_', '-')} {shown[key]}" for key in keys)))
    return told


def _options(run: PolicyRun) -> dict[str, Any]:
    """What a run was told to do, as far as it matters for what is learned: option -> value."""
    given = run.config["config"]
    agent = given.get("agent")
    flat = given | (agent if isinstance(agent, dict) else {})
    options = {key: value for key, value in flat.items() if key not in (*DO_NOT_MATTER, "agent")}
    return options | {"model": run.config.get("reward_weights")}


def _numbers(cells: Sequence[str], count: int) -> list[float] | None:
    """The cells as numbers; None if they are not `count` numbers."""
    try:
        return [float(cell or "nan") for cell in cells] if len(cells) == count else None
    except ValueError:
        return None


def _last(table: Table, column: str) -> float:
    """The largest value of a column, 0 without one."""
    return float(np.nanmax(table.get(column, np.empty(0)), initial=0))
