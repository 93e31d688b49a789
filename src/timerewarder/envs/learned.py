"""A learned reward in place of an environment's own: r = learned + alpha * success (paper, Eq. 8).

    LearnedReward        for a Gymnasium environment that renders
    VectorLearnedReward  for a vector environment: the frames of all sub-environments are encoded together
    FinalFrame           keeps an episode's last frame, where a vector environment resets before it can be drawn

Every frame passes the encoder once, and the rewards of an episode are those that `score` gives its frames. The policy
learns from the returned reward; the task's own stays in `info["task_reward"]`, and the two never mix. Needs Gymnasium
only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from timerewarder.data.resize import resize
from timerewarder.errors import UserError
from timerewarder.rewards import load
from timerewarder.rewards.alpha import Alpha, AlphaRule
from timerewarder.rewards.familiarity import Guarded
from timerewarder.rewards.reward import FrameReward

try:
    import gymnasium
    from gymnasium.utils import RecordConstructorArgs
    from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
except ImportError as error:  # missing, or older than AutoresetMode
    raise UserError("learned rewards need Gymnasium 1.1 or newer: pip install 'timerewarder[rl]'") from error

from timerewarder.envs.views import Camera, Frame, vector_view, view  # it needs Gymnasium as well

SUCCESS = ("success", "is_success")  # what environments call it in their info
RESET_FIRST = "call reset() before step(): an episode's rewards begin at its first frame"


class LearnedReward(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Rewards an environment's steps by what its frames show.

    `reward` is a fitted model, its folder, or its name on the Hub. `alpha` is the weight of success: a number, or
    "adaptive" or "robust", which make it ten times a large step of the learned reward (rewards/alpha.py). `camera` says
    where frames come from: None for `env.render()`, the name of a camera for Meta-World and for Gymnasium's MuJoCo
    environments, or a function of the environment that gives a frame uint8 (H, W, 3), for instance one that was drawn
    for the observation already.

    Two guards keep a policy from being paid for what is no progress (rewards/familiarity.py); neither is in the paper.
    `familiar` counts frames as no progress that are so many times as far from the training videos as the validation
    videos at their farthest; `anchored` lets the sum of steps be what the model sees from the first frame on.

    `info` gains `task_reward` (what the environment itself returned), `success` (the environment's `success` or
    `is_success`; False if it tells neither), `learned_reward` and `alpha`. `self.alpha.record` tells what set alpha.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        reward: FrameReward | str | Path,
        alpha: AlphaRule = "adaptive",
        camera: Camera = None,
        familiar: float | None = None,
        anchored: bool = False,
    ) -> None:
        RecordConstructorArgs.__init__(
            self, reward=reward, alpha=alpha, camera=camera, familiar=familiar, anchored=anchored,
            _disable_deepcopy=True,
        )  # fmt: skip
        gymnasium.Wrapper.__init__(self, env)
        self.alpha = Alpha(alpha)
        self._draw = view(env, camera)
        self._model = _loaded(reward)
        self._guard = _Guard(self._model, familiar, anchored)
        self._stream = self._guard.stream()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._stream.begin(self._model.encode(self._draw()[None])[0])
        self.alpha.end_trajectory()  # of an episode that was left before its end
        return observation, self._told(info, task_reward=0.0, learned=0.0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._stream.features is None:
            raise UserError(RESET_FIRST)
        observation, task_reward, terminated, truncated, info = self.env.step(action)
        frame = self._draw()[None]
        learned = self._stream.arrive(self._model.encode(frame)[0], bool(self._guard.knows(frame)[0]))
        self.alpha.see(learned)
        info = self._told(info, float(task_reward), learned)
        if terminated or truncated:
            self.alpha.end_trajectory()
        return observation, learned + info["alpha"] * info["success"], terminated, truncated, info

    @property
    def features(self) -> NDArray[np.float32]:
        """What the reward's encoder made of the present frame, (D,)."""
        assert self._stream.features is not None, RESET_FIRST
        return self._stream.features.cpu().numpy()

    @property
    def features_dim(self) -> int:
        return self._model.encoder.dim

    def _told(self, info: dict[str, Any], task_reward: float, learned: float) -> dict[str, Any]:
        success = any(bool(info.get(key)) for key in SUCCESS)
        added = {"task_reward": task_reward, "success": success, "learned_reward": learned, "alpha": self.alpha.value}
        return {**info, **added}


class VectorLearnedReward(VectorWrapper):
    """Rewards the steps of many environments by what their frames show; one alpha for all of them.

    As LearnedReward, with arrays (num_envs,). `camera` is None for `envs.render()`, or a function of `envs` that gives
    a frame for each. The four entries of `infos` tell about the step that is rewarded, however episodes are reset:

    - NEXT_STEP: the step that only resets a sub-environment begins its next trajectory and is worth 0;
    - SAME_STEP: what is drawn after an episode's last step is already the next one's first frame, so the
      sub-environments have to keep their last ones: make each of them `FinalFrame(env)`;
    - DISABLED: `reset(options={"reset_mask": mask})` begins new trajectories where the mask is True.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        reward: FrameReward | str | Path,
        alpha: AlphaRule = "adaptive",
        camera: Callable[[Any], Sequence[Frame]] | None = None,
        familiar: float | None = None,
        anchored: bool = False,
    ) -> None:
        super().__init__(envs)
        self.alpha = Alpha(alpha)
        self._mode = _autoreset_mode(envs)
        self._draw = vector_view(envs, camera)
        self._reward = _loaded(reward)
        self._guard = _Guard(self._reward, familiar, anchored)
        self._trajectories = [self._guard.stream() for _ in range(envs.num_envs)]
        self._ended = np.zeros(envs.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        everything = np.ones(self.num_envs, np.bool_)
        mask = (options or {}).get("reset_mask", everything)  # read now: Gymnasium takes it out of the options
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # Sync's and Async's
        drawn = self._draw()[mask]
        for env, feature in zip(np.flatnonzero(mask).tolist(), self._reward.encode(drawn), strict=True):
            self._trajectories[env].begin(feature)
            self.alpha.end_trajectory(env)
        self._ended[mask] = False
        nothing = np.zeros(self.num_envs)
        return observations, self._told(infos, nothing, _successes(infos, self.num_envs), nothing)

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Any, Any, dict[str, Any]]:
        if any(trajectory.features is None for trajectory in self._trajectories):
            raise UserError(RESET_FIRST)
        observations, task_rewards, terminations, truncations, infos = self.env.step(actions)
        ended = np.logical_or(terminations, truncations)
        never = np.zeros_like(ended)
        only_reset = self._ended if self._mode is AutoresetMode.NEXT_STEP else never
        also_reset = ended if self._mode is AutoresetMode.SAME_STEP else never
        learned = self._learned(only_reset, also_reset, infos)
        for env in np.flatnonzero(~only_reset).tolist():
            self.alpha.see(learned[env], env)
        for env in np.flatnonzero(ended).tolist():
            self.alpha.end_trajectory(env)
        self._ended = ended
        success = _successes(infos, self.num_envs)
        if also_reset.any():
            success = np.where(also_reset, _successes(infos.get("final_info", {}), self.num_envs), success)
        rewards = learned + self.alpha.value * (success & ~only_reset)
        infos = self._told(infos, np.array(task_rewards, np.float64), success, learned)
        return observations, rewards, terminations, truncations, infos

    def _learned(
        self, only_reset: NDArray[np.bool_], also_reset: NDArray[np.bool_], infos: dict[str, Any]
    ) -> NDArray[np.float64]:
        """Learned rewards (num_envs,) of a step, from one encode: what is drawn now, and last frames that are not."""
        drawn = self._draw()
        frames = np.concatenate([drawn, _final_frames(infos, also_reset, drawn)]) if also_reset.any() else drawn
        features, known = self._reward.encode(frames), self._guard.knows(frames)
        known_arrived = known[: self.num_envs].copy()
        known_arrived[also_reset] = known[self.num_envs :]
        now, arrived = features[: self.num_envs], features[: self.num_envs].clone()
        arrived[torch.from_numpy(also_reset)] = features[self.num_envs :]
        learned = np.zeros(self.num_envs)
        for env, trajectory in enumerate(self._trajectories):
            if not only_reset[env]:
                learned[env] = trajectory.arrive(arrived[env], bool(known_arrived[env]))
            if only_reset[env] or also_reset[env]:
                trajectory.begin(now[env])
        return learned

    def _told(
        self,
        infos: dict[str, Any],
        task_rewards: NDArray[np.float64],
        success: NDArray[np.bool_],
        learned: NDArray[np.float64],
    ) -> dict[str, Any]:
        """`infos` with the four entries, each with Gymnasium's mask of the sub-environments that have it."""
        alpha = np.full(self.num_envs, self.alpha.value)
        added = {"task_reward": task_rewards, "success": success, "learned_reward": learned.copy(), "alpha": alpha}
        masks = {f"_{key}": np.ones(self.num_envs, np.bool_) for key in added}
        return {**infos, **added, **masks}


class FinalFrame(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Puts the last frame of an episode into its `info["final_frame"]`, uint8 (H, W, 3), before anything is reset.

    For the sub-environments of a vector environment with AutoresetMode.SAME_STEP; `camera` as for LearnedReward.
    """

    keeps_final_frame = True  # what VectorLearnedReward asks sub-environments in other processes for

    def __init__(self, env: gymnasium.Env[Any, Any], camera: Camera = None) -> None:
        RecordConstructorArgs.__init__(self, camera=camera)
        gymnasium.Wrapper.__init__(self, env)
        self._draw = view(env, camera)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "final_frame": np.array(self._draw())}
        return observation, reward, terminated, truncated, info


class _Guard:
    """Which frames count, and what the sum of steps keeps to; without options, all of them, and nothing."""

    def __init__(self, reward: FrameReward, familiar: float | None, anchored: bool) -> None:
        if (familiar is not None or anchored) and not reward.is_value:
            raise UserError(
                f"rewards of {reward.method} are not the steps of a value, so nothing guards their sum: leave out "
                "familiar and anchored (--familiar None --no-anchored)"
            )
        if anchored and reward.history:
            raise UserError(
                f"this model sees {reward.history} past frames with each one, and anchored compares a frame with the "
                "first one alone: leave out anchored (--no-anchored)"
            )
        if familiar is not None and not familiar > 0:
            raise UserError(f"familiar={familiar} knows no frame: give more than 0, or None")
        self._reward, self._pre = reward, reward.preprocessing
        self._familiarity = None if familiar is None else reward.familiarity
        self._tolerance = familiar or 1.0
        self._anchored = anchored

    def knows(self, frames: Frame) -> NDArray[np.bool_]:
        """Frames uint8 (T, H, W, 3) as they are drawn -> bool (T,)."""
        if self._familiarity is None:
            return np.ones(len(frames), np.bool_)
        return self._familiarity(resize(frames, self._pre.size, self._pre.how), self._tolerance)

    def stream(self) -> Guarded:
        return Guarded(self._reward.stream(), self._anchored)


def _loaded(reward: FrameReward | str | Path) -> FrameReward:
    if isinstance(reward, str | Path):
        return load(reward)
    if not isinstance(reward, FrameReward):
        raise UserError(
            f"{type(reward).__name__} is no reward model: give what timerewarder.fit returned, or its folder"
        )
    return reward


def _autoreset_mode(envs: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """When `envs` resets ended episodes; where that is in the same step, last frames have to be kept."""
    mode, base = envs.metadata.get("autoreset_mode"), envs.unwrapped
    if not isinstance(mode, AutoresetMode):
        raise UserError(
            f"{type(base).__name__} does not tell when it resets: "
            "set envs.metadata['autoreset_mode'] to one of gymnasium.vector.AutoresetMode"
        )
    if mode is AutoresetMode.SAME_STEP and hasattr(base, "call"):
        _check_final_frames(all(base.call("has_wrapper_attr", "keeps_final_frame")))
    return mode


def _check_final_frames(kept: bool) -> None:
    if not kept:
        raise UserError(
            "AutoresetMode.SAME_STEP resets before the last frame of an episode is drawn: make each sub-environment "
            "timerewarder.FinalFrame(env), or use AutoresetMode.NEXT_STEP"
        )


def _final_frames(infos: dict[str, Any], ended: NDArray[np.bool_], drawn: Frame) -> Frame:
    """The last frames of the episodes that ended, uint8 (count, H, W, 3), as FinalFrame kept them."""
    final = infos.get("final_info", {})
    _check_final_frames("final_frame" in final)
    frames: Frame = final["final_frame"][ended]
    if frames.shape[1:] != drawn.shape[1:]:
        raise UserError(
            f"last frames are {frames.shape[1:3]} and others {drawn.shape[1:3]} pixels: give FinalFrame the same camera"
        )
    return frames


def _successes(infos: dict[str, Any], count: int) -> NDArray[np.bool_]:
    """Success (count,) from a vector environment's infos; False where a sub-environment tells nothing."""
    success = np.zeros(count, np.bool_)
    for key in SUCCESS:
        if key in infos:
            success |= np.asarray(infos[key]).astype(np.bool_) & infos.get(f"_{key}", True)
    return success
