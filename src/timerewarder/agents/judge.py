"""Rewards that the loop gives itself: those of methods that look at whole episodes, or that go on learning.

The worker sends the features of every frame, from the reward's encoder, which stays as it was fitted. When an episode
has ended, the reward sees all of it. A reward that learns online then takes some steps, with what the replay holds as
the agent's side; every few episodes, and before every save, the whole replay is rewarded anew, so that old
transitions do not keep what an old discriminator said of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from timerewarder.agents.replay import Replay
from timerewarder.evaluation.episodes import Episode
from timerewarder.rewards.demonstrations import DemonstrationReward
from timerewarder.rewards.online import OnlineReward, Seen
from timerewarder.rewards.reward import FrameReward


class Judge:
    """A reward model in the loop. `reward_every`: episodes after which the whole past is rewarded anew."""

    def __init__(self, reward: FrameReward, reward_every: int) -> None:
        self.reward, self.reward_every = reward.eval(), reward_every
        self.features = reward.encoder.dim if isinstance(reward, OnlineReward) else 0  # that the replay is to keep

    @property
    def discount(self) -> float | None:
        """The discount that the method prescribes, if it does."""
        return self.reward.discount

    @torch.no_grad()
    def rewards(self, features: np.ndarray) -> np.ndarray:
        """Features (T, D) of an episode -> float32 (T,)."""
        return self.reward.compare(self._tensor(features)).cpu().numpy()

    def episode_ended(
        self, features: np.ndarray, number: int, replay: Replay, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Reward the newest episode of the replay and learn from the replay; returns the rewards (T,) and a log."""
        if number == 0 and isinstance(self.reward, DemonstrationReward):
            self.reward.first_episode(self._tensor(features))
        rewards = self.rewards(features)
        replay.reward_episode(rewards)
        if not isinstance(self.reward, OnlineReward):
            return rewards, {}

        def draw(rng: np.random.Generator, count: int) -> Seen:
            return Seen(*(self._tensor(part) for part in replay.draw_features(rng, count)))

        log = self.reward.learn(draw, rng)
        if (number + 1) % self.reward_every == 0:
            self.reward_all(replay)
        return rewards, log

    def evaluated(self, episodes: Sequence[Episode]) -> tuple[list[Episode], dict[str, float]]:
        """The episodes of an evaluation with their rewards, and what the reward says of them."""
        judged, seen = [], []
        for episode in episodes:
            assert episode.features is not None
            judged.append(replace(episode, dense=self.rewards(episode.features)[1:]))
            seen.append(self._tensor(episode.features))
        return judged, self.reward.evaluated(seen) if isinstance(self.reward, DemonstrationReward) else {}

    def reward_all(self, replay: Replay) -> None:
        """Reward the past anew, if the reward has changed since."""
        if isinstance(self.reward, OnlineReward):
            replay.reward_all(self.rewards)

    def state(self) -> dict[str, Tensor]:
        return self.reward.online_state() if isinstance(self.reward, DemonstrationReward) else {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if isinstance(self.reward, DemonstrationReward):
            self.reward.restore_online(tensors)

    def _tensor(self, features: np.ndarray) -> Tensor:
        return torch.from_numpy(features).to(self.reward.device)
