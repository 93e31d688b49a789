"""VIP (Ma et al., 2023): an embedding in which the distance to a goal picture is the value of a frame.

    value    V(o; g) = -|phi(o) - phi(g)|
    loss     (1 - gamma) mean[-V(o_0; g)] + log(1e-8 + mean exp(-(-1 + gamma V(o_k+1; g) - V(o_k; g))))
             + l1 mean|phi|_1 + l2 mean|phi|_2
    windows  o_0 <= o_k < o_k+1 <= g of one video: o_0 uniform, then g uniform after it, then o_k uniform between them
    reward   V(o_t+1; g) - V(o_t; g), with g the last frame of an expert video, or of several and V their mean

phi is the encoder and a linear layer, because an encoder may end in a norm of its own and phi needs a free scale.

Divergence. But for the 1e-8 the loss has no lower bound (paper, appendix "Boundlessness of VIP Objective"): values of
-c (1 - gamma^n) / (1 - gamma) at n steps from the goal, N at the start, give 1 - gamma^N c, so that growing pays. c = 1
is what values should be, the discounted number of steps that are left. So c is measured on the held-out videos
("inflation"); a training in which it passes `divergence` ends there, with a warning, and the checkpoint that ordered
the held-out videos best is kept.

Deviations of the default; `PRESETS["paper"]` is VIP's table:

- `negatives=3`: as in the published model's configuration, every (o_k, o_k+1) is also held against the goals of three
  other windows of the batch, in a second logarithm of the same form. The loss above only knows goals of the same video,
  while the reward's goal is from another one.
- an embedding of 128 instead of 1024, a small encoder and small batches, because the paper's need a GPU.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames, order_correlation
from timerewarder.rewards.goals import GoalConfig, draw_goals, goal_windows, read_goals
from timerewarder.rewards.reward import PotentialReward
from timerewarder.rewards.training import Batch, Diverged, Training

LEAST = 1e-8  # that the loss takes the logarithm of
VALIDATION_WINDOWS = 256


@dataclass(frozen=True, kw_only=True)
class Config(GoalConfig):
    """Options of VIP."""

    windows: int = 8
    """Windows (o_0, o_k, o_k+1, g) in a batch; each costs four encoded frames."""
    negatives: int = 3
    """Goals of other windows that each (o_k, o_k+1) is held against as well (published model: 3; paper's loss: 0)."""
    dim: int = 128
    """Size of the embedding (paper: 1024)."""
    gamma: float = 0.98
    """Discount factor."""
    l1: float = 0.001
    """Weight of the embeddings' mean L1 norm in the loss."""
    l2: float = 0.001
    """Weight of the embeddings' mean L2 norm in the loss."""
    divergence: float = 10.0
    """Stop the training when values on held-out videos are so many times the discounted steps left; 0 for never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windows < 1 or self.dim < 1:
            raise UserError("--windows and --dim must be at least 1")
        if not 0 <= self.negatives < self.windows:
            raise UserError(
                f"--negatives {self.negatives} are goals of other windows: give 0 to {self.windows - 1}, "
                "or more --windows"
            )
        if not 0 < self.gamma < 1:
            raise UserError(f"--gamma {self.gamma} must be more than 0 and less than 1")
        for name in ("l1", "l2", "divergence"):
            if not getattr(self, name) >= 0:
                raise UserError(f"--{name} {getattr(self, name)} must be at least 0")


PRESETS = {
    "default": Config(),
    "paper": Config(
        encoder="resnet34",
        windows=32,
        negatives=0,
        dim=1024,
        stop_at_rest=False,
        training=Training(
            epochs=64, warmup_epochs=0, lr=1e-4, optimizer="adam", clip_norm=0, ema=0, patience=0
        ),  # 10,000 steps
    ),
}


class VIP(PotentialReward):
    method = "vip"
    grown: ClassVar[tuple[str, ...]] = (*PotentialReward.grown, "goals")
    config: Config
    goals: Tensor  # (G, dim), embedded
    rise: Tensor  # what the value of a demonstration rises by

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.embedding = nn.Linear(self.window_dim, config.dim)
        self.register_buffer("goals", torch.zeros(0, config.dim))
        self.register_buffer("rise", torch.tensor(1.0))
        # Read when a model is made, so that a bad path is known before the training; a loaded one has its goals.
        self.given = read_goals(config.goal, self.history) if architecture is None else {}

    def embed(self, windows: Tensor) -> Tensor:
        """Features with their past (..., D) -> phi (..., dim), in full precision: distances are small differences."""
        with torch.autocast(windows.device.type, enabled=False):
            return self.embedding(windows.float())

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss: frames (4N, history+1, S, S, 3), of each window o_0, o_k, o_k+1 and g -> scalar."""
        loss = self.loss(self.embed(self.encode_windows(batch["frames"])).unflatten(0, (-1, 4)))
        if not torch.isfinite(loss):
            raise Diverged(f"vip diverged: its loss is {loss.item()}; lower --lr, or raise --l1 and --l2")
        return loss

    def loss(self, embedded: Tensor) -> Tensor:
        """phi of the windows' o_0, o_k, o_k+1 and g, (N, 4, dim) -> scalar."""
        config = self.config
        first, now, after, goal = embedded.unbind(1)
        loss = vip_loss(value(first, goal), value(now, goal), value(after, goal), config.gamma)
        if config.negatives:
            others = torch.stack([goal.roll(by, 0) for by in range(1, config.negatives + 1)])
            loss = loss + log_mean_exp(shortfall(value(now, others), value(after, others), config.gamma))
        return loss + config.l1 * embedded.abs().sum(-1).mean() + config.l2 * embedded.norm(dim=-1).mean()

    def potential(self, features: Tensor) -> Tensor:
        embedded = self.embed(self.windows(features))
        return torch.stack([value(embedded, goal) for goal in self.goals]).mean(0)

    def distances(self, features: Tensor) -> Tensor:
        return super().distances(features) / self.rise

    @property
    def scale(self) -> float:
        return float(self.rise)

    @torch.no_grad()
    def remember(self, store: FrameStore) -> None:
        """Keep the goals, and what the value of these videos rises by."""
        goals = self.given or draw_goals(store, self.config, self.history)
        self.goals = self.embed(goal_windows(self, goals))
        self.record["goals"] = list(goals)
        rises = []
        for video, length in enumerate(store.lengths):
            values = self.potential(self.encode(store.frames(video, np.arange(length))))
            rises.append(values[-1] - values[0])
        rise = torch.stack(rises).mean()
        if rise <= 0:
            warnings.warn(
                "vip learned nothing: its values do not rise along the training videos; train longer, or give a --goal "
                "that shows where they end",
                stacklevel=2,
            )
        self.rise = rise.abs().clamp_min(1e-6)


def value(embedded: Tensor, goal: Tensor) -> Tensor:
    """phi of frames and of their goals, (..., dim) each -> V (...)."""
    return -torch.linalg.vector_norm(embedded - goal, dim=-1)


def shortfall(now: Tensor, after: Tensor, gamma: float) -> Tensor:
    """V of o_k and of o_k+1 (...) -> by how much a step of reward -1 falls short of the Bellman equation (...)."""
    return -(-1 + gamma * after - now)


def log_mean_exp(numbers: Tensor) -> Tensor:
    """log(1e-8 + mean exp(numbers)) of all numbers, without overflow."""
    mean = torch.logsumexp(numbers.flatten(), 0) - math.log(numbers.numel())
    return torch.logaddexp(mean, mean.new_tensor(math.log(LEAST)))


def vip_loss(first: Tensor, now: Tensor, after: Tensor, gamma: float) -> Tensor:
    """V of o_0, o_k and o_k+1 to the goal of their window, (N,) each -> the paper's loss, without its penalties."""
    return (1 - gamma) * -first.mean() + log_mean_exp(shortfall(now, after, gamma))


def inflation(distance: Tensor, steps: Tensor, gamma: float) -> Tensor:
    """Distances from goals (...) that are so many steps away (...) -> c (...): 1 for the discounted number of steps."""
    return distance * (1 - gamma) / (1 - gamma**steps)


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> VIP:
    """Learn from videos alone. With a `folder` the training logs there and can be resumed from it."""
    return fit_network(
        VIP, config, videos, sample_windows, folder, validate=validate_order, remember=VIP.remember, **opening
    )


def draw_windows(spans: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Videos (count,) and in each the indices of o_0, o_k, o_k+1 and g (count, 4), as VIP's public code draws them."""
    video = rng.integers(0, len(spans), size=count)
    first = rng.integers(0, np.maximum(spans[video] - 2, 1))
    goal = rng.integers(first + 1, spans[video])
    now = rng.integers(first, goal)
    return video, np.stack([first, now, now + 1, goal], axis=1)


def sample_windows(reward: VIP, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Windows of many videos; frames after a video has come to rest are not drawn."""
    video, index = draw_windows(store.spans, reward.config.windows, rng)
    four, flat = np.repeat(video, 4), index.ravel()
    return Batch({"frames": load_frames(store, four, flat, reward.config.history)}, describe(store, four, flat))


@torch.no_grad()
def validate_order(reward: VIP, store: FrameStore) -> dict[str, float]:
    """On held-out videos: order of the values, towards goals that are not their own; loss; inflation.

    The goals are the given ones, or the last frames of the other held-out videos (of the only one, its own).
    """
    config = reward.config
    videos = [
        reward.embed(reward.windows(reward.encode(store.frames(video, np.arange(span)))))
        for video, span in enumerate(store.spans)
    ]
    starts, ends = (torch.stack([embedded[at] for embedded in videos]) for at in (0, -1))
    steps = torch.from_numpy(store.spans - 1).to(starts)
    inflated = float(inflation(-value(starts, ends), steps, config.gamma).mean())
    if not inflated <= (config.divergence or math.inf):
        raise Diverged(
            f"vip diverged: on held-out videos its values are {inflated:.3g} times the discounted steps that are left "
            f"(--divergence {config.divergence:g}); lower --lr, raise --l1 and --l2, or use --negatives"
        )
    given = reward.embed(goal_windows(reward, reward.given)) if reward.given else None
    orders = []
    for number, embedded in enumerate(videos):
        others = torch.cat([ends[:number], ends[number + 1 :]]) if len(videos) > 1 else ends
        goals = others if given is None else given
        orders += [order_correlation(value(embedded, goal).cpu().numpy()) for goal in goals]
    video, index = draw_windows(store.spans, VALIDATION_WINDOWS, np.random.default_rng(0x7A1))
    drawn = torch.stack([videos[v][i] for v, i in zip(video, index, strict=True)])
    return {
        "val_disorder": 1 - float(np.mean(orders)),
        "val_loss": float(reward.loss(drawn)),
        "val_inflation": inflated,
    }
