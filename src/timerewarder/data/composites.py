"""Frames put together from two moments of a video: what counts is the object, not the hand.

In demonstrations hand and object advance together, so a network that tells time from the hand alone is never wrong
there. It then takes a hand that goes the right way for progress, whether or not the object comes along, and a policy
soon finds that out. So some training frames get a rectangle from another moment of their video. A hand moves all the
time, an object only now and then: what moves in a frame is taken for the hand, and the frame counts as the moment of
the rest.

    hand late, door closed -> early      hand early, door open -> late      no telling -> the earlier of the two

Where nearly all that differs between the two moments lies on one side of the rectangle's edge, nothing was put
together: the frame shows that side's moment, and counts as that.
"""

from __future__ import annotations

import numpy as np

AREA = (0.05, 0.5)  # of the rectangle, as a share of the picture
ASPECT = 2.0  # the most that its height is of its width, or the other way around
DIFFERENT = 20  # grey levels, in any colour, by which a pixel differs
NEARLY_ALL = 0.9  # of the pixels that differ, or move


def composite(
    frames: np.ndarray,
    times: np.ndarray,
    others: np.ndarray,
    other_times: np.ndarray,
    moving: np.ndarray,
    other_moving: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Frames with a rectangle each from `others`, both uint8 (N, history+1, S, S, 3), and what they count as, (N,).

    `moving` and `other_moving`, bool (N, S, S), say which pixels move in them (see `different`).
    """
    side, mixed, counted = frames.shape[2], frames.copy(), times.copy()
    differs = different(frames[:, -1], others[:, -1])
    for row in range(len(frames)):
        inside = place(side, *size(side, rng), rng)
        mixed[row, :, inside[0], inside[1]] = others[row, :, inside[0], inside[1]]
        taken = share(differs[row], inside, of_none=0.0)
        own_hand = 1 - share(moving[row], inside, of_none=0.5)
        other_hand = share(other_moving[row], inside, of_none=0.5)
        if taken < 1 - NEARLY_ALL:
            continue
        if taken > NEARLY_ALL or (own_hand > NEARLY_ALL and other_hand < 1 - NEARLY_ALL):
            counted[row] = other_times[row]
        elif not (own_hand < 1 - NEARLY_ALL and other_hand > NEARLY_ALL):
            counted[row] = min(times[row], other_times[row])
    return mixed, counted


def different(frames: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Where two pictures differ, both uint8 (N, S, S, 3) -> bool (N, S, S)."""
    return (np.maximum(frames, others) - np.minimum(frames, others)).max(-1) > DIFFERENT


def share(pixels: np.ndarray, inside: tuple[slice, slice], of_none: float) -> float:
    """The share of the True ones in bool (S, S) that lie in the rectangle; `of_none` where there are none."""
    total = pixels.sum()
    return float(pixels[inside].sum() / total) if total else of_none


def size(side: int, rng: np.random.Generator) -> tuple[int, int]:
    """Height and width of a rectangle for a picture of `side` pixels."""
    area, aspect = rng.uniform(*AREA) * side**2, ASPECT ** rng.uniform(-1, 1)
    height = int(np.clip(np.sqrt(area * aspect), 1, side))
    return height, int(np.clip(area / height, 1, side))


def place(side: int, height: int, width: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of such a rectangle, anywhere in the picture."""
    top, left = int(rng.integers(0, side - height + 1)), int(rng.integers(0, side - width + 1))
    return slice(top, top + height), slice(left, left + width)
