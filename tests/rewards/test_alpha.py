"""Alpha: ten times the largest reward, or a high quantile, of the first trajectories; exact, however interleaved."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.errors import UserError
from timerewarder.rewards.alpha import Alpha

REWARDS = st.floats(-1, 1, width=32)
# (environment, reward), or (environment, None) for the end of its trajectory
EVENTS = st.lists(st.tuples(st.integers(0, 3), REWARDS | st.none()), max_size=60)


def feed(alpha, events):
    for env, reward in events:
        if reward is None:
            alpha.end_trajectory(env)
        else:
            alpha.see(reward, env)


def by_hand(events, limit):
    """The trajectories that begin first, as lists of rewards, and how many of them have ended."""
    trajectories, running, ended = [], {}, 0
    for env, reward in events:
        if reward is None:
            ended += running.pop(env, limit) < limit
        else:
            if env not in running:
                running[env] = len(trajectories)
                trajectories.append([])
            trajectories[running[env]].append(reward)
    return trajectories[:limit], ended


def test_ten_times_the_largest_reward_so_far():
    alpha = Alpha("adaptive")
    values = []
    for reward in (-0.5, 0.25, 0.125, 0.5):
        alpha.see(reward)
        values.append(alpha.value)
    assert values == [5, 2.5, 2.5, 5]  # the first by its size, as nothing was positive yet
    assert alpha.record == {
        "rule": "adaptive",
        "value": 5.0,
        "settled": False,
        "trajectories": 0,
        "set_by": {"reward": 0.5, "trajectory": 0, "step": 4},
    }


def test_it_is_zero_before_anything_is_seen_and_follows_the_size_while_nothing_is_positive():
    for rule in ("adaptive", "robust"):
        alpha = Alpha(rule)
        assert (alpha.value, alpha.record["set_by"]) == (0, None)
        alpha.see(0.0)
        assert alpha.value == 0
        alpha = Alpha(rule)
        alpha.see(-0.5)
        assert alpha.value == 5
        alpha.see(-0.25)
        assert alpha.value == (5 if rule == "adaptive" else 2.5)


@pytest.mark.parametrize("rule", ["adaptive", "robust"])
def test_after_a_hundred_trajectories_it_stays(rule):
    alpha = Alpha(rule)
    for trajectory in range(100):
        assert not alpha.settled
        alpha.see(trajectory / 128)
        alpha.see(0)
        alpha.end_trajectory()
    before = alpha.record
    assert before["settled"]
    assert before["trajectories"] == 100
    # adaptive: the last trajectory's; robust: of 200 rewards the 198th in order, which two trajectories exceed
    trajectory = 99 if rule == "adaptive" else 97
    assert before["set_by"] == {"reward": trajectory / 128, "trajectory": trajectory, "step": 1}
    assert alpha.value == 10 * trajectory / 128
    alpha.see(1)
    assert alpha.record == before


def test_robust_is_not_set_by_a_lone_extreme():
    adaptive, robust = Alpha("adaptive"), Alpha("robust")
    for alpha in (adaptive, robust):
        for step in range(300):
            alpha.see(0.75 if step == 40 else 0.015625)
    assert adaptive.value == 7.5
    assert adaptive.record["set_by"] == {"reward": 0.75, "trajectory": 0, "step": 41}
    assert robust.value == 0.15625


def test_the_first_step_to_reach_the_largest_reward_is_named():
    alpha = Alpha("adaptive")
    for _ in range(3):
        alpha.see(0.5)
        alpha.end_trajectory()
    assert alpha.record["set_by"] == {"reward": 0.5, "trajectory": 0, "step": 1}


def test_ending_a_trajectory_without_rewards_does_not_count():
    alpha = Alpha("adaptive", trajectories=1)
    alpha.end_trajectory()
    alpha.see(0.5)
    assert not alpha.settled
    alpha.end_trajectory()
    assert alpha.settled


def test_the_first_trajectories_are_those_that_begin_first():
    alpha = Alpha("adaptive", trajectories=2)
    feed(alpha, [(0, 0.25), (1, 0.125), (2, 0.75), (1, None), (1, 0.875)])  # the third and the fourth do not count
    assert alpha.value == 2.5
    assert not alpha.settled  # environment 0 is still in the first
    feed(alpha, [(0, 0.5), (0, None)])
    assert alpha.record == {
        "rule": "adaptive",
        "value": 5.0,
        "settled": True,
        "trajectories": 2,
        "set_by": {"reward": 0.5, "trajectory": 0, "step": 2},
    }


@given(EVENTS, st.integers(1, 5))
def test_as_computed_by_hand(events, limit):
    trajectories, ended = by_hand(events, limit)
    seen = [reward for rewards in trajectories for reward in rewards]
    positive, others = sorted(x for x in seen if x > 0), sorted(abs(x) for x in seen if x <= 0)
    for rule, share in (("adaptive", 1.0), ("robust", 0.99)):
        alpha = Alpha(rule, limit)
        feed(alpha, events)
        ranked = np.arange(len(seen))
        assert alpha.value == (
            10 * [*others, *positive][int(np.quantile(ranked, share, method="lower"))] if seen else 0
        )
        assert alpha.record["trajectories"] == ended
        assert alpha.settled == (ended == limit)
        if seen:
            origin = alpha.record["set_by"]
            assert trajectories[origin["trajectory"]][origin["step"] - 1] == origin["reward"]


@given(EVENTS, st.integers(0, 60), st.sampled_from(["adaptive", "robust", 0.5]))
def test_restored_goes_on_as_uninterrupted(events, cut, rule):
    whole, part = Alpha(rule, 3), Alpha(rule, 3)
    feed(whole, events)
    feed(part, events[:cut])
    restored = Alpha.restore(json.loads(json.dumps(part.state())))
    assert restored.state() == part.state()
    feed(restored, events[cut:])
    assert restored.record == whole.record
    assert restored.state() == whole.state()


@pytest.mark.parametrize("number", [0, 2, 0.5, np.float32(0.5)])
def test_a_number_is_fixed(number):
    alpha = Alpha(number)
    alpha.see(1)
    alpha.end_trajectory()
    assert alpha.value == number
    assert alpha.record["settled"]
    assert json.loads(json.dumps(alpha.record))["rule"] == number


@pytest.mark.parametrize("rule", [-0.1, math.nan, math.inf, "adaptiv", "1", True, None])
def test_no_weight(rule):
    with pytest.raises(UserError, match="adaptive, robust"):
        Alpha(rule)


def test_bad_numbers():
    with pytest.raises(UserError, match="at least 1"):
        Alpha("adaptive", trajectories=0)
    for reward in (math.nan, math.inf):
        with pytest.raises(UserError, match="check the frames"):
            Alpha("robust").see(reward)
