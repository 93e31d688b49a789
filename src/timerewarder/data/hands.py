"""Where the hand is in a video, without a label: it is what moves first.

A hand, or a robot's arm, has to get to an object before it can move it. So in the first quarter of a video nothing but
the hand moves, and there a camera that stands still shows its outline. From these outlines a small network learns what
the hand looks like, and finds it in all frames, also in those where hand and object move together:

    background  b    = median of the frames of the video's first half, pixel by pixel
    outline     o_t differs from b, in the first quarter
    finder      h    = conv(o_t), 11 x 11 pixels to a yes or no; it knows looks, not places
    hand        m_t  = h > 1/2, smoothed, less what looks like the hand but stands still (a red button, a red arm)
    changed     o_t differs from o_1 outside of both hands: something in the scene is not as it was
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.errors import UserError
from timerewarder.progress import track

if TYPE_CHECKING:
    from timerewarder.data.store import FrameStore

ALONE, BEFORE = 0.25, 0.5  # of a video: where the hand alone moves; where the background is looked for
DIFFERENT = 20  # grey levels, in any colour: more than compression changes
CHANGED = 0.004  # of the picture
SIDE = 84  # pictures of twice that side or more are looked at every other pixel, and so on
VIDEOS, OUTLINES, BACKGROUNDS = 400, 4, 40  # at the most: videos that are learned from, outlines and frames of each
STEPS, BATCH, CROP, RATE = 300, 12, 64, 3e-3
STILL = 0.1  # share of the first half in which a pixel may differ from the background
PART = 64  # frames that are looked at together
FEW, MOST = 0.001, 0.6  # share of the picture that a hand takes, if it is one


@dataclass(frozen=True, eq=False)
class Hand:
    """The hand in one video of T frames, looked for in every so manieth pixel: in s x s of S x S."""

    bits: np.ndarray  # uint8 (T, s, s / 8 rounded up), a bit a pixel
    changed: np.ndarray  # bool (T,), whether the scene is not as it was at first
    size: int  # S
    every: int

    @property
    def touched(self) -> int:
        """The first moment at which it has changed; after the last one if it never has."""
        return int(self.changed.argmax()) if self.changed.any() else len(self.changed)

    def mask(self, moments: np.ndarray) -> np.ndarray:
        """Where it is at these moments: bool (N, S, S)."""
        bits = self.bits[moments]
        found = np.unpackbits(bits, axis=-1, count=bits.shape[1]).astype(bool)
        return found.repeat(self.every, 1).repeat(self.every, 2)[:, : self.size, : self.size]


def find_hands(store: FrameStore, seed: int = 0) -> FrameStore:
    """The same videos, with the hand found in each frame."""
    every = max(1, store.size // SIDE)
    finder = _learn(*_outlines(store, every), seed)
    videos = track(range(len(store)), "Finding the hand")
    return replace(store, hands=tuple(_found(finder, store, video, every) for video in videos))


def different(frames: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Where pictures differ, both (..., S, S, 3) -> bool (..., S, S)."""
    return np.abs(frames.astype(np.int16) - others.astype(np.int16)).max(-1) > DIFFERENT


def _outlines(store: FrameStore, every: int) -> tuple[Tensor, Tensor]:
    """Frames of the first quarters float (N, 3, s, s), and what moves in them, float (N, s, s)."""
    frames, moving = [], []
    for video in np.unique(np.linspace(0, len(store) - 1, min(len(store), VIDEOS)).astype(int)):
        frames.append(_some(store, video, ALONE, OUTLINES, every))
        moving.append(different(frames[-1], _background(store, video, every)))
    outlines = np.concatenate(moving)
    share = float(np.median(outlines.mean((1, 2))))
    if not FEW < share < MOST:
        why = "nothing" if share <= FEW else "nearly the whole picture"
        raise UserError(
            f"{why} moves in the first quarter of the videos, so that no hand can be told from what it moves: "
            "composites need a camera that stands still and a hand that comes first; leave out --composites"
        )
    return _floats(np.concatenate(frames)), torch.from_numpy(outlines).float()


def _background(store: FrameStore, video: int, every: int) -> np.ndarray:
    """What stands still in a video's first half, (s, s, 3)."""
    return np.median(_some(store, video, BEFORE, BACKGROUNDS, every), axis=0)


def _some(store: FrameStore, video: int, share: float, most: int, every: int) -> np.ndarray:
    """Frames of a video's first part, evenly spaced, uint8 (N, s, s, 3)."""
    last = max(2, int(store.lengths[video] * share)) - 1
    return store.frames(video, np.unique(np.linspace(0, last, most).astype(int)))[:, ::every, ::every]


def _learn(frames: Tensor, moving: Tensor, seed: int) -> nn.Module:
    """A network that tells pixels that move in these frames from others by what is around them."""
    rng, crop = np.random.default_rng(seed), min(CROP, frames.shape[-1])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        finder = _finder()
    optimizer = torch.optim.Adam(finder.parameters(), RATE)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    weight = ((1 - moving.mean()) / moving.mean()).clamp(1, 10)
    for _ in track(range(STEPS), "Learning the hand"):
        rows = torch.from_numpy(rng.integers(0, len(frames), BATCH))
        top, left = rng.integers(0, frames.shape[-1] - crop + 1, 2)
        here = (..., slice(top, top + crop), slice(left, left + crop))
        logits = finder(frames[rows][here])[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits, moving[rows][here], pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
    return finder


def _finder(width: int = 16) -> nn.Module:
    """Pictures (N, 3, s, s) -> logits (N, 1, s, s)."""

    def conv(channels: int, apart: int) -> nn.Conv2d:
        return nn.Conv2d(channels, width, 3, padding=apart, dilation=apart, padding_mode="replicate")

    layers = [conv(3, 1), nn.ReLU(), conv(width, 2), nn.ReLU(), conv(width, 2), nn.ReLU(), nn.Conv2d(width, 1, 1)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@torch.no_grad()
def _found(finder: nn.Module, store: FrameStore, video: int, every: int) -> Hand:
    bits, changed, background = [], [], _background(store, video, every)
    still = different(_some(store, video, BEFORE, BACKGROUNDS, every), background).mean(0) < STILL
    for begin in range(0, int(store.lengths[video]), PART):
        frames = store.frames(video, np.arange(begin, min(begin + PART, store.lengths[video])))[:, ::every, ::every]
        hand = _mask(finder, frames, ~still | different(frames, background))
        if begin == 0:
            first, first_hand = frames[0], hand[0]
        share = (different(frames, first) & ~hand & ~first_hand).mean((1, 2))
        bits.append(np.packbits(hand, axis=-1))
        changed.append(share > CHANGED)
    return Hand(np.concatenate(bits), np.concatenate(changed), store.size, every)


def _mask(finder: nn.Module, frames: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """uint8 (N, s, s, 3), bool (N, s, s) -> (N, s, s): what most of nine pixels say, and one pixel more all around."""
    yes = ((finder(_floats(frames)) > 0)[:, 0] & torch.from_numpy(moved)).float()[:, None]
    most = (F.avg_pool2d(yes, 3, 1, 1, count_include_pad=False) > 0.5).float()
    return (F.max_pool2d(most, 3, 1, 1) > 0)[:, 0].numpy()


def _floats(frames: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2).float().div_(255).sub_(0.5)
