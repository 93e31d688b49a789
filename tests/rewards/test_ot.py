"""Optimal transport: the plan, its cost, its limits."""

import math
import sys

import numpy as np
import ot as pot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import timerewarder as tr
from tests.rewards.demonstrated import demonstrated, walk
from timerewarder.errors import UserError
from timerewarder.rewards.matching import Costs
from timerewarder.rewards.ot import Config, sinkhorn

LENGTHS = st.integers(1, 7)


def random_costs(seed: int, frames: int, lengths: list[int]) -> Costs:
    """Costs from 0 to 2, as of cosines; what stands in the padding must not matter."""
    values = np.random.default_rng(seed).uniform(0, 2, (len(lengths), frames, max(lengths)))
    return Costs(torch.from_numpy(values), torch.tensor(lengths))


def naive(cost: np.ndarray, epsilon: float, iterations: int) -> np.ndarray:
    """Sinkhorn of one problem (T, L), in logarithms, ending on the rows."""
    kernel, (rows, columns) = -cost / epsilon, cost.shape
    row = np.zeros(rows)
    for _ in range(iterations):
        column = -np.log(columns) - logsumexp(kernel + row[:, None], axis=0)
        row = -np.log(rows) - logsumexp(kernel + column[None, :], axis=1)
    return np.exp(kernel + row[:, None] + column[None, :])


def test_two_frames_by_hand():
    """C = [[0, 1], [1, 0]]: by symmetry P = [[p, q], [q, p]] with q / p = exp(-1 / epsilon), p + q = 1/2."""
    frames = torch.eye(2)
    reward = demonstrated("ot", [frames], epsilon=0.5)
    p = 0.5 / (1 + math.exp(-2))
    q = 0.5 - p
    costs = reward.costs(frames)
    plan = sinkhorn(reward.log_kernel(costs), costs, 100)
    assert torch.allclose(plan, torch.tensor([[[p, q], [q, p]]], dtype=torch.float64))
    assert torch.allclose(reward.compare(frames), torch.tensor([0.0, -q]))


@settings(max_examples=20)
@given(st.integers(0, 1000), LENGTHS, st.lists(LENGTHS, min_size=1, max_size=4))
def test_marginals(seed, frames, lengths):
    costs = random_costs(seed, frames, lengths)
    plans = sinkhorn(-costs.values / 0.5, costs, 300)
    assert (plans >= 0).all()
    assert torch.allclose(plans.sum(2), torch.full((len(lengths), frames), 1 / frames).double(), rtol=1e-12)
    wanted = costs.real / costs.lengths[:, None].double()
    assert torch.allclose(plans.sum(1), wanted, atol=1e-6)
    assert (plans.transpose(1, 2)[~costs.real] == 0).all()


@pytest.mark.parametrize("epsilon", [1.0, 0.01, 0.001])  # the last is beyond what the scaling form can hold
def test_a_hundred_iterations_are_those_of_pot_and_of_the_plain_formula(epsilon):
    lengths = [5, 9, 2]
    costs = random_costs(3, 7, lengths)
    plans = sinkhorn(-costs.values / epsilon, costs, 100)
    for plan, cost, length in zip(plans.numpy(), costs.values.numpy(), lengths, strict=True):
        a, b = np.full(7, 1 / 7), np.full(length, 1 / length)
        single = pot.sinkhorn(
            a, b, cost[:, :length], epsilon, method="sinkhorn_log", numItermax=100, stopThr=0, warn=False
        )
        assert np.allclose(plan[:, :length], single, rtol=1e-7, atol=1e-12)
        assert np.allclose(plan[:, :length], naive(cost[:, :length], epsilon, 100), rtol=1e-7, atol=1e-12)


def test_one_problem_beyond_the_scaling_form_leaves_the_others_alone():
    gentle, steep = random_costs(0, 6, [5]), random_costs(1, 6, [5])
    kernels = torch.cat([-gentle.values / 0.1, -steep.values / 0.0005])
    together = sinkhorn(kernels, Costs(torch.cat([gentle.values, steep.values]), torch.tensor([5, 5])), 100)
    assert torch.isfinite(together).all()
    assert torch.equal(together[:1], sinkhorn(kernels[:1], gentle, 100))
    assert np.allclose(together[1].numpy(), naive(steep.values[0].numpy(), 0.0005, 100), rtol=1e-6, atol=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 5))
def test_cost_is_near_the_exact_one(seed, frames, length):
    """The entropy's part is at most epsilon log(T L)."""
    epsilon = 0.05
    costs = random_costs(seed, frames, [length])
    cost = float((sinkhorn(-costs.values / epsilon, costs, 1000) * costs.values).sum())
    exact = pot.emd2(np.full(frames, 1 / frames), np.full(length, 1 / length), costs.values[0].numpy())
    assert exact - 1e-3 <= cost <= exact + epsilon * math.log(frames * length) + 1e-3


def test_frames_in_another_order_get_the_same_rewards():
    reward = demonstrated("ot", [walk(2, 9), walk(3, 12)])
    episode, order = walk(1, 10), torch.randperm(10, generator=torch.Generator().manual_seed(0))
    there, shuffled = (reward.match(reward.costs(frames)) for frames in (episode, episode[order]))
    assert torch.allclose(there[:, order], shuffled, rtol=1e-6)


def test_a_frame_that_is_unlike_the_others_costs_most():
    reward = demonstrated("ot", [walk(2, 9)])
    episode = walk(2, 9)
    episode[4] = walk(50, 9)[0]
    assert int(reward.compare(episode).argmin()) == 4


def test_without_pot_fit_says_what_to_install(monkeypatch, videos):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(UserError, match=r"pip install 'timerewarder\[ot\]'"):
        tr.fit(videos, method="ot")


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"epsilon": float("nan")}, {"iterations": 0}])
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match="--epsilon"):
        Config(**options)
