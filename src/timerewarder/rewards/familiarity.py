"""How much a picture is like those of the training videos, and so how much a model's word on it counts.

A network that has seen successful demonstrations only is sure of itself on any picture. An agent soon finds pictures
that it takes for great progress: the arm held before the camera, the hand out of sight. So frames are compared, as
thumbnails of 12 x 12 pixels, with those of the training videos; d is the distance to the nearest one, in units of the
largest such distance in the validation videos:

    weight   1 where d <= 1,  falling to 0 at d = 1.5;  of gains only, see Guard

This is not in the paper. `score` does not use it; the wrappers for reinforcement learning do when asked to.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from timerewarder.data.store import FrameStore

SIDE = 12
MOST = 5_000  # thumbnails that are kept, evenly over the videos
FADE = 0.5  # from familiar to unknown, in units of d


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
        """uint8 (T, H, W, 3) -> weights float32 (T,) in [0, 1]."""
        if not len(self.thumbnails):
            return np.ones(len(frames), np.float32)
        distance = self._nearest(thumbnails(frames).to(self.reach.device)) / self.reach
        return (1 - (distance - 1) / FADE).clamp(0, 1).cpu().numpy()

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


class Guard:
    """What keeps an agent from being paid for pictures that the model does not know: weights, and a limit on a step.

    Losses count in full. If they faded too, an agent would go forward in sight and come back out of sight, for a gain
    each time around.
    """

    def __init__(
        self, familiarity: Familiarity, limit: float | None, seen_as: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self.familiarity, self.limit, self._seen_as = familiarity, limit, seen_as

    def weights(self, frames: np.ndarray) -> np.ndarray:
        """Frames uint8 (T, H, W, 3) as the environment draws them -> weights float32 (T,)."""
        return self.familiarity(self._seen_as(frames))

    def __call__(self, learned: float, before: float, after: float) -> float:
        """The reward of a step between frames of these weights."""
        if learned <= 0:
            return learned
        gain = learned * min(before, after)
        return gain if self.limit is None else min(gain, self.limit)
