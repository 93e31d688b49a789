"""How demonstrations are acted: Meta-World's scripted expert, the same one failing in lifelike ways, and random motion.

A policy is made for one episode from its random generator and length, and then asked for an action at each step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from timerewarder.envs.metaworld import GOAL, MetaWorld

Action = NDArray[np.float32]
Policy = Callable[[MetaWorld, int], Action]

OBJECT = slice(4, 7)  # position of the first object in Meta-World's observation


def expert(rng: np.random.Generator, steps: int) -> Policy:
    """Meta-World's scripted policy."""
    return lambda env, step: env.expert_action()


def noisy(rng: np.random.Generator, steps: int) -> Policy:
    """The scripted policy trembling and at fault, so that it mostly fails, and fails as people do.

    It misjudges where object and goal are by 2 to 12 cm (a near miss), or gives up and stands still part of the way, or
    both; and every other time it opens its gripper for a while (a dropped object), or hesitates.
    """
    trembling = rng.uniform(0.02, 0.3)
    misses, gives_up = [(True, False), (False, True), (True, True)][rng.integers(3)]
    offset = _direction(rng) * rng.uniform(0.02, 0.12) if misses else np.zeros(3)
    end = int(rng.uniform(0.1, 0.65) * steps) if gives_up else steps
    slip = _interval(rng, steps, 0.2, 0.6) if rng.random() < 0.5 else range(0)
    pause = _interval(rng, steps, 0.2, 0.6) if rng.random() < 0.5 else range(0)
    gripper = 0.0

    def act(env: MetaWorld, step: int) -> Action:
        nonlocal gripper
        observation = env.expert_observation()
        observation[OBJECT] += offset
        observation[GOAL] += offset
        action = env.expert_action(observation)
        action[:3] += rng.normal(0.0, trembling, 3)
        if step in slip:
            action[3] = -1.0
        if step in pause or step >= end:
            action[:3], action[3] = rng.normal(0.0, 0.05, 3), gripper
        gripper = action[3]
        return np.clip(action, -1.0, 1.0)

    return act


def random(rng: np.random.Generator, steps: int) -> Policy:
    """Smooth random motion: each action keeps nine tenths of the one before."""
    action = rng.normal(0.0, 0.5, 4)

    def act(env: MetaWorld, step: int) -> Action:
        nonlocal action
        action = 0.9 * action + rng.normal(0.0, 0.25, 4)
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    return act


POLICIES: dict[str, Callable[[np.random.Generator, int], Policy]] = {
    "expert": expert,
    "noisy": noisy,
    "random": random,
}


def _direction(rng: np.random.Generator) -> NDArray[np.float64]:
    vector = rng.normal(size=3)
    return vector / np.linalg.norm(vector)


def _interval(rng: np.random.Generator, steps: int, shortest: float, longest: float) -> range:
    """Somewhere in the episode, lasting between these shares of it."""
    length = int(rng.uniform(shortest, longest) * steps)
    start = int(rng.integers(0, steps - length + 1))
    return range(start, start + length)
