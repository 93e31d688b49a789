"""What OT, ADS, TemporalOT and ORCA share: an episode is matched with every demonstration; the best match rewards it.

    C_ij = 1 - cos(f(o_i), f(o_j))        o_i of the episode, o_j of a demonstration; f is frozen

A method turns the costs into the rewards of the episode's frames, for each demonstration (`match`); those of the
demonstration with the largest sum are given, times a factor that the agent's first episode sets. The first frame has
its part in the match and in the choice, but it is not arrived at: its reward is 0.

Demonstrations differ in length, and all are matched at once: a shorter one is padded by repeating its last frame, and
`real` says which columns count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards.demonstrations import ContrastConfig, ContrastReward

LEAST_SUM = 1e-5  # of an episode's rewards: less is a match as exact as the features are, and sets no scale of its own


@dataclass(frozen=True, kw_only=True)
class MatchingConfig(ContrastConfig):
    """Options of methods that match episodes with demonstrations."""

    max_demos: int = 0
    """Demonstrations that an episode is matched with, spread evenly over those given; 0 for all."""
    episode_sum: float = 10.0
    """Size of the sum of rewards to which the agent's first episode is scaled; 0 for no scaling."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_demos < 0 or self.episode_sum < 0:
            raise UserError("--max-demos and --episode-sum must not be negative: give 0 for all, and for no scaling")


class Costs(NamedTuple):
    """Costs of an episode of T frames against N demonstrations, of which the longest has L frames."""

    values: Tensor  # float64 (N, T, L), on the CPU
    lengths: Tensor  # int64 (N,), of each demonstration

    @property
    def real(self) -> Tensor:
        """bool (N, L): which columns are frames of the demonstration, not padding."""
        return torch.arange(self.values.shape[2]) < self.lengths[:, None]


class MatchingReward(ContrastReward):
    """Rewards whole episodes. A method gives `match`."""

    is_value: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    config: MatchingConfig
    factor: Tensor  # what rewards are multiplied with

    def __init__(self, config: MatchingConfig, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.register_buffer("factor", torch.ones(()))

    def match(self, costs: Costs) -> Tensor:
        """The rewards (N, T) of an episode's frames by each of the demonstrations."""
        raise NotImplementedError

    def compare(self, features: Tensor) -> Tensor:
        """Features of an episode (T, D) -> rewards (T,) by its best match; entry 0 is 0: it is not arrived at."""
        matches = self.match(self.costs(self.windows(features)))
        best = float(self.factor) * matches[matches.sum(1).argmax()]
        best[0] = 0
        return best.to(features.device, torch.float32)

    def costs(self, windows: Tensor) -> Costs:
        """Of an episode's frames with their past (T, W)."""
        return cosine_costs(windows, self.demonstrations, self.lengths)

    def remember(self, store: FrameStore) -> None:
        """Keep the features of these videos, or of `max_demos` of them, scaled to unit length."""
        count = min(self.config.max_demos or len(store), len(store))
        super().remember(store.subset(np.linspace(0, len(store) - 1, count).round().astype(np.int64)))
        self.demonstrations = F.normalize(self.demonstrations, dim=1)

    @torch.no_grad()
    def first_episode(self, features: Tensor) -> None:
        self.factor.fill_(1)
        total = float(self.compare(features).double().sum().abs())
        if self.config.episode_sum > 0 and total > 0:
            self.factor.fill_(self.config.episode_sum / max(total, LEAST_SUM))

    def online_state(self) -> dict[str, Tensor]:
        return {"factor": self.factor.clone()}

    def restore_online(self, tensors: dict[str, Tensor]) -> None:
        self.factor.copy_(tensors["factor"])


def cosine_costs(windows: Tensor, demonstrations: Tensor, lengths: Tensor) -> Costs:
    """1 - cosine of an episode's frames (T, W) and those of all demonstrations, one after the other, of unit length.

    In float64, because costs are divided by small numbers; on the CPU, because not every accelerator has float64.
    """
    cosines = F.normalize(windows, dim=1) @ demonstrations.T
    lengths = lengths.cpu()
    frames = torch.minimum(torch.arange(int(lengths.max())), lengths[:, None] - 1)
    frames += (lengths.cumsum(0) - lengths)[:, None]
    values = (1 - cosines.cpu().double()).clamp_(min=0)
    return Costs(values[:, frames].transpose(0, 1).contiguous(), lengths)
