"""What a video on disk is before anybody decodes it, and how a reader says that it is bad.

Four modules read frames: `containers` (mp4, webm, ...), `images` (a folder of pictures), `arrays` (npy, npz) and
`lerobot` (an episode of a LeRobot dataset). Each has
    rate(source) -> float                        frames per second, from the header alone
    decode(source) -> Iterator[TimedFrame]       every frame in order, flat memory
and raises `BadVideo` for whatever is wrong with the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from timerewarder.errors import UserError

Kind = Literal["container", "images", "array", "lerobot"]

# (time in seconds, function that gives the picture): resampling drops frames before their colours are converted.
TimedFrame = tuple[float, Callable[[], np.ndarray]]

DEFAULT_FPS = 10.0  # for pictures and arrays, which carry no rate
MAX_PIXELS = 2**26  # a frame of more is a mistake or an attack: 8K video has half of it


@dataclass(frozen=True)
class Opening:
    """How videos are opened, the same for all that are given together.

    fps: resample to this rate; skip_bad: leave out what cannot be read; camera, task: of LeRobot datasets, the feature
    to look at and the text of the task whose episodes are wanted.
    """

    fps: float | None = None
    skip_bad: bool = False
    camera: str | None = None
    task: str | None = None

    def __post_init__(self) -> None:
        if self.fps is not None and not 0 < self.fps <= 1000:
            raise UserError(f"fps must be above 0 and at most 1000, not {self.fps}")


AS_THEY_ARE = Opening()


@dataclass(frozen=True)
class Episode:
    """Where a video lies in its LeRobot dataset: frame i has the global index `first` + i; `length` is in frames."""

    index: int
    first: int
    length: int


@dataclass(frozen=True)
class Cut:
    """What one camera shows of an episode: `length` frames of a file that holds other episodes too.

    start: seconds into a video file at which the episode begins; None: the file is parquet, with pictures in it.
    fps: frames per second of the dataset. tasks: what was to be done in it, mostly one text.
    """

    dataset: Path
    camera: str
    episode: Episode
    fps: float
    start: float | None
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """One video on disk: a file, a folder of images, one array (`member`) of an npz file, an episode (`cut`)."""

    name: str
    path: Path
    kind: Kind
    member: str | None = None
    cut: Cut | None = None

    def bad(self, reason: str) -> BadVideo:
        """What is wrong with it. An episode is named: others in the same file may be good."""
        return BadVideo(self.path, f"episode {self.cut.episode.index}: {reason}" if self.cut else reason)


class BadVideo(UserError):
    """A video that is there but cannot be used; `skip_bad` skips it."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = " ".join(reason.split())  # libraries break lines in their messages
        super().__init__(f"{path}: {self.reason}; mend or remove it, or pass --skip-bad")
