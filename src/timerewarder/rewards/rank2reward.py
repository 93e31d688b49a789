"""Rank2Reward (Yang et al., 2024): how far a frame is by its rank, and whether an expert could have been there.

ranker          which of two frames of one video, both drawn uniformly, is later; mixup; frozen after the fit
                pairs    P(b later than a) = sigmoid(u(b) - u(a))
                frames   P(b later than a) = sigmoid(u(b)), each frame alone, as in the public release
discriminator   D = sigmoid(d(o)): expert frames against the agent's, learned online
reward          log sigmoid(u(o_t)) + log D(o_t) - log(1 - D(o_t)), sigmoid(u) and D clipped to [1e-5, 1 - 1e-5]

Before D has learned anything it would be 1/2 everywhere and its term 0, so the reward is log sigmoid(u) alone.

Deviations. Pairs leave u open up to a constant: it is set so that u is 0 on average over the demonstrations' frames,
which makes sigmoid(u) the chance of being later than an average frame. Two moments that are one on the video's clock
(the same frame twice, or two after the picture came to rest) are told to rank alike. The ranker is trained with its
encoder; the discriminator sees the encoder's features, which stay as they are, and mixup mixes those. Neither knows
goals, so there are no expert frames with a wrong goal among the discriminator's negatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames, validate_loss
from timerewarder.rewards.online import OnlineConfig, OnlineReward, Seen
from timerewarder.rewards.training import Batch

CLIP = 1e-5
BOUND = math.log((1 - CLIP) / CLIP)  # a logit within it has a sigmoid within [CLIP, 1 - CLIP]


@dataclass(frozen=True, kw_only=True)
class Config(OnlineConfig):
    """Options of Rank2Reward."""

    pairs: int = 16
    """Pairs of frames in a batch."""
    ranking: Literal["pairs", "frames"] = "pairs"
    """Which is later is read off the difference of two frames' ranks (pairs) or off each alone (public release)."""
    mixup: float = 1.0
    """Mix the pictures of two pairs, and their labels, by a share from Beta(a, a) with this a; 0 mixes nothing."""
    hidden: int = 256
    """Hidden units of the discriminator."""
    online_mixup: float = 1.0
    """The same as mixup for the discriminator, on features."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pairs < 1 or self.hidden < 1:
            raise UserError("--pairs and --hidden must be at least 1")
        if not (0 <= self.mixup < math.inf and 0 <= self.online_mixup < math.inf):
            raise UserError("--mixup and --online-mixup must be 0, for none, or a number above it")


class Discriminator(nn.Module):
    """Expert or agent, from the features of one frame."""

    trained: Tensor  # bool (), whether it has learned anything yet

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, hidden), nn.LeakyReLU(), nn.Linear(hidden, 1))
        self.register_buffer("trained", torch.tensor(False))

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) -> logits (N,), high for the expert."""
        return self.layers(features).squeeze(-1)


class Rank2Reward(OnlineReward):
    method = "rank2reward"
    is_value = False
    config: Config

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.head = nn.Linear(self.window_dim, 1)
        # No part of the fit: distributed training must not wait for its gradients. `learn` turns them on.
        self.discriminator = Discriminator(self.window_dim, config.hidden).requires_grad_(False)

    def rank(self, features: Tensor) -> Tensor:
        """Features (N, D) -> u (N,)."""
        return self.head(features).squeeze(-1)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The ranker's loss: pairs in turn (2N, 1, S, S, 3) and how likely the second is the later (N,) -> scalar."""
        ranks, later = self.rank(self.encode_windows(batch["frames"])).unflatten(0, (-1, 2)), batch["later"]
        if self.config.ranking == "pairs":
            return F.binary_cross_entropy_with_logits(ranks[:, 1] - ranks[:, 0], later)
        return F.binary_cross_entropy_with_logits(ranks, torch.stack([1 - later, later], dim=1))

    def remember(self, store: FrameStore) -> None:
        super().remember(store)
        if self.config.ranking == "pairs":
            with torch.no_grad():
                self.head.bias.sub_(self.rank(self.demonstrations).mean())

    def compare(self, features: Tensor) -> Tensor:
        rewards = F.logsigmoid(self.rank(features).clamp(-BOUND, BOUND))
        if self.discriminator.trained:
            rewards = rewards + self.discriminator(features).clamp(-BOUND, BOUND)  # a logit is log D - log(1 - D)
        return F.pad(rewards[1:], (1, 0))

    @property
    def learner(self) -> Discriminator:
        return self.discriminator

    def online_loss(self, seen: Seen, rng: np.random.Generator) -> Tensor:
        expert = self.draw_experts(rng, len(seen.after)).after
        features = torch.cat([expert, seen.after])
        labels = torch.cat([torch.ones_like(expert[:, 0]), torch.zeros_like(seen.after[:, 0])])
        if self.config.online_mixup > 0:
            mix = mixer(self.config.online_mixup, len(features), rng)
            features, labels = mix(features), mix(labels)
        return F.binary_cross_entropy_with_logits(self.discriminator(features), labels)

    def learn(self, draw: Callable[[np.random.Generator, int], Seen], rng: np.random.Generator) -> dict[str, float]:
        losses = super().learn(draw, rng)
        if losses:
            self.discriminator.trained.fill_(True)
        return losses


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> Rank2Reward:
    """Learn the ranker from videos. With a `folder` the training logs there and can be resumed from it."""
    return fit_network(
        Rank2Reward, config, videos, sample_mixed, folder,
        validate=validate_loss(sample_pairs), remember=Rank2Reward.remember, **opening,
    )  # fmt: skip


def sample_pairs(reward: Rank2Reward, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Pairs of frames of one video, drawn uniformly; `later` is 1 if the second is, 1/2 if neither."""
    video = np.repeat(rng.integers(0, len(store), size=reward.config.pairs), 2)
    index = rng.integers(0, store.lengths[video])
    first, second = store.times(video, index).reshape(-1, 2).T
    later = torch.from_numpy(((1 + np.sign(second - first)) / 2).astype(np.float32))
    frames = load_frames(store, video, index, reward.config.history)
    return Batch({"frames": frames, "later": later}, describe(store, video, index))


def sample_mixed(reward: Rank2Reward, store: FrameStore, rng: np.random.Generator) -> Batch:
    """The same with mixup, pairs with pairs, for training."""
    batch = sample_pairs(reward, store, rng)
    if reward.config.mixup == 0:
        return batch
    mix = mixer(reward.config.mixup, reward.config.pairs, rng)
    frames = mix(batch.tensors["frames"].unflatten(0, (-1, 2)).float()).round().to(torch.uint8).flatten(0, 1)
    return Batch({"frames": frames, "later": mix(batch.tensors["later"])}, batch.origin)


def mixer(a: float, count: int, rng: np.random.Generator) -> Callable[[Tensor], Tensor]:
    """Mixup (Zhang et al., 2018): each of `count` rows with another one, by one share from Beta(a, a).

    Cross-entropy is linear in the label, so that mixing labels is mixing the losses of both.
    """
    share, partner = float(rng.beta(a, a)), torch.from_numpy(rng.permutation(count))
    return lambda rows: share * rows + (1 - share) * rows[partner.to(rows.device)]
