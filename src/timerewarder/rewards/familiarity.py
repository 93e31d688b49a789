"""Which pictures a model knows, and a stream of rewards that keeps to what the model sees in them.

A network that has seen successful demonstrations only is sure of itself on any picture. An agent soon finds pictures
that it takes for great progress: the arm held before the camera, the hand out of sight. So frames are compared, as
thumbnails of 12 x 12 pixels, with those of the training videos. With d the distance to the nearest one, in units of the
largest such distance in the validation videos, a frame is known if d <= tolerance.

Between known frames too, a sum of steps drifts: errors of every step add up, and where a policy stands still at the
goal for half an episode, they may add up to more than the task. What the model sees from the first frame on does not
drift. So progress p of an episode is the sum of steps, drawn at every known frame towards that view, as in a
complementary filter:

    p_t = (1 - anchor) (p_t-1 + F(o_t-1, o_t)) + anchor F(o_1, o_t)

with steps F within a limit either way, and no step from or to an unknown frame. The reward of a step is what p has
gained on what was paid so far, within the limit, and at an unknown frame p counts as 0: what cannot be seen has not
been achieved. So what is paid in an episode follows p: going around in a loop earns nothing, whether it leads out of
sight or not, and coming back into sight costs nothing. This is not in the paper. `score` does not use it; the wrappers
for reinforcement learning do when asked to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from timerewarder.data.store import FrameStore

if TYPE_CHECKING:
    from timerewarder.rewards.reward import Stream

SIDE = 12
MOST = 5_000  # thumbnails that are kept, evenly over the videos


class Familiarity(nn.Module):
    """Empty until `learn`; an empty one finds everything familiar."""

    thumbnails: Tensor
    reach: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("thumbnails", torch.zeros(0, 3 * SIDE * SIDE, dtype=torch.uint8))
        self.register_buffer("reach", torch.tensor(1.0))
        self._known: tuple[Tensor, Tensor] | None = None  # thumbnails and their squared norms as floats

    def learn(self, training: FrameStore, validation: FrameStore) -> None:
        """Remember the training videos, and take the measure of what is familiar from the validation videos.

        Without any to validate on, every training video is measured against the others; one alone teaches nothing.
        """
        if len(training) < 2 and not len(validation):
            return
        every = max(1, -(-int(training.lengths.sum()) // MOST))
        kept = [
            thumbnails(training.frames(video, np.arange(0, length, every)))
            for video, length in enumerate(training.lengths)
        ]
        self.thumbnails = torch.cat(kept).round().to(torch.uint8)
        self._known = None
        if len(validation):
            seen = [
                self._nearest(thumbnails(validation.frames(video, np.arange(length))))
                for video, length in enumerate(validation.lengths)
            ]
        else:
            seen = [
                torch.cdist(own, torch.cat(kept[:video] + kept[video + 1 :])).amin(1) for video, own in enumerate(kept)
            ]
        self.reach = torch.cat(seen).amax().clamp_min(1.0)

    @torch.no_grad()
    def forward(self, frames: np.ndarray, tolerance: float) -> np.ndarray:
        """uint8 (T, H, W, 3) -> whether each frame is known, bool (T,)."""
        if not len(self.thumbnails):
            return np.ones(len(frames), np.bool_)
        distance = self._nearest(thumbnails(frames).to(self.reach.device))
        return (distance <= tolerance * self.reach).cpu().numpy()

    def _nearest(self, own: Tensor) -> Tensor:
        """Thumbnails (T, D) -> distance of each to the nearest known one, (T,)."""
        if self._known is None:
            known = self.thumbnails.float()
            self._known = known, known.square().sum(1)
        known, norms = self._known
        squares = own.square().sum(1)[:, None] + norms - 2 * own @ known.T
        return squares.amin(1).clamp_min(0).sqrt()


def thumbnails(frames: np.ndarray) -> Tensor:
    """uint8 (T, H, W, 3) -> float32 (T, 3 * SIDE * SIDE), 0 to 255."""
    pictures = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2).float()
    return adaptive_avg_pool2d(pictures, SIDE).flatten(1)


class Guarded:
    """The stream of one episode in which unknown frames count as no progress, and no step as more than `limit`."""

    def __init__(self, stream: Stream, limit: float | None, anchor: float) -> None:
        self.stream, self.limit, self.anchor = stream, math.inf if limit is None else limit, anchor
        self.features: Tensor | None = None  # of the latest frame, (D,)

    def begin(self, features: Tensor) -> None:
        """Begin an episode at a frame of these features (D,); it is taken for known."""
        self.stream.begin(features)
        self.features = self._first = features
        self._known, self._progress, self._paid = True, 0.0, 0.0

    def arrive(self, features: Tensor, known: bool) -> float:
        """The reward for arriving at a frame of these features (D,)."""
        self.features = features
        step = self.stream.arrive(features)
        if known:
            summed = self._progress + (self._within_limit(step) if self._known else 0.0)
            self._progress = summed + self.anchor * (self._from_first(features) - summed) if self.anchor else summed
        self._known = known
        reward = self._within_limit((self._progress if known else 0.0) - self._paid)
        self._paid += reward
        return reward

    def _within_limit(self, gain: float) -> float:
        return max(-self.limit, min(gain, self.limit))

    @torch.no_grad()
    def _from_first(self, features: Tensor) -> float:
        return float(self.stream.reward.compare(torch.stack([self._first, features]))[-1])
