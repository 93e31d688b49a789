"""Which pictures a model knows, and a stream of rewards that passes over the others.

A network that has seen successful demonstrations only is sure of itself on any picture. An agent soon finds pictures
that it takes for great progress: the arm held before the camera, the hand out of sight. So frames are compared, as
thumbnails of 12 x 12 pixels, with those of the training videos. With d the distance to the nearest one, in units of the
largest such distance in the validation videos,

    known     d <= 1.25
    reward    0 for arriving at an unknown frame; for arriving at a known one, the distance from the last known one

so that what happens out of the model's sight is worth nothing, and coming back into it elsewhere is worth what was
gained or lost meanwhile: as far as the model's distances add up, going around in a loop earns nothing. This is not in
the paper. `score` does not use it; the wrappers for reinforcement learning do when asked to.
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
TOLERANCE = 1.25  # times the largest distance of the validation videos


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
        self.load({"thumbnails": torch.cat(kept).round().to(torch.uint8)})
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
    def forward(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (T, H, W, 3) -> whether each frame is known, bool (T,)."""
        if not len(self.thumbnails):
            return np.ones(len(frames), np.bool_)
        distance = self._nearest(thumbnails(frames).to(self.reach.device))
        return (distance <= TOLERANCE * self.reach).cpu().numpy()

    def _nearest(self, own: Tensor) -> Tensor:
        """Thumbnails (T, D) -> distance of each to the nearest known one, (T,)."""
        if self._known is None:
            known = self.thumbnails.float()
            self._known = known, known.square().sum(1)
        known, norms = self._known
        squares = own.square().sum(1)[:, None] + norms - 2 * own @ known.T
        return squares.amin(1).clamp_min(0).sqrt()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over saved buffers, of whatever size; without any it stays empty."""
        self.thumbnails = tensors.get("thumbnails", self.thumbnails)
        self.reach = tensors.get("reach", self.reach)
        self._known = None


def thumbnails(frames: np.ndarray) -> Tensor:
    """uint8 (T, H, W, 3) -> float32 (T, 3 * SIDE * SIDE), 0 to 255."""
    pictures = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2).float()
    return adaptive_avg_pool2d(pictures, SIDE).flatten(1)


class Guarded:
    """The stream of one episode, passing over unknown frames; nothing gains more than `limit`, losses count in full."""

    def __init__(self, stream: Stream, limit: float | None) -> None:
        self.stream, self.limit = stream, limit
        self.features: Tensor | None = None  # of the latest frame, (D,)

    def begin(self, features: Tensor) -> None:
        """Begin an episode at a frame of these features (D,), known or not."""
        self.stream.begin(features)
        self.features = features

    def arrive(self, features: Tensor, known: bool) -> float:
        """The reward for arriving at a frame of these features (D,)."""
        self.features = features
        if not known:
            return 0.0
        reward = self.stream.arrive(features)
        return reward if self.limit is None else min(reward, self.limit)
