"""TemporalOT: the context, the mask, and plans that keep to it."""

import sys

import numpy as np
import ot as pot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import timerewarder as tr
from tests.rewards.demonstrated import demonstrated, walk
from timerewarder.errors import UserError
from timerewarder.rewards.ot import sinkhorn
from timerewarder.rewards.temporal_ot import Config, averaged, band


def test_context_by_hand():
    cost = torch.tensor([[[0.0, 1, 2], [3, 4, 5], [6, 7, 8]]])
    sums = [[0 + 4 + 8, 1 + 5 + 8, 2 + 5 + 8], [3 + 7 + 8, 4 + 8 + 8, 5 + 8 + 8], [6 + 7 + 8, 7 + 8 + 8, 8 + 8 + 8]]
    assert torch.allclose(averaged(cost, 3)[0], torch.tensor(sums) / 3)
    assert torch.equal(averaged(cost, 1), cost)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 4))
def test_context_stops_at_the_end_of_each_sequence(seed, frames, lengths, context):
    demos = [walk(seed + n, length) for n, length in enumerate(lengths, 1)]
    single, reward = demonstrated("ot", demos), demonstrated("temporal-ot", demos, context=context)
    plain, mean = (r.costs(walk(seed, frames)).values for r in (single, reward))
    for n, length in enumerate(lengths):
        for i in range(frames):
            for j in range(length):
                later = [plain[n, min(i + k, frames - 1), min(j + k, length - 1)] for k in range(context)]
                assert float(mean[n, i, j]) == pytest.approx(float(sum(later)) / context)


@given(st.integers(1, 40), st.integers(1, 12))
def test_between_equal_lengths_the_mask_is_the_papers(length, width):
    rows, columns = np.indices((length, length))
    mask = band(length, torch.tensor([length]), length, width)[0]
    assert np.array_equal(mask.numpy(), abs(rows - columns) <= width)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 3))
def test_the_plan_that_keeps_the_order_fits_into_every_mask(frames, length, width):
    mask = band(frames, torch.tensor([length]), length, width)[0].numpy()
    row = column = 0
    while row < frames and column < length:  # the north-west corner rule, in units of 1 / (frames * length)
        assert mask[row, column]
        ahead = (row + 1) * length - (column + 1) * frames
        row, column = row + (ahead <= 0), column + (ahead >= 0)
    assert mask.any(0).all()
    assert mask.any(1).all()


def test_a_mask_of_another_length_follows_its_diagonal():
    mask = band(4, torch.tensor([8]), 8, 1)[0].int().tolist()
    assert mask == [  # a frame of four is two of eight: one frame to each side is two there
        [1, 1, 1, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 1, 1, 1],
    ]


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 30), st.lists(st.integers(2, 30), min_size=1, max_size=3))
def test_plans_keep_to_the_mask_and_to_the_marginals(seed, frames, lengths):
    reward = demonstrated("temporal-ot", [walk(seed + n, length) for n, length in enumerate(lengths, 1)], mask=2)
    costs = reward.costs(walk(seed, frames))
    plans = sinkhorn(reward.log_kernel(costs), costs, 100)
    mask = band(frames, costs.lengths, max(lengths), 2)
    assert (plans[~mask] == 0).all()
    assert (plans.transpose(1, 2)[~costs.real] == 0).all()
    assert torch.allclose(plans.sum(2), torch.full((len(lengths), frames), 1 / frames).double(), rtol=1e-12)


@pytest.mark.parametrize(("frames", "length"), [(30, 12), (12, 30), (20, 20), (2, 30), (30, 2)])
def test_both_marginals_can_be_met_within_a_narrow_mask(frames, length):
    reward = demonstrated("temporal-ot", [walk(2, length)], mask=1, epsilon=0.2)
    costs = reward.costs(walk(1, frames))
    plan = sinkhorn(reward.log_kernel(costs), costs, 2000)[0]
    assert torch.allclose(plan.sum(0), torch.full((length,), 1 / length).double(), rtol=0.02)


def test_a_large_cost_instead_of_the_mask_is_the_same():
    reward = demonstrated("temporal-ot", [walk(2, 25)], mask=3)
    costs = reward.costs(walk(1, 30))
    plan = sinkhorn(reward.log_kernel(costs), costs, 100)[0]
    dear = np.where(band(30, costs.lengths, 25, 3)[0], costs.values[0], 1e4)
    single = pot.sinkhorn(
        np.full(30, 1 / 30),
        np.full(25, 1 / 25),
        dear,
        0.01,
        method="sinkhorn_log",
        numItermax=100,
        stopThr=0,
        warn=False,
    )
    assert np.allclose(plan, single, rtol=1e-7, atol=1e-12)


def test_without_context_and_with_a_wide_mask_it_is_ot():
    demos, episode = [walk(2, 9), walk(3, 14)], walk(1, 12)
    wide = demonstrated("temporal-ot", demos, context=1, mask=14)
    assert torch.allclose(wide.compare(episode), demonstrated("ot", demos).compare(episode))


def test_backwards_is_worth_less():
    reward = demonstrated("temporal-ot", [walk(2, 40)])
    episode = walk(2, 40)
    assert reward.compare(episode.flip(0)).sum() < 2 * reward.compare(episode).sum()


def test_without_pot_fit_says_what_to_install(monkeypatch, videos):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(UserError, match=r"pip install 'timerewarder\[ot\]'"):
        tr.fit(videos, method="temporal-ot")


@pytest.mark.parametrize("options", [{"context": 0}, {"mask": 0}])
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match="--context and --mask"):
        Config(**options)
