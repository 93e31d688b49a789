"""What the methods that match episodes with demonstrations share."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import timerewarder as tr
from tests.conftest import SIZE, crossing
from tests.rewards.demonstrated import demonstrated, walk
from timerewarder.errors import UserError
from timerewarder.rewards import orca
from timerewarder.rewards.matching import cosine_costs

MATCHING = ("ot", "ads", "temporal-ot", "orca")
SCALED = ("ot", "ads", "temporal-ot")
UNTRAINED = {"image_size": SIZE, "contrast": "no", "device": "cpu"}


@given(st.integers(0, 1000), st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_costs_are_one_minus_the_cosine_and_padded_by_the_last_frame(seed, frames, lengths):
    episode, demos = walk(seed, frames), [walk(seed + n, length) for n, length in enumerate(lengths, 1)]
    reward = demonstrated("ot", demos)
    values, found = costs = cosine_costs(episode, reward.demonstrations, reward.lengths)
    assert found.tolist() == lengths
    assert values.shape == (len(lengths), frames, max(lengths))
    assert values.dtype == torch.float64
    for n, demo in enumerate(demos):
        assert costs.real[n].tolist() == [j < len(demo) for j in range(max(lengths))]
        for j in range(max(lengths)):
            frame = demo[min(j, len(demo) - 1)]
            cosines = (episode @ frame) / (episode.square().sum(1) * frame.square().sum()).sqrt()
            assert torch.allclose(values[n, :, j], 1 - cosines.double(), atol=1e-6)


def test_a_cost_is_never_negative():
    reward = demonstrated("ot", [walk(0, 20)])
    assert float(reward.costs(3 * walk(0, 20)).values.min()) == 0.0


@pytest.mark.parametrize("method", MATCHING)
@pytest.mark.parametrize("frames", [1, 2, 3, 12, 30])
def test_the_match_with_many_is_the_best_of_the_matches_with_each(method, frames):
    episode, demos = walk(1, frames), [walk(seed, length) for seed, length in ((2, 9), (3, 2), (4, 14), (5, 14))]
    reward = demonstrated(method, demos)
    matches = reward.match(reward.costs(episode))
    alone = [demonstrated(method, [demo]) for demo in demos]
    for together, single in zip(matches, alone, strict=True):
        assert torch.allclose(together, single.match(single.costs(episode))[0], rtol=1e-4, atol=1e-7)
    best = int(matches.sum(1).argmax())
    rewards = reward.compare(episode)
    assert rewards[0] == 0
    assert rewards.shape == (frames,)
    assert rewards.dtype == torch.float32
    assert torch.allclose(rewards[1:], matches[best, 1:].float())
    assert torch.allclose(rewards, alone[best].compare(episode), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("method", MATCHING)
def test_the_order_of_demonstrations_does_not_matter(method):
    demos = [walk(seed, length) for seed, length in ((2, 9), (3, 20), (4, 14))]
    one, other = demonstrated(method, demos), demonstrated(method, demos[::-1])
    assert torch.allclose(one.compare(walk(1, 12)), other.compare(walk(1, 12)))


@pytest.mark.parametrize("method", MATCHING)
def test_what_looks_like_a_demonstration_is_worth_more(method):
    demos = [walk(seed, 15) for seed in (2, 3)]
    reward = demonstrated(method, demos)
    near, far = demos[0] + 0.01 * walk(9, 15), walk(77, 15)
    assert reward.compare(near).sum() > reward.compare(far).sum()


@pytest.mark.parametrize("method", SCALED)
def test_the_first_episode_sets_the_scale(method):
    reward = demonstrated(method, [walk(2, 9), walk(3, 12)])
    first, later = walk(1, 10), walk(4, 10)
    before = reward.compare(first), reward.compare(later)
    reward.first_episode(first)
    assert float(reward.compare(first).sum()) == pytest.approx(-10, rel=1e-5)
    factor = 10 / float(-before[0].sum())
    assert torch.allclose(reward.compare(later), factor * before[1], rtol=1e-4)
    reward.first_episode(first)  # of another training
    assert float(reward.compare(first).sum()) == pytest.approx(-10, rel=1e-5)


def test_scaling_can_be_asked_for_and_left_out():
    demos, first = [walk(2, 9)], walk(1, 10)
    plain, scaled = demonstrated("ot", demos, episode_sum=0.0), demonstrated("orca", demos, episode_sum=3.0)
    unscaled = demonstrated("orca", demos)
    for reward in (plain, scaled, unscaled):
        reward.first_episode(first)
    assert float(plain.factor) == float(unscaled.factor) == 1.0
    assert float(scaled.compare(first).sum()) == pytest.approx(3, rel=1e-5)


def test_an_episode_without_steps_sets_no_scale():
    reward = demonstrated("ot", [walk(2, 9)])
    reward.first_episode(walk(1, 1))
    assert float(reward.factor) == 1.0


def test_an_episode_that_costs_nothing_sets_a_bounded_scale():
    reward = demonstrated("ot", [torch.eye(9)])
    reward.first_episode(torch.eye(9))
    assert float(reward.factor) == pytest.approx(1e6)


@pytest.mark.parametrize("method", MATCHING)
def test_what_was_learned_online_is_restored(method):
    demos = [walk(2, 9), walk(3, 12)]
    reward, resumed = demonstrated(method, demos), demonstrated(method, demos)
    reward.first_episode(walk(1, 10))
    reward.evaluated([walk(5, 10)])
    state = reward.online_state()
    reward.first_episode(walk(6, 20))  # the state is a copy
    resumed.restore_online(state)
    expected = demonstrated(method, demos)
    expected.first_episode(walk(1, 10))
    expected.evaluated([walk(5, 10)])
    assert torch.equal(resumed.compare(walk(4, 10)), expected.compare(walk(4, 10)))
    assert resumed.discount == expected.discount


@pytest.mark.parametrize(
    ("asked", "places"), [(1, [0]), (2, [0, 21]), (4, [0, 7, 14, 21]), (22, range(22)), (100, range(22))]
)
def test_max_demos_are_spread_over_those_given(videos, asked, places):
    every = tr.fit(videos, method="orca", validation=0.1, **UNTRAINED)
    some = tr.fit(videos, method="orca", max_demos=asked, validation=0.1, **UNTRAINED)
    assert len(every.experts) == 22  # of 24: two are held out
    assert len(some.experts) == len(places)
    assert all(torch.equal(some.experts[n], every.experts[place]) for n, place in enumerate(places))
    assert torch.allclose(some.demonstrations.norm(dim=1), torch.ones(len(some.demonstrations)))


def test_a_demonstration_matches_itself_with_its_past(videos):
    """Every frame is shown at no cost, and with its history: the last frame's reward is that of full coverage."""
    reward = tr.fit(videos, method="orca", history=2, validation=0.0, **UNTRAINED)
    assert isinstance(reward, orca.ORCA)
    assert float(reward.score(crossing(0))[-1]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("options", [{"max_demos": -1}, {"episode_sum": -1.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match="must not be negative"):
        demonstrated("orca", [walk(0, 3)], **options)
