"""What a video on disk is before anybody decodes it, and how a reader says that it is bad.

Three modules read frames: `containers` (mp4, webm, ...), `images` (a folder of pictures), `arrays` (npy, npz). Each has
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

Kind = Literal["container", "images", "array"]

# (time in seconds, function that gives the picture): resampling drops frames before their colours are converted.
TimedFrame = tuple[float, Callable[[], np.ndarray]]

DEFAULT_FPS = 10.0  # for pictures and arrays, which carry no rate
MAX_PIXELS = 2**26  # a frame of more is a mistake or an attack: 8K video has half of it


@dataclass(frozen=True)
class Source:
    """One video on disk: a file, a folder of images, or one array (`member`) of an npz file."""

    name: str
    path: Path
    kind: Kind
    member: str | None = None


class BadVideo(UserError):
    """A video that is there but cannot be used; `skip_bad` skips it."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = " ".join(reason.split())  # libraries break lines in their messages
        super().__init__(f"{path}: {self.reason}; mend or remove it, or pass --skip-bad")
