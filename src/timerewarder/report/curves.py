"""Learning curves of training runs: mean ± standard deviation over seeds, for each task, reward and observation.

The mean is drawn only where every seed of a group has been evaluated; beyond, each seed is a thin line of its own, so
that a curve never changes because a seed dropped out of it. Evaluations at different places are interpolated linearly.
The deviation is that of a sample (n-1); a single seed has none. `curves.html` holds the layout and the script; its
style and its drawing functions are those of `page.html`.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from timerewarder.config import nearest
from timerewarder.errors import UserError
from timerewarder.files import atomic, write_text
from timerewarder.report.page import data_uri, fill, sharing_page
from timerewarder.report.plots import FAINT, INK, PAPER_DPI
from timerewarder.report.policy_runs import Line, PolicyRun, common_folder, policy_runs_in, read_policy_runs

__all__ = ["MEASURES", "plot_learning_curves", "policy_runs_in", "report_policies"]

GOAL = 0.8  # success that counts as learned in "frames to 0.8"
LONGEST_LOG = 300  # rows of a training log on the page; a longer one is thinned evenly
VIDEO_BYTES = 14_000_000  # of all videos on the page; base64 makes them 18.7 MB
COLUMNS = 3  # charts side by side in a printed figure
LEGEND_WIDTH, LEGEND_HEIGHT = 1.75, 0.17  # inches of an entry of its legend


class Measure(NamedTuple):
    """How to read a column of the evaluations; a success is a share of episodes, 0 to 1."""

    label: str
    meaning: str
    success: bool = True


MEASURES = {
    "success_gt3": Measure("success for more than 3 steps", "Share of episodes with more than 3 successful steps."),
    "success_once": Measure("success once", "Share of episodes with at least one successful step."),
    "success_at_end": Measure("success at the end", "Share of episodes whose last step is successful."),
    "task_return": Measure("task return", "Sum of the task's own reward over an episode, mean of the episodes.", False),
    "learned_return": Measure(
        "learned return", "Sum of the learned reward over an episode, mean of the episodes.", False
    ),
}

# Reward -> its colour everywhere; others take the places that are left. Light and dark background. Also apart for eyes
# that confuse red and green or blue and yellow; markers and line styles tell them apart without any colour.
SLOTS = {"timerewarder": 0, "env": 1, "sparse": 2, "bc": 3, "from-init": 4, "single-frame": 5, "order": 6}
COLOURS = (
    ("#0a7d68", "#4ccbb0"),
    ("#cc8214", "#ffb35c"),
    ("#5420a8", "#b5a2ff"),
    ("#30363c", "#dfe3e6"),
    ("#2a8fe0", "#3678d6"),
    ("#d33cb0", "#d94fb0"),
    ("#5c5a14", "#f1d024"),
    ("#45100c", "#f0553a"),
)
MARKERS = "osD^vP*X"  # as `markers` in curves.html, one a colour
DASHES = ((None, None), (6, 3), (2, 2), (8, 2, 2, 2))  # one an observation, preset and set of options, for one reward


@dataclass(frozen=True)
class Group:
    """Runs of one task that differ in their seed only, and how their line looks."""

    label: str
    slot: int
    dash: int
    runs: Sequence[PolicyRun]

    @property
    def level(self) -> bool:
        """Learned without the environment: a height to compare with, not a curve over frames."""
        return all(run.offline for run in self.runs)

    def curve(self, measure: str, axis: str = "frames") -> Curve:
        lines = {run.seed: run.line(measure, "frames" if self.level else axis) for run in self.runs}
        return mean_curve({seed: line for seed, line in lines.items() if len(line[0])})


@dataclass(frozen=True)
class Curve:
    """places (n,), mean (n,) and deviation (n,) over the seeds; tails: (seed, line) outside the common range."""

    places: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray | None
    lines: Mapping[int, Line]
    tails: Sequence[tuple[int, Line]]


def report_policies(
    runs: Sequence[Path | str], out: Path | str | None = None, measure: str = "success_gt3"
) -> dict[str, Any]:
    """Write the page of one or many training runs.

    out: default report.html in the run, or in the folder that holds all of them.
    measure: a key of MEASURES, shown first; the page switches between all of them.
    Returns page (path), runs (how many), tasks (task -> line -> seeds, final mean and deviation of the measure).
    """
    _check_measure(measure)
    read = read_policy_runs(runs)
    page = Path(out) if out is not None else _default_page(read)
    tasks = group_runs(read)
    title = f"{next(iter(tasks))}: learning curves" if len(tasks) == 1 else f"Learning curves of {len(tasks)} tasks"
    videos, left_out = _inline_videos(read)
    data = {
        "title": title,
        "subtitle": _subtitle(read),
        "command": shlex.join(["timerewarder", "report", *dict.fromkeys(map(str, runs))]),
        "measure": measure,
        "measures": [{"key": key, **value._asdict()} for key, value in MEASURES.items()],
        "goal": GOAL,
        "colours": COLOURS,
        "tasks": [{"task": task, "groups": [_group(group) for group in groups]} for task, groups in tasks.items()],
        "runs": [
            _run(run, group, videos[run.folder]) for groups in tasks.values() for group in groups for run in group.runs
        ],
        "left_out": left_out,
    }
    write_text(page, fill(sharing_page("curves.html", "videos"), title, data))
    return {"page": str(page), "runs": len(read), "tasks": _finals(tasks, measure)}


def plot_learning_curves(runs: Sequence[Path | str], path: Path | str, measure: str = "success_gt3") -> None:
    """Write a png, svg or pdf: a chart a task, a line with its band a reward, over environment frames."""
    _check_measure(measure)
    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{path} is no name for a figure: end it in .png, .svg or .pdf")
    tasks = group_runs(read_policy_runs(runs))
    columns = min(COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    drawn = [group for groups in tasks.values() for group in groups if group.curve(measure).lines]
    shown = {group.label: group for group in sorted(drawn, key=lambda group: group.slot)}
    width = max(3.9, 2.5 * columns)  # inches
    beside = min(4, len(shown), int(width / LEGEND_WIDTH))
    height = 0.4 + 2.0 * rows + LEGEND_HEIGHT * math.ceil(len(shown) / beside)
    figure = Figure(figsize=(width, height), dpi=PAPER_DPI, layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=MEASURES[measure].success, squeeze=False).flat)
    for axes, (task, groups) in zip(panels, tasks.items(), strict=False):
        _draw_task(axes, task, groups, measure)
    for axes in panels[len(tasks) - columns : len(tasks)]:
        axes.tick_params(labelbottom=True)  # also where the last row has no chart below
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    figure.supxlabel("environment frames", fontsize=8, color=INK)
    figure.supylabel(MEASURES[measure].label, fontsize=8, color=INK)
    handles = [Line2D([], [], label=label, **_look(group)) for label, group in shown.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=beside, fontsize=8, frameon=False)
    # Without a date and with fixed ids, the same runs give the same file.
    with atomic(path) as temporary, rc_context({"svg.hashsalt": "timerewarder"}):
        figure.savefig(temporary, metadata={"Date": None} if temporary.suffix == ".svg" else None)


def group_runs(runs: Sequence[PolicyRun]) -> dict[str, list[Group]]:
    """Task -> its groups; a reward has the same colour and an observation the same dashes in all of them."""
    slots = _slots({run.reward for run in runs})
    several_obs, several_presets = len({run.obs for run in runs}) > 1, len({run.preset for run in runs}) > 1
    # Pixels are what the paper's policies see: their line is the unbroken one.
    variants = sorted({(run.obs != "pixels", run.obs, run.preset, run.variant) for run in runs})
    tasks: dict[str, list[Group]] = {}
    for (task, reward, obs, preset, variant), members in itertools.groupby(runs, lambda run: run.kind):
        words = [reward, *([obs] if several_obs else []), *([preset] if several_presets else []), variant]
        dash = variants.index((obs != "pixels", obs, preset, variant)) % len(DASHES)
        tasks.setdefault(task, []).append(Group(", ".join(filter(None, words)), slots[reward], dash, list(members)))
    return {task: sorted(groups, key=lambda group: (group.slot, group.label)) for task, groups in tasks.items()}


def mean_curve(lines: Mapping[int, Line]) -> Curve:
    """Mean and deviation over the seeds (seed -> places, values) where all of them have data, and what is beyond."""
    if not lines:
        return Curve(np.empty(0), np.empty(0), None, {}, [])
    low, high = max(places[0] for places, _ in lines.values()), min(places[-1] for places, _ in lines.values())
    every = np.unique(np.concatenate([places for places, _ in lines.values()]))
    common = every[(every >= low) & (every <= high)]
    values = np.stack([np.interp(common, *line) for line in lines.values()])
    return Curve(
        places=common,
        mean=values.mean(axis=0),
        deviation=values.std(axis=0, ddof=1) if len(lines) > 1 else None,
        lines=lines,
        tails=[(seed, tail) for seed, line in lines.items() for tail in _tails(line, low, high)],
    )


def frames_to(run: PolicyRun, measure: str, goal: float = GOAL) -> int | None:
    """Environment frames of the first evaluation that reaches the goal."""
    frames, values = run.line(measure)
    reached = frames[values >= goal - 1e-6]
    return int(reached[0]) if len(reached) else None


def _tails(line: Line, low: float, high: float) -> Iterator[Line]:
    """The parts of a line outside [low, high], joined to its ends; all of it when there is no common range."""
    places, values = line
    if low > high:
        yield line
        return
    before, after = places[places < low], places[places > high]
    for part in (np.append(before, low), np.insert(after, 0, high)):
        if len(part) > 1:
            yield part, np.interp(part, places, values)


def _slots(rewards: set[str]) -> dict[str, int]:
    """Reward -> number of its colour: its own, or the next that no reward of these runs has."""
    free = [slot for slot in range(len(COLOURS)) if slot not in {SLOTS.get(reward) for reward in rewards}]
    others = sorted(rewards - SLOTS.keys())
    taken = {reward: slot for reward, slot in zip(others, itertools.cycle(free or [0]), strict=False)}
    return {reward: SLOTS.get(reward, taken.get(reward, 0)) for reward in rewards}


def _check_measure(measure: str) -> None:
    if measure not in MEASURES:
        raise UserError(f"unknown measure {measure!r}{nearest(measure, MEASURES)}")


def _default_page(runs: Sequence[PolicyRun]) -> Path:
    if len(runs) == 1:
        return runs[0].folder / "report.html"
    folder = common_folder([run.folder for run in runs])
    if folder == Path(folder.anchor):
        raise UserError("the runs have no folder in common: say where the page goes with --out PAGE.html")
    return folder / "report.html"


def _subtitle(runs: Sequence[PolicyRun]) -> str:
    slots = _slots({run.reward for run in runs})
    rewards = ", ".join(sorted(slots, key=lambda reward: (slots[reward], reward)))
    episodes = sorted({int(count) for run in runs for count in run.line("episodes")[1]})
    each = f"; {' or '.join(map(str, episodes))} episodes an evaluation" if episodes else ""
    return f"{len(runs)} run{'s'[: len(runs) > 1]}, reward {rewards}{each}"


def _finals(tasks: Mapping[str, Sequence[Group]], measure: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Task -> line -> seeds, and frames, mean and deviation at the last place that all its seeds have reached."""
    finals: dict[str, dict[str, dict[str, Any]]] = {}
    for task, groups in tasks.items():
        finals[task] = {}
        for group in groups:
            curve = group.curve(measure)
            found = len(curve.places) > 0
            finals[task][group.label] = {
                "seeds": len(curve.lines),
                "frames": int(curve.places[-1]) if found else None,
                "mean": float(curve.mean[-1]) if found else None,
                "deviation": float(curve.deviation[-1]) if found and curve.deviation is not None else None,
            }
    return finals


def _group(group: Group) -> dict[str, Any]:
    return {
        "label": group.label,
        "slot": group.slot,
        "dash": group.dash,
        "level": group.level,
        "curves": {
            measure: {axis: _curve(group.curve(measure, axis)) for axis in ("frames", "minutes")}
            for measure in MEASURES
        },
    }


def _curve(curve: Curve) -> dict[str, Any]:
    def points(seed: int, line: Line) -> dict[str, Any]:
        return {"seed": seed, "x": _digits(line[0]), "y": _digits(line[1])}

    return {
        "x": _digits(curve.places),
        "mean": _digits(curve.mean),
        "sd": None if curve.deviation is None else _digits(curve.deviation),
        "lines": [points(seed, line) for seed, line in curve.lines.items()],
        "tails": [points(seed, line) for seed, line in curve.tails],
    }


def _run(run: PolicyRun, group: Group, videos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "name": run.name,
        "task": run.task,
        "label": group.label,
        "reward": run.reward,
        "slot": group.slot,
        "obs": run.obs,
        "preset": run.preset,
        "seed": run.seed,
        "frames": run.frames,
        "planned": run.planned,
        "status": run.status,
        "seconds": run.seconds,
        "frames_per_second": run.frames / run.seconds if run.seconds else None,
        "results": {measure: _result(run, measure) for measure in MEASURES},
        "log": {column: _digits(_thinned(values)) for column, values in run.log.items()},
        "videos": videos,
        "config": run.config,
    }


def _result(run: PolicyRun, measure: str) -> dict[str, float | None]:
    _, values = run.line(measure)
    if not len(values):
        return {"final": None, "best": None, "reach": None}
    reach = frames_to(run, measure) if MEASURES[measure].success else None
    return {"final": float(values[-1]), "best": float(values.max()), "reach": reach}


def _thinned(values: np.ndarray) -> np.ndarray:
    return values[np.linspace(0, len(values) - 1, min(len(values), LONGEST_LOG)).round().astype(int)]


def _digits(values: np.ndarray) -> list[float]:
    """Eight digits: millions of frames stay exact, and the page stays small."""
    return [float(f"{value:.8g}") for value in values]


def _inline_videos(runs: Sequence[PolicyRun]) -> tuple[dict[Path, list[dict[str, Any]]], int]:
    """Run -> the films of its first and last evaluation and all episodes of the last, and how many did not fit in.

    Films are data URIs. Every run's last film comes before any other, and first ones come last.
    """
    films = {run.folder: _films(run.folder / "videos", "frames") for run in runs}
    alls = {run.folder: _films(run.folder / "videos", "all") for run in runs}
    wanted = [(folder, found[-1], False) for folder, found in films.items() if found]
    wanted += [(folder, found[-1], True) for folder, found in alls.items() if found]
    wanted += [(folder, found[0], False) for folder, found in films.items() if len(found) > 1]
    chosen: dict[Path, list[dict[str, Any]]] = {run.folder: [] for run in runs}
    room, left_out = VIDEO_BYTES, 0
    for folder, (frames, path), every in wanted:
        if path.stat().st_size > room:
            left_out += 1
            continue
        room -= path.stat().st_size
        video = data_uri("video/mp4", path.read_bytes())
        chosen[folder].append({"frames": frames, "all": every, "video": video})
    for videos in chosen.values():
        videos.sort(key=lambda video: (video["all"], video["frames"]))
    return chosen, left_out


def _films(folder: Path, kind: str) -> list[tuple[int, Path]]:
    """(env frames, file) of the videos of one kind, in the order of frames."""
    named = [(match, path) for path in folder.glob("*.mp4") if (match := re.fullmatch(rf"{kind}_(\d+)", path.stem))]
    return sorted((int(match[1]), path) for match, path in named)


def _look(group: Group) -> dict[str, Any]:
    """Keyword arguments of a matplotlib line."""
    colour = COLOURS[group.slot][0]
    if group.level:
        return {"color": colour, "linewidth": 1.2, "dashes": (1, 2)}
    marker = {"marker": MARKERS[group.slot], "markersize": 3}
    return {"color": colour, "linewidth": 1.5, "dashes": DASHES[group.dash], **marker}


def _draw_task(axes: Axes, task: str, groups: Sequence[Group], measure: str) -> None:
    for group in reversed(groups):  # the first on top
        _draw_group(axes, group, group.curve(measure))
    if MEASURES[measure].success:
        axes.set_ylim(-0.03, 1.03)
    axes.set_title(task, fontsize=8.5, color=INK, parse_math=False)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=7, colors=INK, length=2.5, width=0.6)
    axes.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_group(axes: Axes, group: Group, curve: Curve) -> None:
    look = _look(group)
    if group.level and len(curve.mean):
        axes.axhline(curve.mean[-1], **look)
        return
    if curve.deviation is not None:
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        axes.fill_between(curve.places, low, high, color=look["color"], alpha=0.16, linewidth=0)
    for _, tail in curve.tails:
        axes.plot(*tail, color=look["color"], linewidth=0.7, alpha=0.8)
    axes.plot(curve.places, curve.mean, **look | ({"linewidth": 0.9} if curve.deviation is None else {}))
