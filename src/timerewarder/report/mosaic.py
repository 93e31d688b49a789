"""Episodes of an evaluation in one video, side by side: which starts a policy solves, and where it is lost.

Under each picture a bar grows with the reward's running sum, its whole width being 1, or the largest sum of all
episodes if that is more. The frame of a picture is green in steps that solve the task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import ImageColor

from timerewarder.data.videos import write_video
from timerewarder.evaluation.episodes import Episode
from timerewarder.report.clip import resize
from timerewarder.report.plots import CURVE, FAINT, UP

COLUMNS = 5
PICTURE = 160  # pixels, side of a picture
BORDER, BAR = 4, 6
SOLVED, GROWN, EMPTY = (ImageColor.getrgb(colour) for colour in (CURVE, UP, FAINT))


def write_mosaic(episodes: Sequence[Episode], path: Path, fps: float = 10.0) -> None:
    """Write an mp4 as long as the longest episode; all of them must have been filmed."""
    write_video(path, mosaic(episodes), fps, quality="web")


def mosaic(episodes: Sequence[Episode]) -> Iterator[np.ndarray]:
    """The pictures of the video, uint8 (H, W, 3) each; an episode that is over stands still."""
    sums = [np.concatenate([[0.0], np.cumsum(episode.dense)]) for episode in episodes]
    whole = max(1.0, *(float(paid.max()) for paid in sums))
    columns = min(COLUMNS, len(episodes))
    rows = math.ceil(len(episodes) / columns)
    side, height = PICTURE + 2 * BORDER, PICTURE + 3 * BORDER + BAR
    for step in range(max(len(paid) for paid in sums)):
        canvas = np.full((rows * height, columns * side, 3), 255, np.uint8)
        for place, (episode, paid) in enumerate(zip(episodes, sums, strict=True)):
            assert episode.frames is not None
            top, left = place // columns * height, place % columns * side
            now = min(step, len(paid) - 1)
            tile = canvas[top : top + height, left : left + side]
            if now and episode.success[now - 1]:
                tile[: PICTURE + 2 * BORDER] = SOLVED
            tile[BORDER : BORDER + PICTURE, BORDER : BORDER + PICTURE] = resize(episode.frames[now], (PICTURE, PICTURE))
            bar = tile[PICTURE + 2 * BORDER : PICTURE + 2 * BORDER + BAR, BORDER : BORDER + PICTURE]
            bar[:] = EMPTY
            bar[:, : round(PICTURE * max(0.0, paid[now]) / whole)] = GROWN
        yield canvas
