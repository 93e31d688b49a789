"""The figure of features along videos (the paper's representation figure), and the table behind it.

A row a model; columns: training videos, held-out videos, success against failure. A line is a video, its colour runs
with time from light to dark, a dot is its first frame and a square its last. All charts of a row have one scale.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from timerewarder import api
from timerewarder.data.search import find_sources
from timerewarder.data.source import AS_THEY_ARE, Opening
from timerewarder.errors import UserError
from timerewarder.evaluation.features import Projection, Trajectory, encode_videos, project
from timerewarder.files import atomic
from timerewarder.progress import track
from timerewarder.report.plots import FAINT, INK, PAPER_DPI


def _darker(name: str, lightest: float) -> Colormap:
    """A colour map without its lightest end, which would not show on white."""
    return ListedColormap(colormaps[name](np.linspace(lightest, 1, 256)))


SUCCESS, FAILURE = _darker("YlGnBu", 0.25), _darker("YlOrRd", 0.25)
Panels = Mapping[str, Sequence[str]]  # title of a column -> kinds of videos in it


def draw_features(
    models: Sequence[str],
    out: Path,
    train: Sequence[str] = (),
    heldout: Sequence[str] = (),
    failures: Sequence[str] = (),
    clips: int = 6,
    opening: Opening = AS_THEY_ARE,
) -> dict[str, Any]:
    """Write features.svg, features.png and features.csv; returns where they are and the explained variances."""
    sets = {kind: places for kind, places in (("train", train), ("held-out", heldout), ("failure", failures)) if places}
    _check(models, sets, clips)
    rewards = {label: api.load(model) for label, model in zip(labels(models), models, strict=True)}
    total = sum(min(clips, len(find_sources(places, opening))) for places in sets.values())
    projections = {
        label: project(list(track(encode_videos(reward, sets, clips, opening), f"Encoding {label}"[:20], total)))
        for label, reward in rewards.items()
    }
    write_table(projections, out / "features.csv")
    for path in (out / "features.svg", out / "features.png"):
        plot_features(projections, path)
    return {
        "figure": str(out / "features.svg"),
        "table": str(out / "features.csv"),
        "models": len(models),
        "explained_variance": {label: projection.explained for label, projection in projections.items()},
    }


def _check(models: Sequence[str], sets: Mapping[str, Sequence[str]], clips: int) -> None:
    if not models:
        raise UserError("no models given: name folders that `timerewarder fit` wrote")
    if not sets:
        raise UserError("no videos given: name some with --train DIR, --heldout DIR or --failures DIR")
    if clips < 1:
        raise UserError(f"--clips {clips} shows nothing: give how many videos of each kind to draw, at least 1")


def labels(models: Sequence[str]) -> list[str]:
    """The last part of each model's path, or the whole path where two would be called the same."""
    names = [Path(model).resolve().name if Path(model).exists() else model for model in models]
    if len(set(models)) < len(models):
        raise UserError("a model is named twice: name each once")
    return [name if names.count(name) == 1 else model for name, model in zip(names, models, strict=True)]


def write_table(projections: Mapping[str, Projection], path: Path) -> None:
    """A row a frame: model, kind of video, video, frame, its place in the two directions."""
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="replace") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "kind", "video", "frame", "pc1", "pc2"])
        for label, projection in projections.items():
            for trajectory in projection.trajectories:
                for frame, (x, y) in enumerate(trajectory.points):
                    table.writerow([label, trajectory.kind, trajectory.name, frame, f"{x:.6g}", f"{y:.6g}"])


def panels_of(kinds: Sequence[str]) -> Panels:
    """The columns that the given kinds of videos make."""
    panels: dict[str, Sequence[str]] = {}
    if "train" in kinds:
        panels["training"] = ["train"]
    if "held-out" in kinds:
        panels["held-out"] = ["held-out"]
    if "failure" in kinds:
        beside = next((kind for kind in ("held-out", "train") if kind in kinds), None)
        panels["success and failure" if beside else "failure"] = [*([beside] if beside else []), "failure"]
    return panels


def plot_features(projections: Mapping[str, Projection], path: Path) -> None:
    """Write an svg, png or pdf."""
    kinds = list(dict.fromkeys(t.kind for p in projections.values() for t in p.trajectories))
    panels = panels_of(kinds)
    heights = [2.2 * len(projections) + 0.2, 0.3]
    figure = Figure(figsize=(2.35 * max(2, len(panels)) + 0.4, sum(heights)), dpi=PAPER_DPI, layout="constrained")
    body, foot = figure.subfigures(2, 1, height_ratios=heights, squeeze=False).flat
    grid = body.subplots(len(projections), len(panels), sharex="row", sharey="row", squeeze=False)
    for row, (label, projection) in zip(grid, projections.items(), strict=True):
        _draw_row(row, label, projection, panels)
    for axes, title in zip(grid[0], panels, strict=True):
        axes.set_title(title, fontsize=8.5, color=INK)
    maps = [(SUCCESS, "success")] * any(kind != "failure" for kind in kinds)
    maps += [(FAILURE, "failure")] * ("failure" in kinds)
    for place, (colours, word) in zip((0.3, 0.7) if len(maps) > 1 else (0.5,), maps, strict=True):
        axes = foot.add_axes((place - 0.1, 0.45, 0.2, 0.22))
        axes.imshow(np.linspace(0, 1, 256)[None], cmap=colours, aspect="auto")
        axes.set_axis_off()
        for x, text, side in ((-0.03, f"{word}: start", "right"), (1.03, "end", "left")):
            axes.text(x, 0.5, text, fontsize=7, color=INK, ha=side, va="center", transform=axes.transAxes)
    with atomic(path) as temporary:
        figure.savefig(temporary)


def _draw_row(row: Sequence[Axes], label: str, projection: Projection, panels: Panels) -> None:
    first, second = (f"PC {number} ({share:.0%})" for number, share in enumerate(projection.explained, start=1))
    for axes, kinds in zip(row, panels.values(), strict=True):
        _draw([trajectory for trajectory in projection.trajectories if trajectory.kind in kinds], axes)
        axes.set_xlabel(first, fontsize=7, color=INK, labelpad=2)
    name = label.encode("utf-8", "replace").decode()
    row[0].set_ylabel(f"{name}\n{second}", fontsize=7, color=INK, parse_math=False, linespacing=1.6)


def _draw(trajectories: Sequence[Trajectory], axes: Axes) -> None:
    for trajectory in trajectories:
        map_, points = FAILURE if trajectory.kind == "failure" else SUCCESS, trajectory.points
        times = np.linspace(0, 1, len(points))
        segments = np.stack([points[:-1], points[1:]], axis=1)
        lines = LineCollection(
            list(segments), colors=map_((times[:-1] + times[1:]) / 2), linewidths=1.1, capstyle="round"
        )
        axes.add_collection(lines)
        for place, marker, size in ((0, "o", 9), (-1, "s", 11)):
            colour = [map_(times[place])]
            x, y = points[place]
            axes.scatter(x, y, s=size, marker=marker, c=colour, edgecolors=INK, linewidths=0.4, zorder=3)
    axes.autoscale_view()
    axes.tick_params(labelsize=6, colors=INK, length=2, width=0.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(color=FAINT, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
