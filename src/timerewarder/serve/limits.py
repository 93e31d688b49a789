"""How much a client may ask for. Every field is an option of `timerewarder serve`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from timerewarder.errors import UserError

FRAME_OVERHEAD = 2**16  # bytes that the header of a frame's file may take beside its pixels


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused, and when."""

    upload_megabytes: float = 200
    """Size of an upload, a video or an array of frames, in megabytes (10^6 bytes)."""
    upload_seconds: float = 30
    """Seconds in which nothing arrives of a body before it is given up."""
    frames: int = 5000
    """Frames of a video."""
    pixels: int = 2**24
    """Pixels of a frame."""
    side: int = 8192
    """Longest side of a frame in pixels."""
    decode_seconds: float = 60
    """Seconds that are waited for the decoder of one video; then it is stopped."""
    decode_megabytes: int = 4096
    """Memory of the process that decodes a video, in megabytes of address space, where the system can limit it."""
    sessions: int = 64
    """Streams that are open at once."""
    session_seconds: float = 300
    """Seconds without a frame after which a stream is closed."""
    queue: int = 256
    """Frames of streams, and videos to score, that may wait; more are refused with 429."""
    videos: int = 200
    """Videos that the page keeps; the oldest finished ones make room for new ones."""
    batch: int = 64
    """Frames in one forward pass."""
    scores: int = 4
    """Whole videos that are decoded and scored at once."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 < value < float("inf"):
                raise UserError(f"--{name.replace('_', '-')} {value} makes no sense: give a number above 0")

    @property
    def upload_bytes(self) -> int:
        return int(self.upload_megabytes * 1e6)

    @property
    def frame_bytes(self) -> int:
        """The largest body that can hold one frame."""
        return min(3 * self.pixels + FRAME_OVERHEAD, self.upload_bytes)
