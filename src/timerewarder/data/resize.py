"""Frames of any size to squares, the same for the frame store and for scoring."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch.nn.functional import interpolate

How = Literal["squash", "crop"]


def resize(frames: np.ndarray, size: int, how: How = "squash") -> np.ndarray:
    """uint8 (T, H, W, 3) -> uint8 (T, size, size, 3); the very same array if it has that size already.

    "squash" stretches to the square (bilinear). "crop" is CLIP's: the shorter side to `size` (bicubic), then the
    centre of the longer one.
    Both are antialiased. A frame comes out the same whichever frames it is resized with.
    """
    height, width = frames.shape[1:3]
    if height == width == size:
        return frames
    if how == "squash":
        return _interpolate(frames, size, size, "bilinear")
    shorter = min(height, width)
    scaled = _interpolate(frames, size * height // shorter, size * width // shorter, "bicubic")
    top, left = (scaled.shape[1] - size) // 2, (scaled.shape[2] - size) // 2
    return np.ascontiguousarray(scaled[:, top : top + size, left : left + size])


def _interpolate(frames: np.ndarray, height: int, width: int, mode: str) -> np.ndarray:
    # Frames are already what torch calls channels_last, for which it resizes bytes without a detour to floats.
    writable = np.require(frames, requirements=["C_CONTIGUOUS", "WRITEABLE"])  # torch warns of arrays that are not
    scaled = interpolate(
        torch.from_numpy(writable).permute(0, 3, 1, 2), size=(height, width), mode=mode, antialias=True
    )
    return np.ascontiguousarray(scaled.permute(0, 2, 3, 1).numpy())
