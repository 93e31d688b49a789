"""A scored video as files: a table, plots, and an mp4 with the curve being drawn beside the picture.

The panel beside the picture is drawn twice by matplotlib, with and without its curves; frame t of the video shows the
first up to the column of frame t and the second from there on. So a frame costs two copies and a line of text, not a
figure, and the curve stays smooth.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from timerewarder.data.videos import write_video
from timerewarder.files import atomic
from timerewarder.report.clip import Clip, resize, shown_size
from timerewarder.report.plots import CURVE, DOWN, INK, UP, draw_curves, plot_curve, plot_distances
from timerewarder.report.rerun import write_rerun

LOWEST, HIGHEST = 336, 480  # pixels, height of the picture
PANEL_WIDTH = 504  # pixels
DPI = 120
HEADER = 40  # pixels above the axes, for the numbers of the current frame
LONGEST_NAME = 160  # bytes of 255, so that suffixes and temporary names fit
DOT = 5  # pixels, radius of the mark at the current frame


def write_scores(clip: Clip, folder: Path | str, rerun: bool = False) -> dict[str, Path]:
    """Write NAME.csv, NAME.png, NAME.mp4 and, if the clip has distances, NAME_distances.png; say where they are.

    With `rerun` also NAME.rrd, all of it for the Rerun viewer.
    """
    stem = Path(folder) / safe_name(clip.name)
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "png", "mp4")}
    write_table(clip, paths["csv"])
    plot_curve(clip, paths["png"])
    write_overlay(clip, paths["mp4"])
    if clip.distances is not None:
        paths["distances"] = stem.with_name(f"{stem.name}_distances.png")
        plot_distances(clip.distances, paths["distances"], clip.name, clip.unit)
    if rerun:
        paths["rrd"] = stem.with_name(f"{stem.name}.rrd")
        write_rerun(clip, paths["rrd"])
    return paths


def write_table(clip: Clip, path: Path | str) -> None:
    """Write a csv: frame, time in seconds, reward for arriving at the frame, progress."""
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["frame", "time", "reward", "progress"])
        for frame, (reward, progress) in enumerate(zip(clip.rewards, clip.progress, strict=True)):
            table.writerow([frame, f"{frame / clip.fps:.6g}", str(reward), str(progress)])


def write_overlay(clip: Clip, path: Path | str) -> None:
    """Write an mp4 of as many frames as the clip: the picture, and beside it the curve up to the current frame."""
    write_video(path, overlay_frames(clip), clip.fps, quality="web")


def overlay_frames(clip: Clip) -> Iterator[np.ndarray]:
    """The pictures of the overlay video, uint8 (H, W, 3) each."""
    height, width = shown_size(*clip.frames.shape[1:3], lowest=LOWEST, highest=HIGHEST)
    panel = _Panel.of(clip, max(height, LOWEST))
    canvas = np.full((len(panel.ahead), width + PANEL_WIDTH, 3), 255, np.uint8)
    top = (len(panel.ahead) - height) // 2
    for frame, picture in enumerate(clip.frames):
        canvas[top : top + height, :width] = resize(picture, (height, width))
        canvas[:, width:] = panel.at(frame, clip)
        yield canvas.copy()


def safe_name(name: str) -> str:
    """A relative path that any file system takes, different for different names, and the name itself if it is plain.

    Folders are kept. A part that had to change (odd characters, dots in front, too long) gets a short hash of the
    whole name, so that `a b` and `a_b` stay apart; so does a name ending in `_distances`, which is another's plot.
    """
    parts = [part.encode("utf-8", "replace").decode() for part in name.split("/") if part not in ("", ".")]
    safe = [re.sub(r"[^\w.+=@-]", "_", re.sub(r"^[.-]|\.$", "_", part)) for part in parts] or ["_"]
    safe = [part.encode()[:LONGEST_NAME].decode("utf-8", "ignore") for part in safe]
    if safe != name.split("/") or safe[-1].endswith("_distances"):
        safe[-1] += "-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return "/".join(safe)


@dataclass(frozen=True)
class _Panel:
    """The drawn panel (uint8 (H, PANEL_WIDTH, 3)) before and after the cursor, and where each frame is on it."""

    behind: np.ndarray
    ahead: np.ndarray
    columns: np.ndarray  # int (T,): x of each frame
    rows: np.ndarray  # int (T,): y of the progress at each frame
    bounds: tuple[int, int]  # y of the top and bottom of the plotted area
    font: ImageFont.FreeTypeFont

    @classmethod
    def of(cls, clip: Clip, height: int) -> _Panel:
        (behind, points, bounds), (ahead, _, _) = (_draw_panel(clip, height, visible) for visible in (True, False))
        font = ImageFont.truetype(findfont("DejaVu Sans"), 15)
        return cls(behind, ahead, points[:, 0], points[:, 1], bounds, font)

    def at(self, frame: int, clip: Clip) -> np.ndarray:
        """The panel as it stands at one frame."""
        column = int(self.columns[frame])
        panel = self.ahead.copy()
        panel[:, : column + 1] = self.behind[:, : column + 1]
        image = Image.fromarray(panel)
        draw = ImageDraw.Draw(image)
        draw.line([(column, self.bounds[0]), (column, self.bounds[1])], fill="#9aa4ae")
        row = int(self.rows[frame])
        draw.ellipse([column - DOT, row - DOT, column + DOT, row + DOT], fill=CURVE, outline="white")
        reward, progress = float(clip.rewards[frame]), float(clip.progress[frame])
        draw.text((12, 12), f"frame {frame} of {len(clip.frames) - 1}", fill=INK, font=self.font)
        draw.text((172, 12), f"reward {reward:+.3f}", fill=DOWN if reward < 0 else UP, font=self.font)
        draw.text((332, 12), f"{clip.sum_name} {progress:+.3f}", fill=CURVE, font=self.font)
        return np.asarray(image)


def _draw_panel(clip: Clip, height: int, visible: bool) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Image uint8 (height, PANEL_WIDTH, 3), the pixel (x, y) of every frame's progress, the plotted rows."""
    figure = Figure(figsize=(PANEL_WIDTH / DPI, height / DPI), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    # Fixed margins: a layout engine could place the two drawings differently.
    grid = figure.add_gridspec(
        2, 1, height_ratios=[2.2, 1], hspace=0.12, left=0.125, right=0.975, top=1 - HEADER / height, bottom=50 / height
    )
    progress = figure.add_subplot(grid[0])
    rewards = figure.add_subplot(grid[1], sharex=progress)
    draw_curves(progress, rewards, clip, visible=visible)
    figure.align_ylabels()
    canvas.draw()
    values = np.stack([np.arange(len(clip.progress)), np.nan_to_num(clip.progress)], axis=1)
    points = progress.transData.transform(values)
    points[:, 1] = height - points[:, 1]
    bounds = (round(height - progress.bbox.y1), round(height - rewards.bbox.y0))
    return np.asarray(canvas.buffer_rgba())[..., :3].copy(), points.round().astype(int), bounds
