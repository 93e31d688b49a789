"""One scored video, ready to be shown, and the size at which to show it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

WIDEST = 854  # pixels; 480p in 16:9, so that a panorama does not become a huge file


@dataclass(frozen=True)
class Clip:
    """A video of T frames with what a reward says about it. Arrays are aligned: entry t belongs to frame t.

    kind: "held-out", "failure" or "reversed"; any other word is shown as it is.
    frames: uint8 (T, H, W, 3).
    rewards: float32 (T,), for arriving at each frame; entry 0 is 0.
    progress: float32 (T,), the running sum of the rewards, in shares of what a whole demonstration sums to.
    is_value: whether that is progress; if not, it is the plain sum of rewards that are not steps of a value.
    distances: float32 (T, T) or None; [u, v] is the predicted signed time from frame u to frame v; truth is
        (v-u)/(unit-1).
    unit: frames that make a distance of 1; None means as many as this video has (`length_norm="video"`).
    """

    name: str
    kind: str
    frames: np.ndarray
    fps: float
    rewards: np.ndarray
    progress: np.ndarray
    distances: np.ndarray | None = None
    unit: int | None = None
    is_value: bool = True

    @property
    def sum_name(self) -> str:
        """What the running sum is called."""
        return "progress" if self.is_value else "sum"

    def __post_init__(self) -> None:
        length = len(self.frames)
        if self.rewards.shape != (length,) or self.progress.shape != (length,):
            raise ValueError(
                f"{self.name}: {length} frames, but rewards {self.rewards.shape} and progress {self.progress.shape}"
            )
        if self.distances is not None and self.distances.shape != (length, length):
            raise ValueError(f"{self.name}: {length} frames, but distances {self.distances.shape}")


def true_distances(length: int, unit: int | None = None) -> np.ndarray:
    """What a perfect model predicts for a video of `length` frames: float32 (T, T), [u, v] = (v-u)/(unit-1)."""
    frames = np.arange(length, dtype=np.float32)
    return (frames[None, :] - frames[:, None]) / np.float32(max(1, (unit or length) - 1))


def shown_size(height: int, width: int, *, lowest: int, highest: int) -> tuple[int, int]:
    """Even (height, width) of the same shape with lowest <= height <= highest, less where it would be too wide."""
    scale = min(max(lowest / height, min(1.0, highest / height)), WIDEST / width)
    return max(2, round(height * scale / 2) * 2), max(2, round(width * scale / 2) * 2)


def resize(frame: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 (H, W, 3) -> uint8 (*size, 3), smooth."""
    if frame.shape[:2] == size:
        return frame
    return np.asarray(Image.fromarray(frame).resize(size[::-1], Image.Resampling.BICUBIC))
