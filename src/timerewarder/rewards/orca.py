"""ORCA, ordered coverage alignment (Huey et al., 2025): has everything been seen, in order?

p_ij = exp(-C_ij / tau)                           frame i of the episode shows frame j of the demonstration; C = 1 - cos
A_ij = max(A_i-1,j , A_i,j-1 p_ij)                frames 0..j have been covered in order by time i
       with A_i,-1 = 1, A_-1,j = 0
r_i  = A_i,last-1 p_i,last                        all before the last one have been covered, and the last one is shown

by the demonstration with the largest sum. With S_ij = sum of C_i0..C_ij / tau, a row of the table follows from the one
above it by a running maximum, for all demonstrations at once:

    log A_ij = max(0, max_m<=j (log A_i-1,m + S_im)) - S_ij
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from timerewarder.errors import UserError
from timerewarder.rewards.demonstrations import fit_contrast
from timerewarder.rewards.fitting import Sources
from timerewarder.rewards.matching import Costs, MatchingConfig, MatchingReward


@dataclass(frozen=True, kw_only=True)
class Config(MatchingConfig):
    """Options of ORCA."""

    episode_sum: float = 0.0
    """Size of the sum of rewards to which the agent's first episode is scaled (public release: 10); 0 for none."""
    tau: float = 1.0
    """Temperature of the costs: the larger, the sooner a frame counts as shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tau > 0:
            raise UserError(f"--tau {self.tau} must be more than 0")


class ORCA(MatchingReward):
    method = "orca"
    config: Config

    def match(self, costs: Costs) -> Tensor:
        return coverage(costs._replace(values=costs.values / self.config.tau))


def coverage(costs: Costs) -> Tensor:
    """Rewards (N, T): that a demonstration's frames have been covered in order and its last one is shown."""
    values, lengths = costs
    sums = values.cumsum(2)
    before = values.new_zeros(len(values), 1)  # the logarithm of A_i,-1
    covered = torch.full_like(values[:, 0], -torch.inf)  # log A_i-1
    last = lengths[:, None] - 1
    rewards = []
    for cost, total in zip(values.unbind(1), sums.unbind(1), strict=True):
        covered = torch.cat([before, covered + total], 1).cummax(1).values[:, 1:] - total
        rewards.append(torch.cat([before, covered], 1).gather(1, last) - cost.gather(1, last))
    return torch.cat(rewards, 1).exp()


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> ORCA:
    """Keep the demonstrations' features. With a `folder` the encoder's training logs there and can be resumed."""
    return fit_contrast(ORCA, config, videos, folder, **opening)
