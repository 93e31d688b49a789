"""The wrappers: what `score` gives, frame by frame and for many environments at once, however episodes are reset."""

import importlib
import json
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from tests.conftest import SIZE
from timerewarder.envs.learned import FinalFrame, LearnedReward, VectorLearnedReward
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.errors import UserError
from timerewarder.rewards import from_init, timerewarder
from timerewarder.rewards.alpha import Alpha
from timerewarder.rewards.familiarity import thumbnails

MODES = list(AutoresetMode)


class Slide(gymnasium.Env):
    """A square to be pushed to the right edge, in steps of up to 0.15 of the way; success from a quarter on."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, steps=6, size=SIZE, tells="success", render_mode="rgb_array"):
        self.steps, self.size, self.tells, self.render_mode = steps, size, tells, render_mode

    def observe(self):
        return np.array([self.place, self.height], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.height, self.done = 0.0, self.np_random.uniform(), 0
        return self.observe(), {"height": self.height}

    def step(self, action):
        self.place = min(max(self.place + 0.15 * float(action[0]), 0.0), 1.0)
        self.done += 1
        success = self.place > 0.25
        info = {"height": self.height, **({self.tells: success} if self.tells else {})}
        return self.observe(), -self.place, False, self.done >= self.steps, info

    def render(self):
        picture = np.full((self.size, self.size, 3), 30, np.uint8)
        left, top = (round(share * self.size * 0.8) for share in (self.place, self.height))
        side = self.size // 5
        picture[top : top + side, left : left + side] = (240, 200, 60)
        return picture


gymnasium.register("test/Slide-v0", entry_point=Slide)


def model(method=timerewarder.TimeRewarder, **options):
    """Not fitted, but told apart: rewards of different frames differ by much more than rounding."""
    config = {timerewarder.TimeRewarder: timerewarder.Config, from_init.FromInit: from_init.Config}[method]
    torch.manual_seed(0)
    reward = method(config(image_size=SIZE, **options)).eval()
    with torch.no_grad():
        for layer in (module for module in reward.head.modules() if isinstance(module, torch.nn.Linear)):
            layer.weight.mul_(5)
    return reward


@pytest.fixture(scope="module", params=["timerewarder", "with history", "from the first frame"])
def reward(request):
    if request.param == "from the first frame":
        return model(from_init.FromInit)
    return model(history=2 if request.param == "with history" else 0)


@pytest.fixture(scope="module")
def plain():
    return model()


@pytest.fixture
def encoded(plain):
    """How many frames each call of the encoder got."""
    calls = []
    handle = plain.encoder.register_forward_hook(lambda _module, inputs, _out: calls.append(len(inputs[0])))
    yield calls
    handle.remove()


def rightwards(steps, count=1):
    """Actions (steps, count, 1) that push to the right."""
    return np.random.default_rng(0).uniform(0.3, 1, (steps, count, 1)).astype(np.float32)


def quiet_check(env):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is wrapped, that Meta-World's observations are unbounded
        check_env(env)


# One environment


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


# Many environments


def makers(final_frames, count=3):
    """Sub-environments whose episodes end at different times."""

    def make(steps):
        return FinalFrame(Slide(steps=steps)) if final_frames else Slide(steps=steps)

    return [lambda steps=steps: make(steps) for steps in range(3, 3 + count)]


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


@pytest.fixture
def knowing():
    """A model that knows the left part of the picture, and the beginning of its right part."""
    reward, env = model(), Slide()
    env.reset(seed=5)
    frames = []
    for env.place in np.linspace(0, 0.3, 10):
        frames.append(env.render())
    reward.familiarity.thumbnails = thumbnails(np.stack(frames)).byte()
    reward.familiarity.reach = torch.tensor(300.0)
    reward.record["shortest_video"] = 11
    return reward


@pytest.mark.parametrize("mode", MODES)
def test_guarded_vectors_equal_guarded_environments(mode, knowing):
    compare_with_singles(SyncVectorEnv, mode, knowing, steps=14, familiar=1.25, limit=2.0)


def test_a_model_without_a_guard_cannot_be_guarded(plain):
    with pytest.raises(UserError, match="fit it again"):
        LearnedReward(Slide(), plain, familiar=1.25)


def test_the_guard_takes_back_what_is_out_of_sight_and_never_pays_above_the_limit(knowing):
    def rewards(**guard):
        env = LearnedReward(Slide(steps=8), knowing, 0.0, **guard)
        env.reset(seed=5)
        return np.array([env.step(np.ones(1))[1] for _ in range(8)])

    free, familiar, limited = rewards(), rewards(familiar=1.25), rewards(limit=0.5)
    assert np.allclose(familiar[0], free[0])
    assert (familiar[-3:] == 0).all()
    assert (free[-3:] != 0).any()
    assert familiar.sum() == pytest.approx(0, abs=1e-6)
    assert np.allclose(limited, np.clip(free, -0.05, 0.05))  # half of the largest step, a tenth


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
        vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, plain).step(np.zeros((3, 1)))


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
