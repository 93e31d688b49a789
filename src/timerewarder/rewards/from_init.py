"""Only from init (paper, appendix "Alternative Temporal Modeling Approaches", 1).

target   d_1t = (t - 1) / (T - 1) in [0, 1]: the first frame of the pair is the video's first, the interval drawn
         with P proportional to 1/interval; two-hot                      reward   F(o_1, o_t+1) - F(o_1, o_t)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from timerewarder.data.pairs import Sampling, pair_law
from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.models.twohot import Support, TwoHot
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames
from timerewarder.rewards.reward import FrameConfig, PotentialReward
from timerewarder.rewards.training import Batch


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig):
    """Options of the model that measures from the first frame only."""

    pairs: int = 16
    """Pairs in a batch; each costs two encoded frames."""
    sampling: Sampling = "inverse"
    """Law of the interval: inverse (1/interval) or uniform."""
    bins: int = 20
    """Number of bins K."""
    support: Support = "linear"
    """Spacing of the bins: linear (paper) or signed_sqrt (public release)."""

    def __post_init__(self) -> None:
        if self.pairs < 1 or self.bins < 2:
            raise UserError("--pairs must be at least 1, --bins at least 2")


class FromInit(PotentialReward):
    method = "from-init"
    config: Config

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.code = TwoHot(config.bins, 0.0, 1.0, config.support)
        self.head = nn.Linear(2 * self.window_dim, self.code.outputs)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss: frames (2P, history+1, S, S, 3), first frames and later ones in turn, positions (P,) -> scalar."""
        pairs = self.encode_windows(batch["frames"]).unflatten(0, (-1, 2)).flatten(1)
        return self.code.loss(self.head(pairs), batch["position"]).mean()

    def potential(self, features: Tensor) -> Tensor:
        windows = self.windows(features)
        return self.code.decode(self.head(torch.cat([windows[:1].expand_as(windows), windows], -1)))


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> FromInit:
    """Learn from videos alone. With a `folder` the training logs there and can be resumed from it."""
    return fit_network(FromInit, config, videos, sample_from_first, folder, **opening)


def sample_from_first(reward: FromInit, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Pairs of a video's first frame and a later one."""
    config = reward.config
    video = rng.integers(0, len(store), size=config.pairs)
    lengths = store.lengths[video]
    later = np.array([rng.choice(length, p=pair_law(int(length), config.sampling).interval) for length in lengths])
    both, index = np.repeat(video, 2), np.stack([np.zeros_like(later), later], 1).ravel()
    position = torch.from_numpy((store.times(video, later) / (store.spans[video] - 1)).astype(np.float32))
    frames = load_frames(store, both, index, config.history)
    return Batch({"frames": frames, "position": position}, describe(store, both, index))
