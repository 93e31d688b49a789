"""The folder of a training run: what it is, its tables, and a checkpoint that is whole at any moment.

A save writes the replay's new frames, then the networks under a new name, then `state.json`, which names both; so a
kill between two of these leaves the previous save, and nothing that is named is ever overwritten.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from timerewarder.agents.replay import Replay
from timerewarder.config import differing_keys
from timerewarder.errors import UserError
from timerewarder.files import read_json, write_json, write_text
from timerewarder.models.checkpoint import load_tensors, save_tensors

FORMAT = 1
CONFIG, POLICY = "config.json", "policy.safetensors"
REPLAY = "replay"  # its frames, if they are kept on disk while the run goes on
LOCK = ".lock"
REWARD = "reward"  # a model that was fitted for the run, if it does not use another one
# On a resume. The model may have moved, but its weights must be the same.
MAY_DIFFER = ("command", "reward_model", "config.frames", "config.beside", "config.threads", "config.replay_on_disk")


class RunFolder:
    """`description` says what is trained, as JSON; a folder with another one is not touched.

    Making one only checks; nothing is written before `begin`.
    """

    def __init__(self, path: Path, description: dict[str, Any], resume: bool = False) -> None:
        self.path, self.checkpoint, self.replay_map = path, path / "checkpoint", path / REPLAY
        self.description = {"format": FORMAT, "kind": "policy", **description}
        self.config = path / CONFIG
        check_place(path, resume, resumable=description["reward"] != "bc")
        if self.config.exists():
            self._check_same(read_json(self.config))
        if (path / POLICY).exists() and not self.started:
            raise UserError(
                f"the run in {path} is complete and its replay was not kept: "
                "choose another --out, and add --keep-replay to prolong a run later"
            )
        self._board: Any = None

    def begin(self) -> None:
        """Make the folder and keep others out of it; on a resume the command that began the run stays on record."""
        self._lock()
        if self.config.exists():
            self.description["command"] = read_json(self.config)["command"]
        write_json(self.config, self.description)

    def _lock(self) -> None:
        """Hold the folder while this process lives; where the system has no such locks, nothing is held."""
        try:
            import fcntl
        except ImportError:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._held = (self.path / LOCK).open("w")
        try:
            fcntl.lockf(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of the process: a notebook may begin again
        except OSError as error:
            raise UserError(
                f"another process is training in {self.path}: wait for it, or choose another --out"
            ) from error

    def _check_same(self, saved: dict[str, Any]) -> None:
        if saved.get("kind") != "policy" or saved.get("format") != FORMAT:
            raise UserError(f"{self.path} is not a training run that this version reads: choose another --out")
        different = [key for key in differing_keys(saved, self.description) if key not in MAY_DIFFER]
        if different:
            raise UserError(
                f"{self.path} holds a run with other settings ({', '.join(different)}): "
                "resume it with its own, see its config.json, or choose another --out"
            )

    @property
    def started(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return (self.checkpoint / "state.json").exists()

    @property
    def frames(self) -> int:
        """How many frames the run that is here was asked for, when it was last begun or resumed."""
        return int(read_json(self.config)["config"]["frames"])

    def write_row(self, name: str, rows: Sequence[dict[str, float]]) -> None:
        """Write NAME.csv anew and the last row to TensorBoard."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.path / f"{name}.csv", text.getvalue())
        self._tensorboard(name, rows[-1])

    def write_alpha(self, record: dict[str, Any]) -> None:
        write_json(self.path / "alpha.json", record)

    def _tensorboard(self, name: str, row: dict[str, float]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        frames = int(row["env_frames"])
        if self._board is None:  # a resumed run hides what was logged after its checkpoint
            self._board = SummaryWriter(str(self.path / "tensorboard"), purge_step=frames)
        for key, value in row.items():
            self._board.add_scalar(f"{name}/{key}", value, frames)
        self._board.flush()

    def save(self, tensors: dict[str, Tensor], replay: Replay, state: dict[str, Any]) -> None:
        replay.save(self.checkpoint / "replay")
        name = f"agent-{replay.frames}.safetensors"
        save_tensors(self.checkpoint / name, tensors)
        write_json(self.checkpoint / "state.json", {"agent": name, "replay_frames": replay.frames, **state})
        for old in self.checkpoint.glob("agent-*.safetensors"):
            if old.name != name:
                old.unlink()

    def load(self, replay: Replay) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Fill the replay; returns the networks and the state that belong to it."""
        state = read_json(self.checkpoint / "state.json")
        replay.load(self.checkpoint / "replay", state["replay_frames"])
        return load_tensors(self.checkpoint / state["agent"]), state

    def finish(self, tensors: dict[str, Tensor], keep_replay: bool) -> None:
        """Write the policy; the replay, gigabytes, is of no more use unless the run is to be prolonged."""
        save_tensors(self.path / POLICY, tensors)
        shutil.rmtree(self.replay_map, ignore_errors=True)
        if not keep_replay:
            (self.checkpoint / "state.json").unlink(missing_ok=True)  # first, so that no half of a checkpoint counts
            shutil.rmtree(self.checkpoint, ignore_errors=True)


def check_place(path: Path, resume: bool, resumable: bool = True) -> None:
    """A run can begin in a new folder, and go on in one that holds a run; anything else is an error."""
    if (path / CONFIG).exists():
        if not resume:
            way = "add --resume to go on with it, or " if resumable else ""
            raise UserError(f"{path} holds a run already: {way}choose another --out")
    elif path.exists() and (not path.is_dir() or any(not _may_be_there(file) for file in path.iterdir())):
        raise UserError(f"{path} exists and is not a training run: choose another --out")
    elif resume and not (path / REWARD).exists():  # with one, a kill may have met the fit before the run
        raise UserError(f"there is no run to resume in {path}: leave out --resume to begin one there")


def _may_be_there(file: Path) -> bool:
    """Whether a killed run left it behind, or it is the reward that was fitted for the run."""
    return (file.name.startswith(".") and ".tmp" in file.name) or file.name in (REWARD, LOCK, REPLAY)
