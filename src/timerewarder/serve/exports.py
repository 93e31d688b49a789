"""What the page offers for download: the table, the curves as a picture, the video with its curve beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from timerewarder.data.source import Source
from timerewarder.data.videos import Video
from timerewarder.files import atomic
from timerewarder.report.clip import Clip
from timerewarder.report.overlay import write_overlay, write_table
from timerewarder.report.plots import FAINT, INK, PAPER_DPI, THUMBNAILS, plot_curve, progress_limits
from timerewarder.rewards.reward import FrameReward
from timerewarder.serve.videos import StoredVideo

COLOURS = ("#0a7d68", "#b35806", "#5e4fa2", "#2166ac", "#c51b7d", "#66852a")


def file_name(video: StoredVideo, model: str, suffix: str) -> str:
    """What a download is called."""
    return f"{Path(video.name).stem} {model}.{suffix}"


def write_csv(video: StoredVideo, file: Path, model: str, reward: FrameReward) -> None:
    write_table(_clip(video, model, reward), file)


def write_overlay_video(video: StoredVideo, file: Path, model: str, reward: FrameReward) -> None:
    write_overlay(_clip(video, model, reward), file)


def write_plot(video: StoredVideo, file: Path, rewards: dict[str, FrameReward]) -> None:
    """The curves of one model under pictures of the video, or those of several models in one picture."""
    clips = {model: _clip(video, model, reward) for model, reward in rewards.items()}
    if len(clips) == 1:
        plot_curve(next(iter(clips.values())), file)
    else:
        _plot_many(video, clips, file)


def _clip(video: StoredVideo, model: str, reward: FrameReward) -> Clip:
    scores = video.scores[model]
    return Clip(
        name=video.name,
        kind="uploaded",
        frames=cast(np.ndarray, PreviewFrames(video)),
        fps=video.fps or 1.0,
        rewards=scores.rewards,
        progress=scores.progress,
        is_value=reward.is_value,
    )


class PreviewFrames:
    """The pictures of a preview as a clip's frames, decoded when they are asked for: a video can be long."""

    def __init__(self, video: StoredVideo) -> None:
        self._video = Video(Source("", video.preview, "container"))
        self.shape = (video.frames or 0, *next(iter(self)).shape)
        self._place, self._rest = 0, iter(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        for chunk in self._video.chunks():
            yield from chunk

    def __getitem__(self, index: int) -> np.ndarray:
        """One picture. Going forward decodes the video once."""
        if index < self._place:
            self._place, self._rest = 0, iter(self)
        picture = next(itertools.islice(self._rest, index - self._place, None)).copy()
        self._place = index + 1
        return picture


def _plot_many(video: StoredVideo, clips: dict[str, Clip], file: Path) -> None:
    """Values share an axis; each sum that is not progress has one of its own, because their scales differ."""
    values = {model: clip for model, clip in clips.items() if clip.is_value}
    others = {model: clip for model, clip in clips.items() if not clip.is_value}
    groups: list[tuple[str, dict[str, Clip]]] = [("progress", values)] if values else []
    groups += [("sum of rewards", {model: clip}) for model, clip in others.items()]
    figure = Figure(figsize=(7.0, 1.2 + 1.9 * len(groups)), dpi=PAPER_DPI, layout="constrained")
    grid = figure.add_gridspec(1 + len(groups), THUMBNAILS, height_ratios=[1.0, *(1.9 for _ in groups)])
    _draw_pictures(figure, grid, next(iter(clips.values())))
    colours = dict(zip(clips, (COLOURS[i % len(COLOURS)] for i in range(len(clips))), strict=True))
    for row, (title, group) in enumerate(groups, 1):
        axes = figure.add_subplot(grid[row, :])
        curves = np.concatenate([clip.progress for clip in group.values()])
        for model, clip in group.items():
            axes.plot(clip.progress, color=colours[model], linewidth=1.6, label=model.replace("$", r"\$"))
        axes.set_ylim(*progress_limits(curves, is_value=title == "progress"))
        axes.set_xlim(-0.5, len(next(iter(group.values())).progress) - 0.5)
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        axes.set_ylabel(title, fontsize=8, color=INK)
        axes.tick_params(labelsize=7, colors=INK, labelbottom=row == len(groups))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=7, frameon=False, loc="best")
    axes.set_xlabel("frame", fontsize=8, color=INK)
    figure.suptitle(video.name, fontsize=9, color=INK, parse_math=False)
    with atomic(file) as temporary:
        figure.savefig(temporary)


def _draw_pictures(figure: Figure, grid: Any, clip: Clip) -> None:
    for column, number in enumerate(np.linspace(0, len(clip.frames) - 1, THUMBNAILS).round().astype(int)):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(clip.frames[number], interpolation="antialiased")
        axes.set_axis_off()
        axes.set_title(f"{number}", fontsize=7, color=INK, pad=2)
