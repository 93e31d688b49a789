"""Meta-World's tasks as a Gymnasium environment under the paper's protocol.

An episode is fixed by its seed: hand, objects and goal are drawn anew at each reset, from ranges wider than
Meta-World's own unless told otherwise, and the goal is left out of the observation. One step repeats its action, and an
episode ends after `horizon // action_repeat` steps (125 environment steps are 62 agent steps, as in the paper).

Physics is Meta-World's, bit for bit: the same start and the same actions give the same states whether or not frames are
drawn. Two of its flaws are mended around it. Its objects and goal marks keep the place of the last episode until the
next one moves them, so the model is restored before each reset and an episode does not depend on those before it. And
after a reset it reports positions from before the objects were put in place (window-close begins with a closed window
in sight), so positions are computed once more before the first observation and frame.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timerewarder.envs import tasks
from timerewarder.envs.rendering import MODES, Renderer
from timerewarder.envs.simulator import ENVIRONMENTS, POLICIES, gymnasium, mujoco
from timerewarder.errors import UserError

GOAL = slice(36, 39)  # of Meta-World's observation, after 18 numbers of now and the same 18 of one step earlier


@dataclass(frozen=True)
class Start:
    """Where an episode began: the hand (3,) and Meta-World's random vector (objects, goal), in metres."""

    hand: NDArray[np.float64]
    vector: NDArray[np.float64]


class MetaWorld(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """A Meta-World task; `render()` gives uint8 (size, size, 3).

    Observations are Meta-World's 39 numbers: hand, gripper and objects, the same one environment step earlier, and
    zeros for the goal. Actions are 4 numbers in [-1, 1]: a move of the hand and the gripper's effort. The reward is
    Meta-World's dense one, summed over the repeated action, also in `info["task_reward"]`; `info["success"]` is whether
    the task was solved in any of the repeated steps. Frames show what Meta-World draws, the mark of its goal included.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  (Gymnasium's name and form)

    def __init__(
        self,
        task: str,
        camera: str | None = None,
        size: int = 84,
        action_repeat: int = 2,
        ranges: str = "wide",
        render: str = "fast",
        horizon: int | None = None,
        render_mode: str | None = "rgb_array",
    ) -> None:
        self.task = tasks.task(task)
        self.camera = tasks.camera(camera or self.task.camera)
        self.ranges = self.task.ranges(ranges)
        self.horizon = self.task.horizon if horizon is None else horizon
        if render not in MODES:
            raise UserError(f"unknown render mode {render!r}: choose one of {', '.join(MODES)}")
        if action_repeat < 1 or self.horizon < action_repeat:
            raise UserError(
                f"horizon {self.horizon} with action repeat {action_repeat} leaves no step: "
                "give an action repeat of at least 1 and a horizon not below it"
            )
        self.size, self.action_repeat, self.render_mode = size, action_repeat, render_mode
        self._render = render
        self._renderer: Renderer | None = None  # made at the first frame: an agent that sees states needs no OpenGL
        self._frame: NDArray[np.uint8] | None = None  # of the present state, once drawn
        self.env = ENVIRONMENTS[f"{self.task.name}-v3"]()
        self.env.max_path_length = max(self.env.max_path_length, self.horizon)
        self.env._set_task_called = True
        self.env.seeded_rand_vec = True
        self._hand = self._around_its_own_hand() if self.ranges.hand is None else np.array(self.ranges.hand)
        if self.ranges.start is not None:
            low, high = (np.array(corner) for corner in self.ranges.start)
            self.env._random_reset_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self._body_pos, self._site_pos = self.env.model.body_pos.copy(), self.env.model.site_pos.copy()
        self.start: Start | None = None
        self._steps = self._closing = 0  # agent steps so far; environment steps since the gripper began to close
        self._observation = np.zeros(39)
        self.metadata = {**self.metadata, "render_fps": round(1 / (tasks.STEP_SECONDS * action_repeat))}
        unbounded = np.full(39, np.inf)
        self.observation_space = gymnasium.spaces.Box(-unbounded, unbounded, dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), dtype=np.float32)

    def _around_its_own_hand(self) -> NDArray[np.float64]:
        """The box of hand starts around Meta-World's own, (2, 3); without a spread, that one spot twice."""
        own, spread = np.array(self.env.hand_init_pos, np.float64), np.array(self.ranges.spread)
        low, high = np.maximum(own - spread, self.env.mocap_low), np.minimum(own + spread, self.env.mocap_high)
        return np.stack([np.minimum(own, low), np.maximum(own, high)])  # its own may lie beyond

    @property
    def episode_steps(self) -> int:
        """Agent steps of a whole episode."""
        return self.horizon // self.action_repeat

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        env, self._frame = self.env, None
        env.model.body_pos[:], env.model.site_pos[:] = self._body_pos, self._site_pos
        env.curr_path_length, self._steps, self._closing = 0, 0, 0
        hand = np.asarray(self.np_random.uniform(*self._hand))
        env.hand_init_pos = hand
        # As SawyerXYZEnv.reset does: the model is reset twice, because the first time the hand moves around the old
        # objects. The first draws the start (and draws again while the task finds it impossible), the second keeps it.
        env.np_random, env._freeze_rand_vec = self.np_random, False
        env.reset_model()
        env._freeze_rand_vec = True
        self.start = Start(hand, np.array(env._last_rand_vec))
        if self.ranges.places is not None:
            env.model.body(self.ranges.places).pos[:2] = self.start.vector[:2]
        mujoco.mj_resetData(env.model, env.data)
        env.reset_model()
        self._refresh_positions()
        self._policy: Any = POLICIES[f"{self.task.name}-v3"]()
        return self._observation.copy(), {"success": False, "task_reward": 0.0}

    def _refresh_positions(self) -> None:
        """Compute what follows from the joint positions: bodies, cameras, lights; and from it the observation."""
        for compute in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_camlight):
            compute(self.env.model, self.env.data)
        now = self.env._get_curr_obs_combined_no_goal()
        self.env._prev_obs = now
        self._observation = np.concatenate([now, now, np.zeros(3)])

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        if self.start is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        action = np.asarray(action, np.float32)
        self._frame = None
        reward, success = 0.0, False
        for _ in range(self.action_repeat):
            self._observation, step_reward, _, _, info = self.env.step(action)
            reward += float(step_reward)
            success = success or bool(info["success"])
        self._steps += 1
        self._closing = self._closing + self.action_repeat if action[3] > 0 else 0
        truncated = self._steps >= self.episode_steps
        return self._observation.copy(), reward, False, truncated, {"success": success, "task_reward": reward}

    def expert_observation(self) -> NDArray[np.float64]:
        """Privileged: the present observation with the goal filled in, as the scripted policies need it, (39,)."""
        observation = self._observation.copy()
        observation[GOAL] = self.env._get_pos_goal()
        return observation

    def expert_action(self, observation: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Privileged: what Meta-World's scripted policy does now, (4,) in [-1, 1], not rising before its grip is firm.

        `observation` (39,) with the goal may stand in for the true one, to mislead the policy.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the policies warn of actions beyond 1, and count on their being clipped
            action = self._policy.get_action(self.expert_observation() if observation is None else observation)
        if action[3] > 0 and self._closing < self.task.patience:
            action[2] = min(action[2], 0.0)
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def simulator_state(self) -> NDArray[np.float64]:
        """Joint positions and velocities, (nq + nv,)."""
        return self.env.state_vector()

    def render(self) -> NDArray[np.uint8]:
        """The present frame, uint8 (size, size, 3); drawn once, however often a step's frame is asked for."""
        if self._renderer is None:
            self._renderer = Renderer(self.env.model, self.camera, self.size, self._render)
        if self._frame is None:
            self._frame = self._renderer(self.env.data)
        return self._frame.copy()

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
