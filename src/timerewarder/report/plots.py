"""Plots for papers: the curve of one video under its pictures, and its matrix of predicted distances.

Figures are drawn on their own `Figure` objects, never through pyplot, so nothing global changes and threads are safe.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from timerewarder.files import atomic
from timerewarder.report.clip import Clip, true_distances

CURVE, UP, DOWN, INK, FAINT = "#0a7d68", "#2166ac", "#c0392b", "#30363c", "#c9ced3"
PAPER_DPI = 200
THUMBNAILS = 8


def plot_curve(clip: Clip, path: Path | str) -> None:
    """Write a PNG: a few frames along the top, the progress and the step rewards below them on one time axis."""
    figure = Figure(figsize=(7.0, 3.9), dpi=PAPER_DPI, layout="constrained")
    grid = figure.add_gridspec(3, THUMBNAILS, height_ratios=[1.0, 1.9, 0.9], hspace=0.04, wspace=0.02)
    for column, frame in enumerate(np.linspace(0, len(clip.frames) - 1, THUMBNAILS).round().astype(int)):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(clip.frames[frame], interpolation="antialiased")
        axes.set_axis_off()
        axes.set_title(f"{frame}", fontsize=7, color=INK, pad=2)
    progress = figure.add_subplot(grid[1, :])
    rewards = figure.add_subplot(grid[2, :], sharex=progress)
    draw_curves(progress, rewards, clip)
    _title(figure, clip.name)
    _save(figure, path)


def plot_distances(distances: np.ndarray, path: Path | str, title: str, unit: int | None = None) -> None:
    """Write a PNG: the predicted distances (T, T) beside the true ones, one colour scale centred at 0.

    unit: frames that make a distance of 1; None means T.
    """
    truth = true_distances(len(distances), unit)
    limit = _limit(distances)
    figure = Figure(figsize=(7.0, 3.6), dpi=PAPER_DPI, layout="compressed")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, values, label in zip(panels, (distances, truth), ("predicted", "truth"), strict=True):
        image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, origin="upper", interpolation="nearest")
        axes.set_title(label, fontsize=9, color=INK)
        axes.set_xlabel("to frame", fontsize=8)
        _style(axes)
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    panels[0].set_ylabel("from frame", fontsize=8)
    colours = figure.colorbar(image, ax=list(panels), pad=0.02)
    colours.set_label("signed distance in time", fontsize=8)
    colours.ax.tick_params(labelsize=7)
    _title(figure, title)
    _save(figure, path)


def draw_curves(progress: Axes, rewards: Axes, clip: Clip, *, visible: bool = True) -> None:
    """Draw the progress and the step rewards of a clip on two axes that share their x; not visible: the axes only."""
    frames = np.arange(len(clip.frames))
    low, high = progress_limits(clip.progress, clip.is_value)
    for axes, label in ((progress, clip.sum_name), (rewards, "reward")):
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        axes.set_ylabel(label, fontsize=8, color=INK)
        _style(axes)
    if clip.is_value:
        progress.axhline(1, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    progress.set_ylim(low, high)
    progress.tick_params(labelbottom=False)
    progress.set_xlim(-0.5, len(frames) - 0.5)
    reach = 1.15 * max(1e-6, float(np.max(np.abs(clip.rewards), initial=0, where=np.isfinite(clip.rewards))))
    rewards.set_ylim(-reach, reach)
    rewards.set_xlabel("frame", fontsize=8, color=INK)
    if visible:
        progress.plot(frames, clip.progress, color=CURVE, linewidth=1.8, solid_capstyle="round")
        rewards.add_collection(_bars(clip.rewards))


def progress_limits(progress: np.ndarray, is_value: bool = True) -> tuple[float, float]:
    """The range of a progress axis: 0 to 1 (of a plain sum: 0) and what the curve needs beyond, with a margin."""
    finite = progress[np.isfinite(progress)]
    low, high = float(np.min(finite, initial=0)), float(np.max(finite, initial=1 if is_value else 0))
    margin = 0.06 * max(high - low, 1e-6)
    return low - margin, high + margin


def _bars(rewards: np.ndarray) -> PolyCollection:
    """One bar a frame from 0 to its reward, as one object: a thousand `bar` patches take seconds to draw."""
    heights = np.nan_to_num(rewards, nan=0, posinf=0, neginf=0)
    left = np.arange(len(heights)) - 0.4
    x = np.stack([left, left, left + 0.8, left + 0.8], axis=1)
    y = np.stack([0 * heights, heights, heights, 0 * heights], axis=1)
    return PolyCollection(list(np.stack([x, y], axis=2)), facecolors=np.where(heights >= 0, UP, DOWN).tolist())


def _limit(distances: np.ndarray) -> float:
    """The largest finite magnitude, at least 1, so that plots of different videos compare."""
    return max(1.0, float(np.max(np.abs(distances), initial=0, where=np.isfinite(distances))))


def _title(figure: Figure, text: str) -> None:
    """File names may hold dollar signs, which are not mathematics here, and bytes that are not characters."""
    figure.suptitle(text.encode("utf-8", "replace").decode(), fontsize=9, color=INK, parse_math=False)


def _style(axes: Axes) -> None:
    axes.tick_params(labelsize=7, colors=INK, length=2.5, width=0.6)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # frames
    for side, spine in axes.spines.items():
        spine.set_linewidth(0.6)
        spine.set_visible(side in ("left", "bottom"))


def _save(figure: Figure, path: Path | str) -> None:
    with atomic(path) as temporary:
        figure.savefig(temporary)
