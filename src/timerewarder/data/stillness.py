"""Where the picture of a video comes to rest for good: the time after that is no progress.

A recording often goes on after the task is done. Its clock then labels frames that hardly differ with growing time, and
a network finds what little does differ: a grip that settles by tenths of a millimetre, a shadow. So the clock of a
training video stops at its last real movement.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

RESTING = 0.1  # of the change of a brisk step (the 90th percentile of the video's steps): less is rest


def moving_length(frames: np.ndarray) -> int:
    """How many of the frames, uint8 (T, H, W, 3), there are until the picture rests to the end; at least 2."""
    changes = np.array([np.abs(b.astype(np.int16) - a).mean() for a, b in pairwise(frames)])
    moving = np.flatnonzero(changes >= RESTING * np.quantile(changes, 0.9))
    return int(moving[-1]) + 2 if changes.any() else len(frames)
