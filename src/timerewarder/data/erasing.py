"""Frames with small patches painted over in random colours; what they count as stays.

After Zhong et al., "Random Erasing Data Augmentation", AAAI 2020. A network that has seen a hundred demonstrations
reads the time off whatever detail tells it best. In a policy's own episodes that detail may be hidden, or look slightly
different from step to step, and the reward jumps. With patches gone at random, no single detail will do.
"""

from __future__ import annotations

import numpy as np

PATCHES = (1, 3)  # in a frame, at least and at most
SIDE = (0.05, 0.2)  # height and width of a patch, as shares of the picture's side


def erase(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Frames uint8 (N, history+1, S, S, 3), each with its own patches; a frame's history has the same ones."""
    side, erased = frames.shape[2], frames.copy()
    least, most = (max(1, round(share * side)) for share in SIDE)
    for frame in erased:
        for _ in range(rng.integers(PATCHES[0], PATCHES[1] + 1)):
            height, width = rng.integers(least, most + 1, 2)
            top, left = rng.integers(0, side - height + 1), rng.integers(0, side - width + 1)
            frame[:, top : top + height, left : left + width] = rng.integers(0, 256, 3)
    return erased
