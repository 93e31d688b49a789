"""A Meta-World task as the agent meets it, in a process of its own.

    MetaWorld -> LearnedReward (or the task's own reward, or none) -> what the policy sees: pixels, state or features

Simulating, drawing and rewarding a step run in the worker while the agent updates. The agent waits for the step before
it acts again, so with as many threads a run is the same whether steps are computed beside it or in between.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from timerewarder.data.resize import resize
from timerewarder.envs.learned import LearnedReward
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.envs.simulator import gymnasium
from timerewarder.rewards import load
from timerewarder.rewards.online import by_episode
from timerewarder.rewards.reward import FrameReward

Seen = Literal["pixels", "state", "features"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which task, how it is shown and how it is rewarded."""

    task: str
    reward: str
    """A reward model's folder or Hub id, `env` for the task's dense reward, `sparse` for success alone."""
    familiar: float | None = None
    """Count frames as no progress that are so many times as far from the training videos as the validation videos."""
    anchored: bool = False
    """Whether the sum of steps is what is seen from the first frame."""
    obs: Seen = "pixels"
    size: int = 84
    policy_size: int | None = None
    """Side of the picture that the policy sees, if not `size`."""
    camera: str | None = None
    action_repeat: int = 2
    ranges: str = "wide"
    render: str = "fast"
    horizon: int | None = None


class TaskReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The task's own dense reward, or with `sparse` none at all: success is weighted by the agent, as alpha."""

    def __init__(self, env: gymnasium.Env[Any, Any], sparse: bool) -> None:
        super().__init__(env)
        self.sparse = sparse

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, 0.0 if self.sparse else float(reward), terminated, truncated, info


class Encoded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """No reward yet: what the reward's encoder makes of each frame goes into `info["features"]`, (D,).

    For a reward that is given at an episode's end, or that goes on learning: the agent's loop gives it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], reward: FrameReward) -> None:
        super().__init__(env)
        self._reward = reward
        self.features_dim = reward.encoder.dim

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "features": self._encode()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, task_reward, terminated, truncated, info = self.env.step(action)
        info = {**info, "task_reward": float(task_reward), "features": self._encode()}
        return observation, 0.0, terminated, truncated, info

    def _encode(self) -> np.ndarray:
        self.features = self._reward.encode(np.asarray(self.env.render())[None])[0].cpu().numpy()
        return self.features


class View(gymnasium.ObservationWrapper[Any, Any, Any]):
    """What the policy sees: uint8 (S, S, 3) pixels, or float32 (D,) state or features of the reward's encoder."""

    def __init__(self, env: gymnasium.Env[Any, Any], obs: Seen, size: int) -> None:
        super().__init__(env)
        self.obs, self.size = obs, size
        if obs == "pixels":
            self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        else:
            dim = env.get_wrapper_attr("features_dim") if obs == "features" else env.observation_space.shape[0]  # type: ignore[index]
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (dim,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        if self.obs == "pixels":
            return resize(np.asarray(self.env.render())[None], self.size, "squash")[0]
        return np.asarray(self.env.get_wrapper_attr("features") if self.obs == "features" else observation, np.float32)


def make_env(setting: Setting) -> gymnasium.Env[Any, Any]:
    """The task; its reward is the dense one, without success, which is in `info`."""
    env: gymnasium.Env[Any, Any] = MetaWorld(
        setting.task, setting.camera, setting.size, setting.action_repeat,
        setting.ranges, setting.render, setting.horizon,
    )  # fmt: skip
    if setting.reward in ("env", "sparse"):
        env = TaskReward(env, sparse=setting.reward == "sparse")
    else:
        model = load(setting.reward).to("cuda" if torch.cuda.is_available() else "cpu")
        if by_episode(model):
            env = Encoded(env, model)
        else:
            env = LearnedReward(env, model, 0.0, familiar=setting.familiar, anchored=setting.anchored)
    return View(env, setting.obs, setting.size if setting.policy_size is None else setting.policy_size)


def _make_beside(setting: Setting) -> gymnasium.Env[Any, Any]:
    """`make_env` in a worker: one thread, and signals to all processes are the main one's to handle.

    Gymnasium calls it in the main process as well, to look at the spaces; there nothing is changed.
    """
    if multiprocessing.parent_process() is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
    return make_env(setting)


@dataclass(frozen=True)
class Step:
    """What a step brought."""

    observation: np.ndarray
    dense: float
    task_reward: float
    success: bool
    terminated: bool
    ended: bool
    features: np.ndarray | None = None
    """What the reward's encoder made of the frame, for a reward that the loop gives."""


class Worker:
    """One task, stepped in two halves: `start(action)`, then `finish()`. Use as a context manager."""

    def __init__(self, setting: Setting, beside: bool = True) -> None:
        kinds: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}
        if beside:
            threads = os.environ.get("OMP_NUM_THREADS")
            os.environ["OMP_NUM_THREADS"] = "1"  # read by the worker when it starts
            try:
                self.envs: Any = AsyncVectorEnv([functools.partial(_make_beside, setting)], context="spawn", **kinds)
            finally:
                os.environ.pop("OMP_NUM_THREADS") if threads is None else os.environ.update(OMP_NUM_THREADS=threads)
        else:
            self.envs = SyncVectorEnv([functools.partial(make_env, setting)], **kinds)
        self.beside = beside
        self.shape: tuple[int, ...] = self.envs.single_observation_space.shape
        self.actions: int = self.envs.single_action_space.shape[0]
        self._action: np.ndarray | None = None
        self.first_features: np.ndarray | None = None  # of the episode's first frame, as in Step

    def reset(self, seed: int) -> np.ndarray:
        """Begin the episode of this seed; returns its first observation."""
        observations, infos = self.envs.reset(seed=[seed])
        self.first_features = _features(infos)
        return observations[0]

    def start(self, action: np.ndarray) -> None:
        """Begin a step with `action`, float32 (A,)."""
        if self.beside:
            self.envs.step_async(action[None])
        else:
            self._action = action[None]

    def finish(self) -> Step:
        """Wait for the step."""
        result = self.envs.step_wait() if self.beside else self.envs.step(self._action)
        observations, rewards, terminations, truncations, infos = result
        return Step(
            observations[0],
            float(rewards[0]),
            float(infos["task_reward"][0]),
            bool(infos["success"][0]),
            bool(terminations[0]),
            bool(terminations[0] or truncations[0]),
            _features(infos),
        )

    def frame(self) -> np.ndarray:
        """The present frame, uint8 (S, S, 3)."""
        return np.asarray(self.envs.call("render")[0])

    def close(self) -> None:
        self.envs.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _features(infos: dict[str, Any]) -> np.ndarray | None:
    return np.asarray(infos["features"][0]) if "features" in infos else None
