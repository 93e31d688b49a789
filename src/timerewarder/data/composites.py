"""Frames put together from two moments of a video: a frame is as far as its least advanced part.

In demonstrations hand and object advance together, so a network that tells time from the hand alone is never wrong
there. It then takes a hand that goes the right way for progress, whether or not the object comes along, and a policy
soon finds that out. So some training frames get a rectangle from another moment of their video, and count as the
earlier of the two: to tell the time of those, one has to look at everything.

    hand late, door closed -> early      hand early, door open -> early

Half of the rectangles are put where they were. Where nearly all that differs between the two moments lies on one side
of such a rectangle's edge, nothing was put together: the frame shows that side's moment, and counts as that. The other
half are put anywhere, so that things in places where they never are do not count as progress either; such a rectangle
changes nothing if it holds next to nothing of what differs.
"""

from __future__ import annotations

import numpy as np

AREA = (0.05, 0.5)  # of the rectangle, as a share of the picture
ASPECT = 2.0  # the most that its height is of its width, or the other way around
ELSEWHERE = 0.5  # share of the rectangles that are put anywhere
DIFFERENT = 20  # grey levels, in any colour, by which a pixel differs
NEARLY_ALL = 0.9  # of the pixels that differ


def composite(
    frames: np.ndarray, times: np.ndarray, others: np.ndarray, other_times: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Frames with a rectangle each from `others`, both uint8 (N, history+1, S, S, 3), and what they count as, (N,)."""
    side, mixed, counted = frames.shape[2], frames.copy(), times.copy()
    differs = (np.maximum(frames[:, -1], others[:, -1]) - np.minimum(frames[:, -1], others[:, -1])).max(-1) > DIFFERENT
    for row in range(len(frames)):
        height, width = size(side, rng)
        rows, columns = place(side, height, width, rng)
        share = differs[row, rows, columns].sum() / max(1, differs[row].sum())
        elsewhere = rng.random() < ELSEWHERE
        onto = place(side, height, width, rng) if elsewhere else (rows, columns)
        mixed[row, :, onto[0], onto[1]] = others[row, :, rows, columns]
        if share > NEARLY_ALL and not elsewhere:
            counted[row] = other_times[row]
        elif share > 1 - NEARLY_ALL:
            counted[row] = min(times[row], other_times[row])
    return mixed, counted


def size(side: int, rng: np.random.Generator) -> tuple[int, int]:
    """Height and width of a rectangle for a picture of `side` pixels."""
    area, aspect = rng.uniform(*AREA) * side**2, ASPECT ** rng.uniform(-1, 1)
    height = int(np.clip(np.sqrt(area * aspect), 1, side))
    return height, int(np.clip(area / height, 1, side))


def place(side: int, height: int, width: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of such a rectangle, anywhere in the picture."""
    top, left = int(rng.integers(0, side - height + 1)), int(rng.integers(0, side - width + 1))
    return slice(top, top + height), slice(left, left + width)
