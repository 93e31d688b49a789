"""Composites: the scene of one moment with the hand of another, so that a model has to look at the object.

In demonstrations the hand and the object advance together. A network that follows the hand alone orders their frames as
well as one that sees the task, and sees nothing of an object that is moved while the hand is elsewhere. So the hand
(data/hands.py) is taken out of a frame, and one from any moment of any video is put in its place, or none:

    scene      s_t = o_t, the hand's pixels as they were at the nearest of the moments 1, 2, 4, ... before or after
    composite  c   = m'_u o'_u + (1 - m'_u) s_t

The hand of a demonstration stays on what it moves, so what it hides at the end may never be seen. As it was before, a
window that is half open has its handle twice, and one that is really open has not. So every other composite has the
nearest pixels there that are seen: a model then learns little from what the hand hid.

Where something in the scene has changed, it counts as the moment of the scene, wherever the hand is. Where nothing has,
it counts by the hand, as half as far as that was on its own way to the object, and back again if it has gone on from
there, since here the object has not gone along. Half, because nothing is moved yet: what leads a hand to the object is
worth less than the first bit by which the object moves. Some hands are turned, mirrored and put anywhere, since a
policy's arm gets to places where no demonstration's does; these are on no way to the object.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import distance_transform_edt

from timerewarder.data.store import FrameStore

NOBODY, ANYWHERE = 0.2, 0.4  # of the composites show no hand at all, or one that is put anywhere
APPROACH = 0.5  # what being on the way to the object counts


def composite(store: FrameStore, video: int, moments: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The scene at successive moments (W,) of a video with another hand, uint8 (W, S, S, 3), and its time."""
    remember = bool(rng.integers(2))
    frames = np.stack([scene(store, video, int(moment), remember) for moment in moments])
    span, reached, kind = store.spans[video] - 1, 0.0, rng.random()
    if kind >= NOBODY:
        other = int(rng.integers(len(store)))
        last = int(rng.integers(store.lengths[other]))
        others = np.maximum(last - (moments[-1] - moments), 0)
        hand, shown = store.hands[other].mask(others), store.frames(other, others)
        if kind < NOBODY + ANYWHERE:
            hand, shown = put_anywhere(hand, shown, rng)
        else:
            touched = store.hands[other].touched
            reached = APPROACH * span * max(0, min(last, 2 * touched - last)) / (store.spans[other] - 1)
        frames[hand] = shown[hand]
    changed = store.hands[video].changed[moments[-1]]
    return frames, float(store.times(video, moments[-1]) if changed else min(reached, span))


def put_anywhere(hand: np.ndarray, frames: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A hand (W, S, S) and its frames (W, S, S, 3), turned, mirrored and moved by up to half of the picture."""
    turns, mirrored, side = int(rng.integers(4)), bool(rng.integers(2)), hand.shape[1]
    down, right = (int(by) for by in rng.integers(-side // 2, side // 2 + 1, 2))
    inside = (slice(None), slice(max(0, down), side + min(0, down)), slice(max(0, right), side + min(0, right)))
    moved = np.zeros_like(hand)
    moved[inside] = True
    turned = [np.rot90(picture, turns, axes=(1, 2)) for picture in (hand, frames)]
    hand, frames = (np.roll(t[:, :, ::-1] if mirrored else t, (down, right), axis=(1, 2)) for t in turned)
    return hand & moved, frames


def scene(store: FrameStore, video: int, moment: int, remember: bool = True) -> np.ndarray:
    """A frame of a video without its hand, uint8 (S, S, 3): what that hides as it was at another moment.

    What it hides at all moments, and without `remember` all that it hides, is as the nearest pixel that is seen.
    """
    length = int(store.lengths[video])
    around = [moment] + [moment + way * 2**k for k in range(length.bit_length()) for way in (-1, 1) if remember]
    moments = np.array([one for one in around if 0 <= one < length])
    hand, frames = store.hands[video].mask(moments), store.frames(video, moments)
    seen = np.take_along_axis(frames, hand.argmin(0)[None, :, :, None], axis=0)[0]  # at the first without a hand
    never = hand.all(0)
    if never.any() and not never.all():
        rows, columns = distance_transform_edt(never, return_distances=False, return_indices=True)
        seen = seen[rows, columns]
    return seen
