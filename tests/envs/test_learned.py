"""The wrappers: what `score` gives, frame by frame, from any camera, and what bad input gets."""

import importlib
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from tests.conftest import SIZE
from tests.envs.sliding import Slide, makers, rightwards
from timerewarder.envs.learned import FinalFrame, LearnedReward, VectorLearnedReward
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.errors import UserError


def quiet_check(env):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is wrapped, that Meta-World's observations are unbounded
        check_env(env)


def test_the_rewards_of_an_episode_are_its_scores(reward):
    env = LearnedReward(Slide(steps=9), reward, alpha=0.5)
    for seed in range(2):
        env.reset(seed=seed)
        frames, results = [env.render()], []
        for action in rightwards(9)[:, 0]:
            results.append(env.step(action))
            frames.append(env.render())
        learned = [info["learned_reward"] for *_, info in results]
        assert np.allclose(learned, reward.score(np.stack(frames))[1:], atol=1e-5)
        assert np.ptp(learned) > 1e-3  # a hundred times the tolerance
        success = [info["success"] for *_, info in results]
        assert True in success
        assert False in success
        assert [result[1] for result in results] == [r + 0.5 * s for r, s in zip(learned, success, strict=True)]
        assert [result[3] for result in results] == [False] * 8 + [True]


def test_in_metaworld_too(plain):
    env = LearnedReward(MetaWorld("drawer-open", size=SIZE, horizon=40), plain, alpha=2)
    env.reset(seed=3)
    frames, learned = [env.render()], []
    for _ in range(20):
        _, reward, _, _, info = env.step(env.unwrapped.expert_action())
        frames.append(env.render())
        learned.append(info["learned_reward"])
        assert reward == info["learned_reward"] + 2 * info["success"]
        assert info["task_reward"] > 0
    assert np.allclose(learned, plain.score(np.stack(frames))[1:], atol=1e-5)
    assert np.ptp(learned) > 1e-3  # a hundred times the tolerance
    env.close()


def test_one_encode_a_step(plain, encoded):
    env = LearnedReward(Slide(), plain)
    env.reset(seed=0)
    for action in rightwards(3)[:, 0]:
        env.step(action)
    assert encoded == [1, 1, 1, 1]


@pytest.mark.parametrize("tells", ["success", "is_success", None])
def test_info_keeps_what_the_environment_tells(plain, tells):
    own, wrapped = Slide(tells=tells), LearnedReward(Slide(tells=tells), plain, alpha=2)
    _, info = own.reset(seed=0)
    _, told = wrapped.reset(seed=0)
    added = {"task_reward": 0.0, "success": False, "learned_reward": 0.0, "alpha": 2.0}
    assert told == {**info, **added}
    for action in rightwards(6)[:, 0]:
        observation, task_reward, *ends, info = own.step(action)
        seen, reward, *wrapped_ends, told = wrapped.step(action)
        success = bool(tells and info[tells])
        learned = reward - 2 * success
        assert np.array_equal(seen, observation)
        assert wrapped_ends == ends
        added = {"task_reward": task_reward, "success": success, "learned_reward": pytest.approx(learned), "alpha": 2.0}
        assert told == {**info, **added}
        assert type(reward) is float
        assert type(told["success"]) is bool
    assert success == (tells is not None)


def test_adaptive_alpha_weighs_success_by_the_largest_reward(plain):
    env = LearnedReward(Slide(steps=4), plain)
    largest, seen = 0.0, []
    for seed, steps in enumerate((4, 2, 4)):  # the second episode is left before its end
        env.reset(seed=seed)
        for action in rightwards(4)[:steps, 0]:
            _, reward, _, _, info = env.step(action)
            seen.append(info["learned_reward"])
            largest = max(largest, info["learned_reward"])
            assert info["alpha"] == 10 * largest
            assert reward == info["learned_reward"] + 10 * largest * info["success"]
    assert env.alpha.record["trajectories"] == 3
    place = int(np.argmax(seen))
    trajectory, first = max((number, first) for number, first in enumerate((0, 4, 6)) if first <= place)
    assert env.alpha.record["set_by"] == {"reward": largest, "trajectory": trajectory, "step": place - first + 1}


def test_a_model_by_its_folder(plain, tmp_path):
    plain.save(tmp_path / "model")
    rewards = []
    for given in (plain, tmp_path / "model", str(tmp_path / "model")):
        env = LearnedReward(Slide(), given, alpha=0)
        env.reset(seed=0)
        rewards.append([env.step(action)[1] for action in rightwards(4)[:, 0]])
    assert rewards[0] == rewards[1] == rewards[2]


@pytest.mark.parametrize(
    "make", [Slide, lambda: gymnasium.make("test/Slide-v0"), lambda: MetaWorld("drawer-open", size=SIZE)]
)
def test_gymnasiums_checker_passes(plain, make):
    env = LearnedReward(make(), plain)
    quiet_check(env)
    env.close()


# Cameras


def test_a_camera_may_be_a_function(plain):
    upside_down = LearnedReward(
        Slide(render_mode=None), plain, alpha=0, camera=lambda env: env.unwrapped.render()[::-1]
    )
    upside_down.reset(seed=0)
    frames, learned = [upside_down.unwrapped.render()[::-1]], []
    for action in rightwards(4)[:, 0]:
        learned.append(upside_down.step(action)[1])
        frames.append(upside_down.unwrapped.render()[::-1])
    assert np.allclose(learned, plain.score(np.stack(frames))[1:], atol=1e-5)


def test_a_metaworld_camera_by_name(plain):
    """The reward sees that camera; the environment goes on showing its own."""
    own, other = MetaWorld("drawer-open", size=SIZE), MetaWorld("drawer-open", size=SIZE, camera="corner2")
    rewards, pictures = [], []
    for env, camera in ((own, "corner2"), (other, None), (own, "paper-corner"), (own, None)):
        wrapped = LearnedReward(env, plain, alpha=0, camera=camera)
        wrapped.reset(seed=0)
        rewards.append([wrapped.step(env.expert_action())[1] for _ in range(6)])
        pictures.append(wrapped.render())
    assert rewards[0] == rewards[1]
    assert rewards[0] != rewards[3]
    assert own.camera.name != "corner2"
    assert np.array_equal(pictures[0], pictures[3])
    assert not np.array_equal(pictures[0], pictures[1])
    own.close()
    other.close()


class Ball(MujocoEnv):
    """A falling ball between two cameras."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, path, **options):
        space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        super().__init__(str(path), 5, space, render_mode="rgb_array", width=SIZE, height=SIZE, **options)

    def reset_model(self):
        self.set_state(self.init_qpos, self.init_qvel)
        return self.data.qpos.copy()

    def step(self, action):
        self.do_simulation(action, self.frame_skip)
        return self.data.qpos.copy(), 0.0, False, False, {}


@pytest.fixture
def ball(tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text(
        """<mujoco><worldbody><light pos="0 -1 2"/>
        <camera name="near" pos="0 -1 0" xyaxes="1 0 0 0 0 1"/><camera name="far" pos="0 -3 0" xyaxes="1 0 0 0 0 1"/>
        <body><joint name="fall" type="slide" axis="0 0 1"/><geom size="0.3" rgba="1 0 0 1"/></body></worldbody>
        <actuator><motor joint="fall" ctrlrange="-1 1"/></actuator></mujoco>"""
    )
    return path


def test_a_mujoco_camera_by_name(plain, ball):
    rewards, pictures = [], []
    for own, camera in (("near", None), ("near", "far"), ("far", None)):
        env = LearnedReward(Ball(ball, camera_name=own), plain, alpha=0, camera=camera)
        env.reset(seed=0)
        rewards.append([env.step(np.zeros(1))[1] for _ in range(5)])
        pictures.append(env.render())
        env.close()
    assert rewards[1] == rewards[2]
    assert rewards[0] != rewards[1]
    assert np.array_equal(pictures[0], pictures[1])
    with pytest.raises(UserError, match="'drone': choose one of near, far"):
        LearnedReward(Ball(ball), plain, camera="drone")


@pytest.mark.parametrize("guard", [{"familiar": 1.25}, {"anchored": True}])
def test_what_is_no_value_cannot_be_guarded(plain, monkeypatch, guard):
    monkeypatch.setattr(type(plain), "is_value", False)
    with pytest.raises(UserError, match="not the steps of a value"):
        LearnedReward(Slide(), plain, **guard)


@pytest.mark.parametrize("familiar", [0.0, -1.0, float("nan")])
def test_a_guard_that_knows_nothing_is_refused(plain, familiar):
    with pytest.raises(UserError, match="knows no frame: give more than 0"):
        LearnedReward(Slide(), plain, familiar=familiar)


def test_single_frames_cannot_anchor_a_model_that_sees_the_past(plain, monkeypatch):
    monkeypatch.setattr(plain, "history", 2)
    with pytest.raises(UserError, match=r"sees 2 past frames .* leave out anchored"):
        LearnedReward(Slide(), plain, anchored=True)


def test_the_guard_takes_back_what_is_out_of_sight(knowing):
    def rewards(**guard):
        env = LearnedReward(Slide(steps=8), knowing, 0.0, **guard)
        env.reset(seed=5)
        return np.array([env.step(np.ones(1))[1] for _ in range(8)])

    free, familiar = rewards(), rewards(familiar=1.25)
    assert np.allclose(familiar[0], free[0])
    assert (familiar[-3:] == 0).all()
    assert (free[-3:] != 0).any()
    assert familiar.sum() == pytest.approx(0, abs=1e-6)


# Bad input


class Painted(Slide):
    """Draws what it is told to."""

    def __init__(self, picture):
        super().__init__()
        self.picture = picture

    def render(self):
        return self.picture


BAD_PICTURES = [
    (None, "NoneType"),
    (np.zeros((8, 8, 3), np.float32), "float32"),
    (np.zeros((8, 8), np.uint8), r"\(8, 8\)"),
    (np.zeros((8, 8, 4), np.uint8), r"\(8, 8, 4\)"),
]


@pytest.mark.parametrize(("picture", "found"), BAD_PICTURES)
def test_frames_must_be_frames(plain, picture, found):
    message = f"Painted draws.*{found}.*uint8 .H, W, 3. is needed: give a camera"
    with pytest.raises(UserError, match=message):
        LearnedReward(Painted(picture), plain).reset()
    with pytest.raises(UserError, match=message.replace("Painted", "SyncVectorEnv")):
        VectorLearnedReward(SyncVectorEnv([lambda: Painted(picture)]), plain).reset()


@pytest.mark.parametrize("mode", [None, "human"])
def test_an_environment_must_render(plain, mode):
    for wrapped in (
        lambda: LearnedReward(Slide(render_mode=mode), plain),
        lambda: FinalFrame(Slide(render_mode=mode)),
        lambda: VectorLearnedReward(SyncVectorEnv([lambda: Slide(render_mode=mode)]), plain),
    ):
        with pytest.raises(UserError, match="make it with render_mode='rgb_array'"):
            wrapped()


def test_reset_comes_first(plain):
    with pytest.raises(UserError, match=r"call reset\(\)"):
        LearnedReward(Slide(), plain).step(np.zeros(1))
    with pytest.raises(UserError, match=r"call reset\(\)"):
        VectorLearnedReward(SyncVectorEnv(makers(False)), plain).step(np.zeros((3, 1)))


def test_unknown_cameras(plain):
    with pytest.raises(UserError, match=r"Slide has no cameras by name.*leave camera out"):
        LearnedReward(Slide(), plain, camera="corner")
    with pytest.raises(UserError, match="unknown camera 'drone': choose one of"):
        LearnedReward(MetaWorld("drawer-open"), plain, camera="drone")
    with pytest.raises(UserError, match="make its sub-environments with that camera"):
        VectorLearnedReward(SyncVectorEnv(makers(False)), plain, camera="corner")


def test_bad_alpha_and_bad_reward(plain, tmp_path):
    for wrap, env in ((LearnedReward, Slide()), (VectorLearnedReward, SyncVectorEnv(makers(False)))):
        with pytest.raises(UserError, match="adaptive, robust"):
            wrap(env, plain, alpha=-1)
        with pytest.raises(UserError, match="no model"):
            wrap(env, tmp_path / "nowhere")
        with pytest.raises(UserError, match="function is no reward model"):
            wrap(env, lambda frames: frames)


# What must be installed


def import_anew(monkeypatch, missing):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "timerewarder.envs.learned")
    return importlib.import_module("timerewarder.envs.learned")


def test_gymnasium_is_named_when_it_is_missing(monkeypatch):
    with pytest.raises(UserError, match=r"pip install 'timerewarder\[rl\]'"):
        import_anew(monkeypatch, ["gymnasium"])


def test_gymnasium_suffices(monkeypatch, plain):
    monkeypatch.delitem(sys.modules, "timerewarder.envs.metaworld")
    learned = import_anew(monkeypatch, ["mujoco", "metaworld", "timerewarder.envs.simulator"])
    env = learned.LearnedReward(Slide(), plain)
    env.reset(seed=0)
    assert env.step(np.ones(1))[4]["learned_reward"] != 0
