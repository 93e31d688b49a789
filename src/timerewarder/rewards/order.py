"""Order prediction (paper, appendix "Alternative Temporal Modeling Approaches", 3; after GVL).

    target   n = 32 frames drawn evenly from a video, shuffled; each is classified into its place 0..n-1
    value    the expected place, scaled to [-1, 1]                            reward   V(o_t+1) - V(o_t)

The classifier sees one frame at a time, as in the paper ("a frame-wise classifier for permutation indices"), so the
shuffle decides only the order in which a clip's frames are listed. A distance is half a difference of values: values
span [-1, 1] over a task, distances [-1, 1] between its ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames
from timerewarder.rewards.reward import FrameConfig, PotentialReward
from timerewarder.rewards.training import Batch


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig):
    """Options of order prediction."""

    places: int = 32
    """Frames drawn from a video, and classes."""

    def __post_init__(self) -> None:
        if self.places < 2:
            raise UserError("--places must be at least 2")


class OrderPrediction(PotentialReward):
    method = "order"
    config: Config
    places: Tensor

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.head = nn.Linear(self.window_dim, config.places)
        self.register_buffer("places", torch.linspace(-1, 1, config.places), persistent=False)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss: frames (N, history+1, S, S, 3) and their places (N,) -> scalar."""
        return F.cross_entropy(self.head(self.encode_windows(batch["frames"])).float(), batch["place"])

    def potential(self, features: Tensor) -> Tensor:
        return self.head(self.windows(features)).float().softmax(-1) @ self.places

    @property
    def scale(self) -> float:
        return 2.0  # places are scaled to [-1, 1]

    def distances(self, features: Tensor) -> Tensor:
        return super().distances(features) / 2


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> OrderPrediction:
    """Learn from videos alone. With a `folder` the training logs there and can be resumed from it."""
    return fit_network(OrderPrediction, config, videos, sample_shuffled, folder, **opening)


def sample_shuffled(reward: OrderPrediction, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Evenly drawn frames of one video, shuffled; a video shorter than `places` repeats frames."""
    video = int(rng.integers(0, len(store)))
    place = rng.permutation(reward.config.places)
    index = np.round(place * (store.spans[video] - 1) / (reward.config.places - 1)).astype(np.int64)
    videos = np.full_like(index, video)
    frames = load_frames(store, videos, index, reward.config.history)
    return Batch({"frames": frames, "place": torch.from_numpy(place)}, describe(store, videos, index))
