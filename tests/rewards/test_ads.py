"""ADS: the longest increasing subsequence, and the schedule of the discount."""

import itertools
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import timerewarder as tr
from tests.conftest import SIZE
from tests.rewards.demonstrated import demonstrated, walk
from timerewarder.errors import UserError
from timerewarder.rewards.ads import Config, longest_increasing

FRAMES = torch.eye(40)  # the nearest frame of a demonstration is the same one, and no other


def longest_by_trying_all(numbers: list[int]) -> int:
    return max(
        len(chosen)
        for count in range(len(numbers) + 1)
        for chosen in itertools.combinations(numbers, count)
        if all(a < b for a, b in itertools.pairwise(chosen))
    )


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.integers(0, 6), min_size=n, max_size=n), min_size=1)))
def test_longest_increasing_subsequence(sequences):
    found = longest_increasing(np.array(sequences))
    assert found.tolist() == [longest_by_trying_all(numbers) for numbers in sequences]


@pytest.mark.parametrize(
    ("numbers", "longest"), [([3, 1, 2, 5, 4, 6], 4), ([4, 3, 2, 1], 1), ([2, 2, 2], 1), ([0, 1, 2, 3], 4), ([7], 1)]
)
def test_longest_increasing_subsequence_by_hand(numbers, longest):
    assert longest_increasing(np.array([numbers])).tolist() == [longest]


def test_the_reward_is_ots():
    demos = [walk(2, 9), walk(3, 14)]
    ads, ot = demonstrated("ads", demos), demonstrated("ot", demos)
    for reward in (ads, ot):
        reward.first_episode(walk(1, 12))
    assert torch.equal(ads.compare(walk(4, 12)), ot.compare(walk(4, 12)))
    assert ot.discount is None


def test_k_starts_at_a_fifth_of_the_first_episode():
    reward = demonstrated("ads", [FRAMES[:20]])
    reward.first_episode(FRAMES[:36])
    assert int(reward.k) == 7
    assert reward.discount == pytest.approx(0.2 ** (1 / 7))
    reward.first_episode(FRAMES[:3])
    assert int(reward.k) == 1
    assert reward.discount == pytest.approx(0.2)


def test_before_an_episode_the_demonstrations_set_the_horizon(videos):
    reward = tr.fit(videos, method="ads", image_size=SIZE, contrast="no", device="cpu")
    median = int(reward.lengths.median())
    assert int(reward.horizon) == median
    assert int(reward.k) == int(0.2 * median)


def test_an_agent_that_follows_looks_further_ahead_at_every_evaluation():
    reward = demonstrated("ads", [FRAMES[:30], FRAMES[:25]])
    reward.first_episode(FRAMES[:20])
    following = [FRAMES[:20]] * 2
    for k in (9, 14, 19, 20, 20):  # from 4 by five, up to the length of an episode
        assert reward.evaluated(following) == {"ads_k": k, "discount": pytest.approx(0.2 ** (1 / k))}


def test_an_agent_that_does_not_follow_stays_where_it_is():
    reward = demonstrated("ads", [FRAMES[:30], FRAMES[:25]])
    reward.first_episode(FRAMES[:20])
    backwards = FRAMES[:20].flip(0)
    assert reward.evaluated([backwards, backwards])["ads_k"] == 4


def test_k_stops_where_the_agent_leaves_the_demonstration():
    """It follows for 10 frames, then stands still: of k frames 10 are in order, and 10 >= 0.9 k up to k = 11."""
    reward = demonstrated("ads", [FRAMES[:30], FRAMES[:30]])
    reward.first_episode(FRAMES[:30])  # k = 6
    episode = FRAMES[[*range(10), *[9] * 20]]
    assert [reward.evaluated([episode])["ads_k"] for _ in range(3)] == [11, 12, 12]


def test_the_percentile_is_over_episodes_and_demonstrations():
    """One of two episodes follows four of five demonstrations: four scores of ten are 5, the others 1."""
    unlike = FRAMES[20:30]
    episodes = [FRAMES[:10], FRAMES[30:40]]
    for percentile, k in ((70.0, 6), (60.0, 5)):  # of the sorted scores, between the 7th and 8th; the 6th and 7th
        reward = demonstrated("ads", [*[FRAMES[:10]] * 4, unlike], k_percentile=percentile, k_start=0.5, k_steps=1)
        reward.first_episode(FRAMES[:10])
        assert reward.followed(episodes, 5).tolist() == [[5, 5, 5, 5, 1], [1, 1, 1, 1, 1]]
        assert reward.expert_score(5) == 5  # 12 of 20 pairs
        assert reward.evaluated(episodes)["ads_k"] == k


def test_demonstrations_are_measured_against_each_other_not_themselves():
    reward = demonstrated("ads", [FRAMES[:10], FRAMES[20:30]])
    assert reward.followed(reward.experts, 5).tolist() == [[5, 1], [1, 5]]
    assert reward.expert_score(5) == 1
    assert demonstrated("ads", [FRAMES[:10]]).expert_score(5) == 5  # there is no other
    three = demonstrated("ads", [FRAMES[:10], FRAMES[:10], FRAMES[:10].flip(0)])
    assert three.expert_score(10) == 1  # of 10, 1, 10, 1, 1, 1


def test_only_the_first_k_frames_count():
    reward = demonstrated("ads", [FRAMES[:10]])
    late = torch.cat([FRAMES[30:35], FRAMES[:10]])  # shows the demonstration after frame 5
    assert reward.followed([late], 5).tolist() == [[1]]
    early = FRAMES[[0, 1, 8, 9]]  # the nearest among the first three frames of a cost that is 1 everywhere is the first
    assert reward.followed([early], 3).tolist() == [[2]]
    assert reward.followed([early], 10).tolist() == [[4]]


def test_sequences_shorter_than_k_are_taken_whole():
    reward = demonstrated("ads", [FRAMES[:4], FRAMES[:8]])
    assert reward.followed([FRAMES[:6], FRAMES[:2]], 20).tolist() == [[4, 6], [2, 2]]


def test_the_schedule_is_restored():
    reward, resumed = (demonstrated("ads", [FRAMES[:30], FRAMES[:30]]) for _ in range(2))
    reward.first_episode(FRAMES[:30])
    reward.evaluated([FRAMES[:30]])
    resumed.restore_online(reward.online_state())
    assert int(resumed.k) == int(reward.k) == 11
    assert int(resumed.horizon) == 30
    assert resumed.evaluated([FRAMES[:30]]) == reward.evaluated([FRAMES[:30]])


def test_without_pot_fit_says_what_to_install(monkeypatch, videos):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(UserError, match=r"pip install 'timerewarder\[ot\]'"):
        tr.fit(videos, method="ads")


@pytest.mark.parametrize(
    "options",
    [
        {"k_start": 0.0},
        {"k_start": 1.1},
        {"k_weight": 1.0},
        {"k_threshold": -1.0},
        {"k_percentile": 101.0},
        {"k_steps": -1},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match=f"--{next(iter(options)).replace('_', '-')}"):
        Config(**options)
