"""How well a policy does its task: episodes with seeds that training never uses, judged by the task's own success.

success_once     the task was solved at some step
success_at_end   it was solved at the last step
success_gt3      it was solved at more than 3 agent steps (the convention of the code that the paper follows)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from timerewarder.envs.worker import Step, Worker

FIRST_EVALUATION = 10**9
FILMED = 10  # episodes of an evaluation, the first ones


def training_seed(seed: int, episode: int) -> int:
    """The seed of an episode of training: an even number."""
    return 2 * int(np.random.SeedSequence([seed, episode]).generate_state(1, np.uint32)[0])


def evaluation_seed(episode: int) -> int:
    """The seed of an episode of evaluation: an odd number, so no training uses it; the same for every run."""
    return 2 * (FIRST_EVALUATION + episode) + 1


@dataclass(frozen=True)
class Episode:
    """What happened in one episode of T steps."""

    dense: np.ndarray  # float32 (T,)
    task_rewards: np.ndarray  # float32 (T,)
    success: np.ndarray  # bool (T,)
    frames: np.ndarray | None = None  # uint8 (T+1, S, S, 3), if they were asked for
    features: np.ndarray | None = None  # (T+1, D), if the worker leaves the reward to the loop

    @classmethod
    def of(
        cls, steps: Sequence[Step], first_features: np.ndarray | None = None, frames: Sequence[np.ndarray] = ()
    ) -> Episode:
        features = [first_features, *(step.features for step in steps)]
        return cls(
            dense=np.array([step.dense for step in steps], np.float32),
            task_rewards=np.array([step.task_reward for step in steps], np.float32),
            success=np.array([step.success for step in steps]),
            frames=np.stack(frames) if frames else None,
            features=None if first_features is None else np.stack(features),  # type: ignore[arg-type]
        )

    def measures(self) -> dict[str, float]:
        """The returns and the three measures of success."""
        return {
            "task_return": float(self.task_rewards.sum()),
            "learned_return": float(self.dense.sum()),
            "success_once": float(self.success.any()),
            "success_at_end": float(self.success[-1]),
            "success_gt3": float(self.success.sum() > 3),
        }


def mean_measures(episodes: Sequence[Episode]) -> dict[str, float]:
    rows = [episode.measures() for episode in episodes]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def told_success(measures: dict[str, float]) -> str:
    """The three measures of success in words."""
    once, at_end, gt3 = (measures[f"success_{name}"] for name in ("once", "at_end", "gt3"))
    return f"success {once:.1f} once, {at_end:.1f} at end, {gt3:.1f} for >3 steps"


def run_episode(
    worker: Worker,
    seed: int,
    act: Callable[[np.ndarray], np.ndarray],
    film: bool = False,
) -> Episode:
    """One whole episode; `act` maps an observation to an action, and may keep a stack of them."""
    observation = worker.reset(seed)
    frames = [worker.frame()] if film else []
    steps: list[Step] = []
    while not steps or not steps[-1].ended:
        worker.start(act(observation))
        steps.append(worker.finish())
        observation = steps[-1].observation
        if film:
            frames.append(worker.frame())
    return Episode.of(steps, worker.first_features, frames)
