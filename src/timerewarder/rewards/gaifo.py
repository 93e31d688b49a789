"""GAIfO (Torabi et al., 2018): a step is good if an expert could have taken it.

discriminator   logit d(o_t, o_t+1) of two consecutive frames: expert steps against the agent's, learned online
loss            binary cross-entropy + 10 E (|grad d(x)| - 1)^2,    x between an expert step and one of the agent
reward          d(o_t, o_t+1)

The discriminator sees the features of a frozen encoder (rewards/demonstrations.py), not pictures: the demonstrations
are encoded once, and a step of learning costs milliseconds. The gradient, too, is taken with respect to features.
Until the agent has been seen, d is a network with random weights, and its rewards mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.errors import UserError
from timerewarder.rewards.demonstrations import ContrastConfig, ContrastReward, fit_contrast
from timerewarder.rewards.fitting import Sources
from timerewarder.rewards.online import OnlineConfig, OnlineReward, Seen


@dataclass(frozen=True, kw_only=True)
class Config(ContrastConfig, OnlineConfig):
    """Options of GAIfO."""

    hidden: int = 256
    """Hidden units in each of the discriminator's two layers."""
    gradient_penalty: float = 10.0
    """Weight of the gradient penalty; 0 for none."""

    def __post_init__(self) -> None:
        ContrastConfig.__post_init__(self)
        OnlineConfig.__post_init__(self)
        if self.hidden < 1:
            raise UserError(f"--hidden {self.hidden} must be at least 1")
        if not 0 <= self.gradient_penalty < math.inf:
            raise UserError(f"--gradient-penalty {self.gradient_penalty} is not a weight: give 0 or more")


class GAIfO(OnlineReward, ContrastReward):
    method = "gaifo"
    is_value = False
    is_ordered = False
    config: Config

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.discriminator = nn.Sequential(
            nn.Linear(2 * self.window_dim, config.hidden), nn.ReLU(),
            nn.Linear(config.hidden, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1), nn.Flatten(0),
        )  # fmt: skip
        # No part of the fit: distributed training must not wait for its gradients. `learn` turns them on.
        self.discriminator.requires_grad_(False)

    def compare(self, features: Tensor) -> Tensor:
        return F.pad(self.discriminator(torch.cat([features[:-1], features[1:]], dim=1)), (1, 0))

    @property
    def learner(self) -> nn.Sequential:
        return self.discriminator

    def online_loss(self, seen: Seen, rng: np.random.Generator) -> Tensor:
        experts = self.draw_experts(rng, len(seen.after))
        expert, agent = (torch.cat([steps.before, steps.after], dim=1) for steps in (experts, seen))
        high, low = self.discriminator(torch.cat([expert, agent])).chunk(2)
        # The mean of the binary cross-entropies, labels 1 and 0, by their definition.
        loss = (F.softplus(-high).mean() + F.softplus(low).mean()) / 2
        if self.config.gradient_penalty == 0:
            return loss
        share = torch.from_numpy(rng.random(len(expert), dtype=np.float32)).to(expert.device)
        between = torch.lerp(expert, agent, share[:, None])
        return loss + self.config.gradient_penalty * slope_penalty(self.discriminator, between)


def slope_penalty(network: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """Mean (|gradient of `network` at a point| - 1)^2 over points (N, D) (Gulrajani et al., 2017); differentiable."""
    points = points.detach().requires_grad_()
    (slopes,) = torch.autograd.grad(network(points).sum(), points, create_graph=True)
    return (slopes.norm(dim=1) - 1).square().mean()


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> GAIfO:
    """An encoder and the demonstrations' features; the discriminator learns in a training of a policy."""
    return fit_contrast(GAIfO, config, videos, folder, **opening)
