"""Which pictures a model knows, and a stream of rewards whose sum keeps to what the model sees in them.

A network that has seen successful demonstrations only is sure of itself on any picture. An agent soon finds pictures
that it takes for great progress: the arm held before the camera, the hand out of sight. So frames are compared, as
thumbnails of 12 x 12 pixels, with those of the training videos. With d the distance to the nearest one, in units of the
largest such distance in the validation videos, a frame is known if d <= tolerance.

Between known frames too, a sum of steps drifts: errors of every step add up, and where a policy stands still at the
goal for half an episode, they may add up to more than the task. What the model sees from the first frame on does not
drift. So the progress p of an episode is

    p_t = sum of F(o_k-1, o_k), k <= t, without steps from or to an unknown frame
    p_t = F(o_1, o_t)                                                                  (anchored)

and 0 at an unknown frame: what cannot be seen has not been achieved. The reward of a step is what p gains in it. So
going around in a loop earns nothing, whether it leads out of sight or not, and coming back into sight costs nothing;
and anchored, a step's reward depends on nothing but the two pictures and the first one, as an agent's critic takes for
granted. This is not in the paper. `score` does not use it; the wrappers for reinforcement learning do when asked to.
"""

from __future__ import annotations

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
    """The stream of one episode in which unknown frames count as no progress; `anchored` ones do not drift."""

    def __init__(self, stream: Stream, anchored: bool) -> None:
        self.stream, self.anchored = stream, anchored
        self.features: Tensor | None = None  # of the latest frame, (D,)

    def begin(self, features: Tensor) -> None:
        """Begin an episode at a frame of these features (D,); it is taken for known."""
        self.stream.begin(features)
        self.features = self._first = features
        self._known, self._summed, self._progress = True, 0.0, 0.0

    def arrive(self, features: Tensor, known: bool) -> float:
        """The reward for arriving at a frame of these features (D,)."""
        self.features = features
        step = self.stream.arrive(features)
        if known and self._known:
            self._summed += step
        before, self._progress, self._known = self._progress, 0.0, known
        if known:
            self._progress = self._from_first(features) if self.anchored else self._summed
        return self._progress - before

    @torch.no_grad()
    def _from_first(self, features: Tensor) -> float:
        return float(self.stream.reward.compare(torch.stack([self._first, features]))[-1])
