"""Rewards of which a part goes on learning from what the agent does.

The encoder stays as it was fitted; what learns online is a small network on its features (`learner`). During a training
of a policy the loop keeps the features of every frame, lets the reward take some steps after every episode, and now
and then rewards the whole past anew. In a loop of one's own, `observe(frames, rng)` after every episode does the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from timerewarder.errors import UserError
from timerewarder.models.checkpoint import optimizer_tensors, restore_optimizer
from timerewarder.rewards.demonstrations import DemonstrationReward
from timerewarder.rewards.reward import FrameConfig, FrameReward


@dataclass(frozen=True, kw_only=True)
class OnlineConfig(FrameConfig):
    """Options of every method that goes on learning."""

    online_updates: int = 20
    """Steps that the reward learns after each episode of the agent."""
    online_batch: int = 128
    """Frames of the agent, and as many of the demonstrations, in each of these steps."""
    online_lr: float = 1e-4
    """Learning rate in them."""

    def __post_init__(self) -> None:
        if self.online_updates < 0 or self.online_batch < 1:
            raise UserError("--online-updates must be 0 or more, --online-batch at least 1")
        if not 0 < self.online_lr < math.inf:
            raise UserError(f"--online-lr {self.online_lr} must be a number above 0")


class Seen(NamedTuple):
    """Features of what the agent saw: two consecutive frames and the first frame of their episode, (N, D) each."""

    first: Tensor
    before: Tensor
    after: Tensor


class OnlineReward(DemonstrationReward):
    """A reward with a part that learns; its configuration derives from OnlineConfig."""

    # A method gives these two ...

    @property
    def learner(self) -> nn.Module:
        """The part that learns online."""
        raise NotImplementedError

    def online_loss(self, seen: Seen, rng: np.random.Generator) -> Tensor:
        """The loss of a batch of what the agent saw, beside demonstrations drawn with `rng`."""
        raise NotImplementedError

    # ... and gets the rest.

    def __init__(self, config: Any, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        if self.history:
            raise UserError(f"--history does not fit {self.method}, which goes on learning from single frames: give 0")
        self._optimizer: torch.optim.Optimizer | None = None

    def observe(self, frames: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
        """Learn from an episode of the agent, uint8 (T, H, W, 3)."""
        features = self.encode(frames)
        if len(features) < 2:
            raise UserError("an episode of one frame shows no step: give observe() at least two frames")

        def draw(rng: np.random.Generator, count: int) -> Seen:
            later = torch.from_numpy(rng.integers(1, len(features), size=count))
            return Seen(features[:1].expand(count, -1), features[later - 1], features[later])

        return self.learn(draw, rng)

    def learn(self, draw: Callable[[np.random.Generator, int], Seen], rng: np.random.Generator) -> dict[str, float]:
        """Take `online_updates` steps on batches that `draw(rng, count)` gives; returns the mean loss."""
        optimizer = self._online_optimizer()
        losses = []
        self.learner.train().requires_grad_()
        for _ in range(self.config.online_updates):
            loss = self.online_loss(draw(rng, self.config.online_batch), rng)
            if not torch.isfinite(loss):
                raise UserError(f"the online loss of {self.method} is {float(loss.detach())}: lower --online-lr")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        self.learner.eval()
        return {"reward_loss": float(torch.stack(losses).mean())} if losses else {}

    def draw_experts(self, rng: np.random.Generator, count: int) -> Seen:
        """The same from the demonstrations, every frame but the first ones as likely as any other."""
        ends = self.lengths.cumsum(0)
        starts = ends - self.lengths
        steps = (self.lengths - 1).cumsum(0)
        drawn = torch.from_numpy(rng.integers(0, int(steps[-1]), size=count)).to(steps.device)
        video = torch.searchsorted(steps, drawn, right=True)
        later = starts[video] + 1 + drawn - (steps - (self.lengths - 1))[video]
        return Seen(*(self.demonstrations[rows] for rows in (starts[video], later - 1, later)))

    def online_state(self) -> dict[str, Tensor]:
        tensors = {f"learner.{name}": tensor for name, tensor in self.learner.state_dict().items()}
        tensors |= optimizer_tensors(self._online_optimizer(), "optimizer")
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def restore_online(self, tensors: dict[str, Tensor]) -> None:
        own = {n.removeprefix("learner."): t for n, t in tensors.items() if n.startswith("learner.")}
        self.learner.load_state_dict(own)
        restore_optimizer(self._online_optimizer(), tensors, "optimizer")

    def _online_optimizer(self) -> torch.optim.Optimizer:
        if self._optimizer is None:
            self._optimizer = torch.optim.Adam(self.learner.parameters(), lr=self.config.online_lr)
        return self._optimizer


def by_episode(reward: FrameReward) -> bool:
    """Whether a training rewards whole episodes in its loop, not steps where they are simulated."""
    return not reward.streams or isinstance(reward, OnlineReward)
