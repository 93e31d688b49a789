"""Many environments at once: what each of them gets alone, in one encode a step, however episodes are reset."""

import json

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from tests.envs.sliding import Slide, makers, rightwards
from timerewarder.envs.learned import FinalFrame, LearnedReward, VectorLearnedReward
from timerewarder.errors import UserError
from timerewarder.rewards.alpha import Alpha

MODES = list(AutoresetMode)


def vector(kind, mode, reward, alpha=2.0, count=3, **limit):
    envs = kind(makers(mode is AutoresetMode.SAME_STEP, count), autoreset_mode=mode)
    return VectorLearnedReward(envs, reward, alpha, **limit)


def single_step(env, action, mode, ended):
    """What a vector environment does in a step, with one wrapped environment: its result, and whether it ended."""
    if ended:  # NEXT_STEP: the action is lost. DISABLED: the user resets between two steps.
        env.reset()
        if mode is AutoresetMode.NEXT_STEP:
            return {"reward": 0.0, "learned_reward": 0.0, "success": False, "task_reward": 0.0}, False
    _, reward, terminated, truncated, info = env.step(action)
    if mode is AutoresetMode.SAME_STEP and (terminated or truncated):
        env.reset()
        truncated = False
    return {"reward": reward, **{key: info[key] for key in ("learned_reward", "success", "task_reward")}}, truncated


def compare_with_singles(kind, mode, reward, steps, **limit):
    envs = vector(kind, mode, reward, **limit)
    singles = [LearnedReward(make(), reward, 2.0, **limit) for make in makers(False)]
    _, infos = envs.reset(seed=5)
    assert not infos["learned_reward"].any()
    for seed, env in enumerate(singles):
        env.reset(seed=5 + seed)
    ended, finished = np.zeros(3, bool), 0
    for actions in rightwards(steps, 3):
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        _, rewards, terminations, truncations, infos = envs.step(actions)
        results = [single_step(singles[i], actions[i], mode, ended[i]) for i in range(3)]
        ended = np.array([end for _, end in results])
        finished += (terminations | truncations).sum()
        assert np.allclose(rewards, [result["reward"] for result, _ in results], atol=1e-5)
        for key in ("learned_reward", "success", "task_reward"):
            assert np.allclose(infos[key], [result[key] for result, _ in results], atol=1e-5)
            assert infos[f"_{key}"].all()
    assert finished >= 5
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_equals_its_environments_one_by_one(mode, reward):
    compare_with_singles(SyncVectorEnv, mode, reward, steps=14)


@pytest.mark.parametrize("mode", MODES)
def test_guarded_vectors_equal_guarded_environments(mode, knowing):
    compare_with_singles(SyncVectorEnv, mode, knowing, steps=14, familiar=1.25, anchored=True)


@pytest.mark.parametrize("mode", MODES)
def test_in_processes_of_their_own_too(mode, plain):
    compare_with_singles(AsyncVectorEnv, mode, plain, steps=10)


@pytest.mark.parametrize("mode", MODES)
def test_one_batched_encode_a_step(mode, plain, encoded):
    envs = vector(SyncVectorEnv, mode, plain)
    envs.reset(seed=0)
    for actions in rightwards(3, 3):
        _, _, _, truncations, _ = envs.step(actions)
    # A last frame and the next first frame both count when they come in the same step.
    assert encoded == [3, 3, 3, 4 if mode is AutoresetMode.SAME_STEP else 3]
    assert truncations.tolist() == [True, False, False]
    if mode is AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": truncations})
        assert encoded[-1] == 1


@pytest.mark.parametrize("mode", MODES)
def test_one_alpha_for_all(mode, plain):
    envs = vector(SyncVectorEnv, mode, plain, alpha="adaptive")
    by_hand, ended = Alpha("adaptive"), np.zeros(3, bool)
    envs.reset(seed=0)
    for actions in rightwards(12, 3):
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        _, rewards, _, truncations, infos = envs.step(actions)
        for env in range(3):
            if not (mode is AutoresetMode.NEXT_STEP and ended[env]):
                by_hand.see(infos["learned_reward"][env], env)
        for env in np.flatnonzero(truncations).tolist():
            by_hand.end_trajectory(env)
        ended = truncations
        assert infos["alpha"].tolist() == [by_hand.value] * 3
        assert np.allclose(rewards, infos["learned_reward"] + by_hand.value * infos["success"])
    assert json.loads(json.dumps(envs.alpha.state())) == by_hand.state()
    assert by_hand.value > 0


class Solved(Slide):
    """Calls itself solved from the start."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "success": True}


def test_a_step_that_only_resets_is_worth_nothing(plain):
    envs = VectorLearnedReward(SyncVectorEnv([lambda: Solved(steps=1)]), plain, alpha=2)
    _, infos = envs.reset(seed=0)
    assert infos["success"].tolist() == [True]
    envs.step(np.ones((1, 1)))
    _, rewards, _, _, infos = envs.step(np.ones((1, 1)))
    assert infos["success"].tolist() == [True]
    assert rewards.tolist() == infos["learned_reward"].tolist() == infos["task_reward"].tolist() == [0]


@pytest.mark.parametrize("steps", [1, 3])
def test_the_user_may_reset_at_any_time(plain, steps):
    """After the end of an episode, before the vector environment does it by itself, or in the middle of one."""
    envs = VectorLearnedReward(SyncVectorEnv([lambda: Slide(steps)] * 2), plain, "adaptive")
    for seed in range(3):
        envs.reset(seed=seed)
        _, _, _, truncations, infos = envs.step(np.ones((2, 1)))
        assert truncations.all() == (steps == 1)
        assert infos["learned_reward"].all()
    envs.reset()
    assert envs.alpha.record["trajectories"] == 6


def test_infos_keep_what_the_environments_tell(plain):
    own, wrapped = SyncVectorEnv(makers(False)), VectorLearnedReward(SyncVectorEnv(makers(False)), plain)
    own.reset(seed=0)
    wrapped.reset(seed=0)
    for actions in rightwards(5, 3):
        *expected, infos = own.step(actions)
        *results, told = wrapped.step(actions)
        for index in (0, 2, 3):
            assert np.array_equal(results[index], expected[index])
        assert np.array_equal(told["task_reward"], expected[1])
        assert np.array_equal(told["height"], infos["height"])
        assert np.array_equal(told["_height"], infos["_height"])


def test_a_vector_camera_may_be_a_function(plain):
    envs = [
        VectorLearnedReward(SyncVectorEnv(makers(False)), plain, 0, camera)
        for camera in (None, lambda envs: [frame[::-1] for frame in envs.render()])
    ]
    for each in envs:
        each.reset(seed=0)
    straight, flipped = ([each.step(actions)[1] for actions in rightwards(3, 3)] for each in envs)
    assert np.abs(np.array(straight) - flipped).max() > 1e-3


# Bad input


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_resetting_in_the_same_step_needs_final_frames(kind, plain):
    envs = kind(makers(False, 2), autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(UserError, match=r"FinalFrame\(env\), or use AutoresetMode.NEXT_STEP"):
        VectorLearnedReward(envs, plain)
    envs.close()


class Bare(VectorEnv):
    """A vector environment of another make: no list of environments, one picture for all unless told otherwise."""

    num_envs = 2
    render_mode = "rgb_array"

    def __init__(self, mode, pictures=None):
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.pictures = pictures

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, actions):
        return np.zeros(2), np.zeros(2), np.array([True, False]), np.zeros(2, bool), {}

    def render(self):
        return self.pictures


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        (None, "draws nothing for 2 sub-environments: give a camera"),
        ([np.zeros((8, 8, 3), np.uint8)], "draws 1 frames for 2 sub-environments: give a camera"),
        ([np.zeros((8, side, 3), np.uint8) for side in (8, 9)], "several sizes .*with one size"),
    ],
)
def test_a_frame_for_each_environment(plain, pictures, message):
    with pytest.raises(UserError, match=message):
        VectorLearnedReward(Bare(AutoresetMode.NEXT_STEP, pictures), plain).reset()


def test_other_vector_environments(plain):
    pictures = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(UserError, match=r"metadata\['autoreset_mode'\]"):
        VectorLearnedReward(Bare(None, pictures), plain)
    envs = VectorLearnedReward(Bare(AutoresetMode.SAME_STEP, pictures), plain)
    envs.reset()
    with pytest.raises(UserError, match="FinalFrame"):
        envs.step(np.zeros(2))


def test_final_frames_of_another_size(plain):
    makers = [lambda: FinalFrame(Slide(1), camera=lambda env: env.render()[::2])]
    envs = VectorLearnedReward(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), plain)
    envs.reset(seed=0)
    with pytest.raises(UserError, match="give FinalFrame the same camera"):
        envs.step(np.zeros((1, 1)))
