"""Rewards of many streams at once: what their last frames are worth, with one comparison where the method allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from timerewarder.rewards.reward import FrameReward, Stream

PROBES = 8  # episodes that tell whether the comparisons of a model are local
CLOSE = 1e-6


class Arrival(NamedTuple):
    """What a frame gives; `reward` is None at the beginning of an episode."""

    step: int
    reward: float | None
    progress: float


class Episode(Stream):
    """One episode of a robot, with its progress so far. Equal to `score` and `progress` of the whole of it."""

    def __init__(self, reward: FrameReward) -> None:
        super().__init__(reward)
        self.steps, self.sum = 0, np.float32(0)
        self._scale = np.float32(reward.whole)

    @property
    def has_begun(self) -> bool:
        return self.first is not None

    def end(self) -> None:
        """Make the next frame a first one."""
        self.first = None

    def begin(self, features: Tensor) -> None:
        super().begin(features)
        self.steps, self.sum = 0, np.float32(0)

    def reached(self, reward: float) -> Arrival:
        """Take one step further."""
        self.steps += 1
        self.sum += np.float32(reward)
        return Arrival(self.steps, reward, float(self.sum / self._scale))


class Arrivals:
    """The next frames of some episodes -> their rewards."""

    def __init__(self, reward: FrameReward) -> None:
        self.reward, self.window = reward, reward.history + 2
        self.is_local = reward.streams and _is_local(reward, self.window)

    def __call__(self, episodes: Sequence[Episode], features: Tensor) -> list[Arrival]:
        """Features (N, D) of the frames that N different episodes arrive at; an episode that has not begun begins."""
        arrivals: list[Arrival | None] = [None] * len(episodes)
        together: list[int] = []
        for place, episode in enumerate(episodes):
            if not episode.has_begun:
                episode.begin(features[place])
                arrivals[place] = Arrival(0, None, 0.0)
            elif self.is_local and len(episode.recent) + 1 >= self.window:
                episode.recent.append(features[place : place + 1])
                together.append(place)
            else:
                arrivals[place] = episode.reached(episode.arrive(features[place]))
        if together:
            windows = torch.cat([frame for place in together for frame in episodes[place].recent])
            rewards = self.reward.compare(windows)[self.window - 1 :: self.window].tolist()
            for place, reward in zip(together, rewards, strict=True):
                arrivals[place] = episodes[place].reached(reward)
        return [arrival for arrival in arrivals if arrival is not None]


@torch.no_grad()
def _is_local(reward: FrameReward, window: int) -> bool:
    """Whether a step's reward follows from the last `window` frames alone, whatever was before: found by trying.

    If so, the windows of several episodes can be compared as if they were one long episode.
    """
    random = torch.Generator().manual_seed(0)
    features = torch.randn(PROBES, window, reward.encoder.dim, generator=random).to(reward.device)
    together = reward.compare(features.flatten(0, 1))[window - 1 :: window]
    apart = torch.stack([reward.compare(one)[-1] for one in features])
    return bool(torch.isclose(together, apart, rtol=CLOSE, atol=CLOSE).all())
