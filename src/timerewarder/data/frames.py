"""The one form that frames have everywhere: uint8 (T, H, W, 3), red-green-blue, channels last."""

from __future__ import annotations

from typing import Any

import numpy as np

from timerewarder.errors import UserError


def check_frames(frames: Any) -> np.ndarray:
    """Return `frames` if they are uint8 (T, H, W, 3) and not empty; otherwise say what was found and the remedy."""
    if not hasattr(frames, "dtype"):
        raise UserError(f"frames must be a NumPy array uint8 (T, H, W, 3), not {type(frames).__name__}")
    array = np.asarray(frames)
    problem = complaint(array.dtype, array.shape)
    if problem:
        raise UserError(problem)
    return array


def complaint(dtype: np.dtype, shape: tuple[int, ...]) -> str | None:
    """What keeps an array of this dtype and shape from being frames, with the remedy; None if nothing does."""
    remedy = _remedy(dtype, shape)
    return remedy and f"frames must be uint8 (T, H, W, 3), not {dtype} {shape}: {remedy}"


def _remedy(dtype: np.dtype, shape: tuple[int, ...]) -> str | None:
    if len(shape) == 3 and shape[-1] == 3:
        return "add a time axis with frames[None]"
    if len(shape) != 4:
        return "give one array of all frames of a video"
    if shape[-1] != 3 and shape[1] == 3:
        return "move the channels last with frames.transpose(0, 2, 3, 1)"
    if shape[-1] == 4:
        return "drop the alpha channel with frames[..., :3]"
    if shape[-1] == 1:
        return "repeat the grey channel with frames.repeat(3, axis=-1)"
    if shape[-1] != 3:
        return "the last axis must be red, green, blue"
    if min(shape) < 1:
        return "no side may be empty"
    if np.issubdtype(dtype, np.floating):
        return "if they lie in [0, 1], multiply by 255 and cast to uint8"
    if dtype != np.uint8:
        return "scale to 0..255 and cast to uint8"
    return None
