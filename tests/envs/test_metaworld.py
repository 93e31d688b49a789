"""The environment: Meta-World's physics untouched, episodes fixed by their seed, the paper's protocol."""

import warnings

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from timerewarder.envs.metaworld import GOAL, MetaWorld
from timerewarder.envs.simulator import ENVIRONMENTS
from timerewarder.envs.tasks import TASKS
from timerewarder.errors import UserError

DRAWN = ("drawer-open", "basketball", "window-close")  # making a renderer for each of the ten would take long


def random_actions(steps: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (steps, 4)).astype(np.float32)


def plain_metaworld(env: MetaWorld):
    """A new environment of Meta-World's own, started where `env` was."""
    assert env.start is not None
    plain = ENVIRONMENTS[f"{env.task.name}-v3"]()
    plain._set_task_called, plain._freeze_rand_vec = True, True
    plain.hand_init_pos, plain._last_rand_vec = env.start.hand, env.start.vector
    if env.ranges.places is not None:
        plain.model.body(env.ranges.places).pos[:2] = env.start.vector[:2]
    plain.reset()
    return plain


@pytest.mark.parametrize("task", TASKS)
def test_states_are_metaworlds_bit_for_bit_drawn_or_not(task: str) -> None:
    env = MetaWorld(task, size=16)
    env.reset(seed=1)
    env.step(env.action_space.sample())  # whatever an earlier episode leaves behind must not matter
    env.reset(seed=7)
    plain = plain_metaworld(env)
    assert np.array_equal(env.simulator_state(), plain.state_vector())
    for step, action in enumerate(random_actions(12)):
        if task in DRAWN and step % 2:
            env.render()
        observation, reward, _, _, info = env.step(action)
        expected = [plain.step(action) for _ in range(2)]
        assert np.array_equal(env.simulator_state(), plain.state_vector())
        assert np.array_equal(observation, expected[-1][0])
        assert reward == info["task_reward"] == sum(float(result[1]) for result in expected)
        assert info["success"] == any(result[4]["success"] for result in expected)
    env.close()


def test_a_seed_fixes_the_episode_whatever_came_before() -> None:
    used, new = MetaWorld("basketball"), MetaWorld("basketball")
    for seed in (3, 4):
        used.reset(seed=seed)
        used.step(used.expert_action())
    for env in (used, new):
        env.reset(seed=5)
    assert used.start is not None
    assert new.start is not None
    assert np.array_equal(used.start.hand, new.start.hand)
    for action in random_actions(10):
        for mine, others in zip(used.step(action), new.step(action), strict=True):
            assert np.array_equal(mine, others) if isinstance(mine, np.ndarray) else mine == others
    assert np.array_equal(used.simulator_state(), new.simulator_state())


def test_starts_differ_between_episodes_and_stay_in_the_task_ranges() -> None:
    env = MetaWorld("drawer-open")
    hands, vectors = [], []
    env.reset(seed=0)
    for _ in range(8):
        env.reset()
        assert env.start is not None
        hands.append(env.start.hand)
        vectors.append(env.start.vector)
        assert np.abs(env.env.get_endeff_pos() - env.start.hand).max() < 0.01
    for drawn, box in ((hands, env.ranges.hand), (vectors, env.ranges.start)):
        assert box is not None
        assert np.all(np.array(drawn) >= box[0])
        assert np.all(np.array(drawn) <= box[1])
        wide = np.array(box[1]) > np.array(box[0])
        assert np.all(np.ptp(drawn, axis=0)[wide] > 0)


def test_metaworlds_own_ranges_keep_the_hand_where_it_puts_it() -> None:
    env = MetaWorld("drawer-open", ranges="metaworld")
    env.reset(seed=0)
    assert env.start is not None
    assert np.allclose(env.start.hand, [0, 0.6, 0.2])
    assert abs(env.start.vector[0]) <= 0.1


def test_the_puck_starts_where_the_random_vector_says() -> None:
    env = MetaWorld("plate-slide")
    observation, _ = env.reset(seed=0)
    assert env.start is not None
    assert np.allclose(observation[4:6], env.start.vector[:2])


def test_the_goal_is_hidden_from_the_agent_and_known_to_the_expert() -> None:
    env = MetaWorld("basketball")
    observation, _ = env.reset(seed=0)
    assert not observation[GOAL].any()
    assert not env.step(env.expert_action())[0][GOAL].any()
    assert np.array_equal(env.expert_observation()[GOAL], env.env._target_pos)
    goals = [env.reset(seed=seed) and env.expert_observation()[GOAL] for seed in (1, 2)]
    assert not np.array_equal(*goals)


def test_the_first_observation_and_frame_show_the_window_open() -> None:
    env = MetaWorld("window-close", ranges="metaworld")
    first, _ = env.reset(seed=0)
    picture = env.render()
    then = env.step(np.zeros(4, np.float32))[0]
    assert np.abs(first[4:7] - then[4:7]).max() < 0.01  # Meta-World's own first observation is 20 cm off
    assert np.abs(picture.astype(int) - env.render()).mean() < 2
    env.close()


@pytest.mark.parametrize(("task", "steps"), [("drawer-open", 62), ("lever-pull", 87)])
def test_episodes_end_at_the_horizon(task: str, steps: int) -> None:
    env = MetaWorld(task)
    env.reset(seed=0)
    ends = [env.step(np.zeros(4, np.float32))[2:4] for _ in range(steps)]
    assert ends == [(False, False)] * (steps - 1) + [(False, True)]


def test_a_horizon_beyond_metaworlds_own() -> None:
    env = MetaWorld("drawer-open", horizon=600, action_repeat=100)
    env.reset(seed=0)
    assert [env.step(np.zeros(4, np.float32))[3] for _ in range(6)] == [False] * 5 + [True]


def test_the_expert_solves_the_task() -> None:
    env = MetaWorld("drawer-open")
    solved = []
    for seed in range(4):
        env.reset(seed=seed)
        solved.append(any([env.step(env.expert_action())[4]["success"] for _ in range(env.episode_steps)]))
    assert all(solved)


def test_gymnasiums_checker_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # unbounded observations, and no spec since it is not made through gymnasium.make
        check_env(MetaWorld("button-press-topdown"))


def test_a_task_outside_the_ten() -> None:
    env = MetaWorld("reach-v3", size=32)
    env.reset(seed=0)
    assert any([env.step(env.expert_action())[4]["success"] for _ in range(env.episode_steps)])
    assert env.render().shape == (32, 32, 3)
    env.close()


def test_bad_arguments() -> None:
    with pytest.raises(UserError, match="unknown task"):
        MetaWorld("open-sesame")
    with pytest.raises(UserError, match="unknown camera"):
        MetaWorld("drawer-open", camera="drone")
    with pytest.raises(UserError, match="unknown render mode"):
        MetaWorld("drawer-open", render="slow")
    with pytest.raises(UserError, match="leaves no step"):
        MetaWorld("drawer-open", action_repeat=0)
    with pytest.raises(ResetNeeded):
        MetaWorld("drawer-open").step(np.zeros(4, np.float32))
