"""Rewards that compare what they see with the demonstrations, through features that stay as they are.

The encoder is pretrained and frozen. Where nothing pretrained can be had (`small`, `vit-b16`, `resnet34` without
weights), it is trained on the videos first, by time contrast (Sermanet et al., 2018): of all frames in a batch, find
the one that is close in time,

    L = -log  exp(f(o_t) . f(o_t+d) / temperature) / sum_k exp(f(o_t) . f(o_k) / temperature),    f of unit length

with d drawn up to 5 % of the video and k over all later frames of the batch, of this video and of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames, validate_loss
from timerewarder.rewards.reward import FrameConfig, FrameReward
from timerewarder.rewards.training import Batch

CLOSE = 0.05  # of a video


class DemonstrationReward(FrameReward):
    """A reward that keeps the features of the demonstrations that it was fitted on."""

    grown: ClassVar[tuple[str, ...]] = (*FrameReward.grown, "demonstrations", "lengths")
    demonstrations: Tensor  # (frames of all, D)
    lengths: Tensor  # int64 (videos,)

    def __init__(self, config: Any, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        self.register_buffer("demonstrations", torch.zeros(0, self.window_dim))
        self.register_buffer("lengths", torch.zeros(0, dtype=torch.int64))

    def remember(self, store: FrameStore) -> None:
        """Keep the features of these videos."""
        features = [
            self.windows(self.encode(store.frames(video, np.arange(length))))
            for video, length in enumerate(store.lengths)
        ]
        self.demonstrations, self.lengths = torch.cat(features), torch.from_numpy(store.lengths.astype(np.int64))

    # What a training of a policy tells a reward; most have nothing to learn from it.

    def first_episode(self, features: Tensor) -> None:
        """The agent's first episode, (T, D), before it is rewarded."""

    def evaluated(self, episodes: Sequence[Tensor]) -> dict[str, float]:
        """Episodes of an evaluation, (T, D) each; returns what is to be logged."""
        return {}

    def online_state(self) -> dict[str, Tensor]:
        """What has been learned during a training of a policy, and what is needed to go on."""
        return {}

    def restore_online(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `online_state`."""

    @property
    def experts(self) -> tuple[Tensor, ...]:
        """Features of each demonstration, (T, D)."""
        return self.demonstrations.split(self.lengths.tolist())


@dataclass(frozen=True, kw_only=True)
class ContrastConfig(FrameConfig):
    """Options of methods that look through a frozen encoder."""

    contrast: Literal["auto", "yes", "no"] = "auto"
    """Train the encoder on the videos by time contrast before it is frozen; auto: if it has no pretrained weights."""
    contrast_clips: int = 4
    """Videos in a batch of that training."""
    contrast_pairs: int = 4
    """Pairs of frames from each of them."""
    temperature: float = 0.1
    """Temperature of that training."""

    def __post_init__(self) -> None:
        if self.contrast_clips < 1 or self.contrast_pairs < 1 or self.contrast_clips * self.contrast_pairs < 2:
            raise UserError("--contrast-clips and --contrast-pairs must give at least two pairs to tell apart")
        if not self.temperature > 0:
            raise UserError(f"--temperature {self.temperature} must be more than 0")

    @property
    def trains_encoder(self) -> bool:
        pretrained = self.encoder == "clip-vit-b16" or self.encoder_weights is not None
        return self.contrast == "yes" or (self.contrast == "auto" and not pretrained)


class ContrastReward(DemonstrationReward):
    """As a network, `forward` is the loss of the time contrast."""

    config: ContrastConfig

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Frames (2N, history+1, S, S, 3), earlier and later ones in turn -> scalar."""
        pairs = F.normalize(self.encode_windows(batch["frames"]), dim=-1).unflatten(0, (-1, 2))
        similarity = pairs[:, 0] @ pairs[:, 1].T / self.config.temperature
        return F.cross_entropy(similarity, torch.arange(len(pairs), device=similarity.device))


K = TypeVar("K", bound=ContrastReward)


def fit_contrast(cls: type[K], config: Any, videos: Sources, folder: Path | None = None, **opening: Any) -> K:
    """A `cls(config)` with a frozen encoder, trained first if it has to be, and the demonstrations' features."""
    sample = sample_close if config.trains_encoder else None
    return fit_network(
        cls, config, videos, sample, folder, validate=validate_loss(sample_close), remember=cls.remember, **opening
    )


def sample_close(reward: ContrastReward, store: FrameStore, rng: np.random.Generator) -> Batch:
    """Pairs of frames that are close in time."""
    config = reward.config
    video = np.repeat(rng.integers(0, len(store), size=config.contrast_clips), config.contrast_pairs)
    lengths = store.lengths[video]
    gap = rng.integers(1, np.maximum(np.round(CLOSE * lengths).astype(np.int64), 1) + 1)
    start = rng.integers(0, lengths - gap)
    both, index = np.repeat(video, 2), np.stack([start, start + gap], axis=1).ravel()
    frames = load_frames(store, both, index, config.history)
    return Batch({"frames": frames}, describe(store, both, index))
