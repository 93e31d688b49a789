"""ORCA: the table of ordered coverage."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.rewards.demonstrated import demonstrated, walk
from timerewarder.errors import UserError
from timerewarder.rewards.matching import Costs
from timerewarder.rewards.orca import Config, coverage


def table(p: np.ndarray) -> np.ndarray:
    """A (T, L) of probabilities (T, L), L at least 2, entry by entry; the last column without the maximum."""
    covered = np.zeros_like(p)
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            before = covered[i, j - 1] if j else 1.0
            above = covered[i - 1, j] if i and j < p.shape[1] - 1 else 0.0
            covered[i, j] = max(above, before * p[i, j])
    return covered


def test_three_by_three_by_hand():
    p = torch.tensor([[1 / 2, 1 / 4, 1 / 8], [1, 1 / 2, 1 / 4], [1 / 4, 1, 1 / 16]], dtype=torch.float64)
    # A_00 = 1/2            A_01 = 1/2 * 1/4 = 1/8             A_02 = 1/8 * 1/8 = 1/64
    # A_10 = max(1/2, 1)    A_11 = max(1/8, 1 * 1/2) = 1/2     A_12 = 1/2 * 1/4 = 1/8
    # A_20 = max(1, 1/4)    A_21 = max(1/2, 1 * 1) = 1         A_22 = 1 * 1/16, though A_12 was more
    rewards = coverage(Costs(-p.log()[None], torch.tensor([3])))
    assert torch.allclose(rewards, torch.tensor([[1 / 64, 1 / 8, 1 / 16]], dtype=torch.float64))


@given(st.integers(0, 1000), st.integers(1, 8), st.lists(st.integers(2, 8), min_size=1, max_size=4))
def test_rows_at_once_are_the_recursion_entry_by_entry(seed, frames, lengths):
    values = np.random.default_rng(seed).uniform(0, 2, (len(lengths), frames, max(lengths)))
    rewards = coverage(Costs(torch.from_numpy(values), torch.tensor(lengths)))
    for n, length in enumerate(lengths):
        assert np.allclose(rewards[n], table(np.exp(-values[n, :, :length]))[:, -1], rtol=1e-10)


def test_a_demonstration_of_one_frame_is_covered_when_it_is_shown():
    costs = Costs(torch.tensor([[[0.5], [0.1]]], dtype=torch.float64), torch.tensor([1]))
    assert torch.allclose(coverage(costs), torch.tensor([[0.5, 0.1]]).double().neg().exp())


def test_waiting_costs_nothing_and_skipping_does():
    demo = torch.eye(5)
    reward = demonstrated("orca", [demo])
    slow = demo[[0, 0, 1, 2, 2, 2, 3, 4]]
    assert torch.allclose(reward.compare(slow)[-1], torch.tensor(1.0))
    skipping = demo[[0, 1, 3, 4]]
    assert torch.allclose(reward.compare(skipping)[-1], torch.tensor(-1.0).exp())  # frame 2 was shown at cost 1


def test_only_the_right_order_covers():
    reward = demonstrated("orca", [torch.eye(5)])
    assert float(reward.compare(torch.eye(5)).sum()) > 1
    assert float(reward.compare(torch.eye(5).flip(0)).sum()) < 0.1


def test_temperature_divides_the_costs():
    demo, episode = walk(2, 6), walk(1, 8)
    warm, cold = (demonstrated("orca", [demo], tau=tau) for tau in (2.0, 1.0))
    costs = cold.costs(episode)
    expected = coverage(costs._replace(values=costs.values / 2))
    assert torch.allclose(warm.match(costs), expected)
    assert (warm.match(costs) > cold.match(costs)).all()


def test_long_and_dear_demonstrations_do_not_vanish_before_the_best_is_chosen():
    """A thousand frames at cost 1 are e^-1000, which float64 does not hold beside 1; the nearer one still wins."""
    costs = Costs(torch.ones(2, 3, 1000, dtype=torch.float64), torch.tensor([1000, 500]))
    rewards = coverage(costs)
    assert torch.isfinite(rewards).all()
    assert rewards[1].sum() > rewards[0].sum()


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_bad_options_are_refused(tau):
    with pytest.raises(UserError, match="--tau"):
        Config(tau=tau)
