"""PROGRESSOR (Ayalew et al., 2024): where a frame is between the first frame and a goal, and how sure that is.

    model    (o_i, o_j, o_g) -> N(mu, sigma): a shared encoder, the three feature vectors side by side, an MLP
    target   i <= j <= g of one video: mean (j - i) / (g - i), standard deviation sqrt(1 / (g - i))
    loss     KL(target || prediction)
    reward   mu - 0.4 entropy, with o_i the episode's first frame and o_g a goal; of several goals the mean
    online   the same loss, and 0.01 times "push-back": KL(N(0.9 mu, sigma) || prediction) on the agent's frames, with
             0.9 mu and sigma held fixed, so that what only looks like progress is worth less and less

`negatives` is the ablation of TimeRewarder's paper (appendix "Ablation Study of PROGRESSOR"): o_i relative to
(o_j, o_g) is predicted as well, target (i - j) / (g - j), from -T to 0.

A start that is its own goal counts as one step from it: every g - i above is at least 1. i < g is what is drawn, so
this matters for `negatives` with j = g only.

Deviations. Online, the MLP learns and the encoder stays as it was fitted, so that frames are encoded once. log sigma is
kept within [-6, 2], because the entropy of a picture never seen could be anything. Paper and definition leave open
which sigma push-back aims at: it is the predicted one, so that push-back moves the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames, validate_loss
from timerewarder.rewards.goals import GoalConfig, draw_goals, goal_windows, read_goals
from timerewarder.rewards.online import OnlineConfig, OnlineReward, Seen
from timerewarder.rewards.training import Batch

LOG_SIGMA = (-6.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class Config(GoalConfig, OnlineConfig):
    """Options of PROGRESSOR."""

    triples: int = 16
    """Triples (o_i, o_j, o_g) in a batch; each costs three encoded frames."""
    negatives: bool = False
    """Also predict o_i relative to (o_j, o_g), a negative share (ablation of TimeRewarder's paper)."""
    hidden: int = 512
    """Hidden units of the MLP."""
    entropy_weight: float = 0.4
    """What the entropy of the prediction takes from the reward."""
    push_back_weight: float = 0.01
    """Weight of push-back beside the loss on demonstrations, online; 0 for none."""
    push_back_factor: float = 0.9
    """What push-back multiplies the predicted progress of the agent's frames with."""
    online_updates: int = 10
    """Steps that the reward learns after each episode of the agent."""
    online_batch: int = 64
    """Frames of the agent, and as many triples of demonstrations, in each of these steps."""

    def __post_init__(self) -> None:
        GoalConfig.__post_init__(self)
        OnlineConfig.__post_init__(self)
        if self.triples < 1 or self.hidden < 1:
            raise UserError("--triples and --hidden must be at least 1")
        if not 0 <= self.entropy_weight < math.inf or not 0 <= self.push_back_weight < math.inf:
            raise UserError("--entropy-weight and --push-back-weight must be numbers of at least 0")
        if not 0 <= self.push_back_factor <= 1:
            raise UserError(f"--push-back-factor {self.push_back_factor} must be from 0 to 1")


class Progressor(OnlineReward):
    method = "progressor"
    is_value = False
    grown: ClassVar[tuple[str, ...]] = (*OnlineReward.grown, "goals")
    config: Config
    goals: Tensor  # (G, D)

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.head = nn.Sequential(nn.Linear(3 * self.window_dim, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 2))
        self.register_buffer("goals", torch.zeros(0, self.window_dim))
        # Read when a model is made, so that a bad path is known before the training; a loaded one has its goals.
        self.given = read_goals(config.goal, self.history) if architecture is None else {}

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss: frames (3N, 1, S, S, 3), of each triple o_i, o_j and o_g, and their times (N, 3) -> scalar."""
        return self.loss(self.encode_windows(batch["frames"]).unflatten(0, (-1, 3)), batch["times"])

    def loss(self, features: Tensor, times: Tensor) -> Tensor:
        """Features (N, 3, D) and times (N, 3) of triples -> scalar."""
        (first, now, goal), (i, j, g) = features.unbind(1), times.unbind(1)
        loss = kl(*target(i, j, g), *self.predict(first, now, goal)).mean()
        if self.config.negatives:
            loss = (loss + kl(*target(j, i, g), *self.predict(now, first, goal)).mean()) / 2
        return loss

    def predict(self, first: Tensor, now: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Features of three frames (N, D) each -> mu (N,) and log sigma (N,)."""
        mean, log_sigma = self.head(torch.cat([first, now, goal], dim=-1)).float().unbind(-1)
        return mean, log_sigma.clamp(*LOG_SIGMA)

    def compare(self, features: Tensor) -> Tensor:
        first = features[:1].expand_as(features)
        predicted = [self.predict(first, features, goal.expand_as(features)) for goal in self.goals]
        rewards = torch.stack([mean - self.config.entropy_weight * entropy(spread) for mean, spread in predicted])
        return F.pad(rewards.mean(0)[1:], (1, 0))

    @torch.no_grad()
    def remember(self, store: FrameStore) -> None:
        """Keep the goals, and the demonstrations until their pictures come to rest."""
        super().remember(replace(store, lengths=store.spans))
        goals = self.given or draw_goals(store, self.config, self.history)
        self.goals = goal_windows(self, goals)
        self.record["goals"] = list(goals)

    @property
    def learner(self) -> nn.Module:
        return self.head

    def online_loss(self, seen: Seen, rng: np.random.Generator) -> Tensor:
        video, index = draw_triples(self.lengths.cpu().numpy(), len(seen.after), rng)
        rows = (self.lengths.cumsum(0) - self.lengths)[video][:, None] + torch.from_numpy(index).to(self.device)
        expert = self.loss(self.demonstrations[rows], torch.from_numpy(index).to(self.device))
        goal = self.goals[rng.integers(0, len(self.goals), size=len(seen.after))]
        mean, spread = self.predict(seen.first, seen.after, goal)
        pushed = kl(self.config.push_back_factor * mean.detach(), spread.detach(), mean, spread)
        return expert + self.config.push_back_weight * pushed.mean()


def target(start: Tensor, now: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Times of a triple (N,) each -> mean (N,) and log of the standard deviation (N,) of the progress from start."""
    steps = (goal - start).clamp_min(1)
    return (now - start) / steps, -steps.log() / 2


def kl(mean: Tensor, log_sigma: Tensor, predicted_mean: Tensor, predicted_log_sigma: Tensor) -> Tensor:
    """KL(N(mean, sigma) || N(predicted mean, predicted sigma)), all (N,) -> (N,)."""
    difference = predicted_log_sigma - log_sigma
    miss = (mean - predicted_mean) * torch.exp(-predicted_log_sigma)
    return difference + (torch.exp(-2 * difference) + miss.square() - 1) / 2


def entropy(log_sigma: Tensor) -> Tensor:
    """Entropy of N(., sigma) in nats, (N,) -> (N,)."""
    return 0.5 * math.log(2 * math.pi * math.e) + log_sigma


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> Progressor:
    """Learn from videos alone. With a `folder` the training logs there and can be resumed from it."""
    return fit_network(
        Progressor, config, videos, sample_triples, folder,
        validate=validate_loss(sample_triples), remember=Progressor.remember, **opening,
    )  # fmt: skip


def draw_triples(lengths: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Videos (count,) and in each the indices i <= j <= g, i < g (count, 3): i and g any two, j any between them."""
    video = rng.integers(0, len(lengths), size=count)
    one = rng.integers(0, lengths[video])
    other = (one + rng.integers(1, lengths[video])) % lengths[video]
    first, goal = np.minimum(one, other), np.maximum(one, other)
    return video, np.stack([first, rng.integers(first, goal + 1), goal], axis=1)


def sample_triples(reward: Progressor, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Triples of many videos; frames after a video has come to rest are not drawn."""
    video, index = draw_triples(store.spans, reward.config.triples, rng)
    three, flat = np.repeat(video, 3), index.ravel()
    frames = load_frames(store, three, flat, reward.config.history)
    return Batch({"frames": frames, "times": torch.from_numpy(index)}, describe(store, three, flat))
