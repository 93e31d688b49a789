"""Rewards that know demonstrations, made from features at hand instead of videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from timerewarder.rewards import METHODS
from timerewarder.rewards.matching import MatchingReward


def demonstrated(method: str, demonstrations: Sequence[Tensor], **options: Any) -> MatchingReward:
    """A reward whose demonstrations have these features, (T, D) each."""
    entry = METHODS[method]
    reward = entry.reward(entry.config(image_size=32, **options)).eval()
    assert isinstance(reward, MatchingReward)
    reward.demonstrations = F.normalize(torch.cat(list(demonstrations)), dim=1)
    reward.lengths = torch.tensor([len(features) for features in demonstrations])
    return reward


def walk(seed: int, frames: int, dim: int = 6) -> Tensor:
    """Features (frames, dim) that drift from a place of their own along one direction."""
    rng = np.random.default_rng(seed)
    start, way = rng.normal(size=(2, dim))
    noise = 0.1 * rng.normal(size=(frames, dim))
    return torch.from_numpy(start + np.linspace(0, 2, frames)[:, None] * way + noise).float()
