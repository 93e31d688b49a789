"""Single-frame input (paper, appendix "Alternative Temporal Modeling Approaches", 2).

target   t / (T - 1) in [0, 1] of one frame, drawn uniformly; two-hot        reward   V(o_t+1) - V(o_t)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.models.twohot import Support, TwoHot
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames
from timerewarder.rewards.reward import FrameConfig, PotentialReward
from timerewarder.rewards.training import Batch


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig):
    """Options of the single-frame model."""

    frames: int = 32
    """Frames in a batch."""
    bins: int = 20
    """Number of bins K."""
    support: Support = "linear"
    """Spacing of the bins: linear (paper) or signed_sqrt (public release)."""

    def __post_init__(self) -> None:
        if self.frames < 1 or self.bins < 2:
            raise UserError("--frames must be at least 1, --bins at least 2")


class SingleFrame(PotentialReward):
    method = "single-frame"
    config: Config

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.code = TwoHot(config.bins, 0.0, 1.0, config.support)
        self.head = nn.Linear(self.window_dim, self.code.outputs)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss: frames (N, history+1, S, S, 3) and their positions (N,) -> scalar."""
        return self.code.loss(self.head(self.encode_windows(batch["frames"])), batch["position"]).mean()

    def potential(self, features: Tensor) -> Tensor:
        return self.code.decode(self.head(self.windows(features)))


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> SingleFrame:
    """Learn from videos alone. With a `folder` the training logs there and can be resumed from it."""
    return fit_network(SingleFrame, config, videos, sample_positions, folder, **opening)


def sample_positions(reward: SingleFrame, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Frames drawn uniformly, with their place in the video."""
    video = rng.integers(0, len(store), size=reward.config.frames)
    index = rng.integers(0, store.lengths[video])
    position = torch.from_numpy((store.times(video, index) / (store.spans[video] - 1)).astype(np.float32))
    frames = load_frames(store, video, index, reward.config.history)
    return Batch({"frames": frames, "position": position}, describe(store, video, index))
