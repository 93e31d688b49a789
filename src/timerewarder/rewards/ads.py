"""ADS, automatic discount scheduling (Liu et al., 2024): OT's reward, and a discount that grows with what is mastered.

discount   gamma = 0.2^(1/k): the agent looks k frames ahead. k begins at 0.2 H
schedule   at each evaluation, up to five times: k grows by 1, up to H, if

               90th percentile of M_k over episodes x demonstrations >= 0.9 x median of M_k over pairs of demonstrations

           M_k = length of the longest increasing subsequence of argmin_j C[:k, :k], the frames of a demonstration that
           are nearest to the first k frames of an episode: how far the episode follows the demonstration

H is the length of the agent's first episode; before there is one, the median length of the demonstrations. Where an
episode or a demonstration has fewer than k frames, C[:k, :k] is as much of it as there is. The pairs are all ordered
pairs of two different demonstrations; a single one is compared with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards import ot
from timerewarder.rewards.demonstrations import fit_contrast
from timerewarder.rewards.fitting import Sources
from timerewarder.rewards.matching import cosine_costs


@dataclass(frozen=True, kw_only=True)
class Config(ot.Config):
    """Options of ADS."""

    k_start: float = 0.2
    """Where k begins, as a share of an episode's length."""
    k_weight: float = 0.2
    """What a reward k frames ahead counts: the discount is this to the power of 1/k."""
    k_percentile: float = 90.0
    """Percentile over episodes and demonstrations that must have mastered the first k frames."""
    k_threshold: float = 0.9
    """Share of the demonstrations' own score that counts as mastered."""
    k_steps: int = 5
    """How often k may grow at an evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.k_start <= 1 or not 0 < self.k_weight < 1 or not self.k_threshold >= 0:
            raise UserError("--k-start, --k-weight and --k-threshold are shares: give numbers from 0 to 1")
        if not 0 <= self.k_percentile <= 100 or self.k_steps < 0:
            raise UserError("--k-percentile must be from 0 to 100, --k-steps at least 0")


class ADS(ot.OT):
    method = "ads"
    config: Config
    k: Tensor  # int64 ()
    horizon: Tensor  # int64 (), H

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.register_buffer("k", torch.ones((), dtype=torch.int64))
        self.register_buffer("horizon", torch.ones((), dtype=torch.int64))

    @property
    def discount(self) -> float:
        return float(self.config.k_weight ** (1 / int(self.k)))

    def remember(self, store: FrameStore) -> None:
        super().remember(store)
        self.begin(int(self.lengths.median()))

    def first_episode(self, features: Tensor) -> None:
        super().first_episode(features)
        self.begin(len(features))

    def begin(self, horizon: int) -> None:
        """Start the schedule for episodes of `horizon` frames."""
        self.horizon.fill_(horizon)
        self.k.fill_(max(1, int(self.config.k_start * horizon)))

    def evaluated(self, episodes: Sequence[Tensor]) -> dict[str, float]:
        seen = [self.windows(features) for features in episodes]
        for _ in range(self.config.k_steps):
            k = int(self.k)
            if k >= int(self.horizon):
                break
            reached = np.percentile(self.followed(seen, k), self.config.k_percentile)
            if reached < self.config.k_threshold * self.expert_score(k):
                break
            self.k += 1
        return {"ads_k": int(self.k), "discount": self.discount}

    @torch.no_grad()
    def followed(self, seen: Iterable[Tensor], k: int) -> np.ndarray:
        """M_k of episodes (T, W) against every demonstration, (episodes, N)."""
        heads = torch.cat([expert[:k] for expert in self.experts])
        scores = []
        for windows in seen:
            costs = cosine_costs(windows[:k], heads, self.lengths.clamp(max=k))
            nearest = costs.values.masked_fill(~costs.real[:, None], torch.inf).argmin(2)
            scores.append(longest_increasing(nearest.numpy()))
        return np.stack(scores)

    def expert_score(self, k: int) -> float:
        """The median M_k of demonstrations against each other."""
        scores = self.followed(self.experts, k)
        others = ~np.eye(len(scores), dtype=bool)
        return float(np.median(scores[others] if len(scores) > 1 else scores))

    def online_state(self) -> dict[str, Tensor]:
        return {**super().online_state(), "k": self.k.clone(), "horizon": self.horizon.clone()}

    def restore_online(self, tensors: dict[str, Tensor]) -> None:
        super().restore_online(tensors)
        self.k.copy_(tensors["k"])
        self.horizon.copy_(tensors["horizon"])


def longest_increasing(sequences: np.ndarray) -> np.ndarray:
    """How long the longest strictly increasing subsequence of each row is: int (B, K) -> (B,)."""
    endless = np.iinfo(np.int64).max
    tails = np.full(sequences.shape, endless)  # [b, l]: the least end of an increasing subsequence of l + 1 numbers
    rows = np.arange(len(sequences))
    for numbers in sequences.T:
        tails[rows, (tails < numbers[:, None]).sum(1)] = numbers
    return (tails < endless).sum(1)


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> ADS:
    """Keep the demonstrations' features. With a `folder` the encoder's training logs there and can be resumed."""
    ot.pot()  # before anything takes time
    return fit_contrast(ADS, config, videos, folder, **opening)
