"""Pair sampling: the paper's law, and that sharing frames restores it exactly."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.data.pairs import balance_weights, draw_pairs, pair_law, sample_independent, sample_shared

LAWS = ["inverse", "uniform"]


def inverse_law(length):
    """P(interval) of the paper, written out."""
    share = [1 / gap for gap in range(1, length)]
    return [0.0] + [s / sum(share) for s in share]


def test_interval_law_by_hand():
    # T = 4: 1, 1/2, 1/3 of 11/6.
    assert pair_law(4, "inverse").interval == pytest.approx([0, 6 / 11, 3 / 11, 2 / 11])
    assert pair_law(4, "uniform").interval == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])


@given(length=st.integers(2, 60), sampling=st.sampled_from(LAWS))
def test_marginal_is_the_brute_force_one(length, sampling):
    law, marginal = pair_law(length, sampling), np.zeros(length)
    for u, v in itertools.combinations(range(length), 2):
        p = law.interval[v - u] / (length - (v - u))
        marginal[u] += p / 2
        marginal[v] += p / 2
    assert law.marginal == pytest.approx(marginal)
    assert law.marginal.sum() == pytest.approx(1)


@pytest.mark.parametrize("sampling", LAWS)
@pytest.mark.parametrize("length", [2, 3, 30])
def test_drawn_pairs_follow_the_law(sampling, length):
    pairs = draw_pairs(np.random.default_rng(0), length, 200_000, sampling)
    assert (pairs[:, 0] >= 0).all()
    assert (pairs[:, 1] < length).all()
    found = np.bincount(pairs[:, 1] - pairs[:, 0], minlength=length) / len(pairs)
    assert found == pytest.approx(pair_law(length, sampling).interval, abs=0.005)
    starts = pairs[pairs[:, 1] - pairs[:, 0] == 1, 0]
    assert np.bincount(starts, minlength=length - 1) / len(starts) == pytest.approx(1 / (length - 1), abs=0.01)


@pytest.mark.parametrize("drawn", [1, 2, 4])
def test_weights_restore_the_law_exactly(drawn):
    """Expected weight on each pair, by summing over every outcome of the draws (T = 4): equals n p(u, v)."""
    length, sampling = 4, "inverse"
    law = pair_law(length, sampling)
    outcomes = [(u, v, law.interval[v - u] / (length - (v - u))) for u, v in itertools.combinations(range(length), 2)]
    total = np.zeros((length, length))
    for draw in itertools.product(outcomes, repeat=drawn):
        probability = np.prod([p for _, _, p in draw])
        frames = np.array([frame for u, v, _ in draw for frame in (u, v)])
        first, second = np.triu_indices(2 * drawn, 1)
        u, v = np.minimum(frames[first], frames[second]), np.maximum(frames[first], frames[second])
        np.add.at(total, (u, v), probability * balance_weights(u, v, length, drawn, sampling))
    pairs = drawn * (2 * drawn - 1)
    for u, v, p in outcomes:
        assert total[u, v] == pytest.approx(pairs * p)
    assert total.sum() == pytest.approx(pairs)


def test_shared_batches_follow_the_papers_law():
    """The weighted distribution of intervals over many batches equals P(interval) ~ 1/interval."""
    rng, length, found = np.random.default_rng(1), 25, np.zeros(25)
    for _ in range(4000):
        batch = sample_shared(rng, np.array([length]), clips=2, frames=8, sampling="inverse", negatives=True)
        gap = np.abs(batch.index[batch.after] - batch.index[batch.before])
        np.add.at(found, gap, batch.weight)
    assert found / found.sum() == pytest.approx(inverse_law(length), abs=0.006)


def test_two_frames_shared_are_independent_pairs():
    batch = sample_shared(
        np.random.default_rng(0), np.array([9, 30]), clips=5, frames=2, sampling="inverse", negatives=False
    )
    assert batch.weight == pytest.approx(1)
    assert (batch.index[batch.after] > batch.index[batch.before]).all()


@given(
    seed=st.integers(0, 2**32), lengths=st.lists(st.integers(2, 40), min_size=1, max_size=5), negatives=st.booleans()
)
def test_shared_batch_is_well_formed(seed, lengths, negatives):
    lengths = np.array(lengths)
    batch = sample_shared(np.random.default_rng(seed), lengths, 3, 6, "inverse", negatives)
    assert len(batch.video) == len(batch.index) == 18
    assert (batch.index < lengths[batch.video]).all()
    assert (batch.video[batch.before] == batch.video[batch.after]).all()
    gap = batch.gap(batch.index, lengths)
    assert gap.dtype == np.float32
    assert (np.abs(gap) <= 1).all()
    assert (batch.weight[gap == 0] == 0).all()
    assert (batch.weight <= 5 + 1e-5).all()
    assert len(batch.weight) == 3 * 15 * (2 if negatives else 1)
    if negatives:
        assert float((gap * batch.weight).sum()) == pytest.approx(0, abs=1e-4)
    else:
        assert (gap >= 0).all()


def test_independent_batch_flips_half_the_pairs():
    batch = sample_independent(np.random.default_rng(0), np.array([20]), 20_000, "inverse", negatives=True)
    assert (batch.gap(batch.index, np.array([20])) > 0).mean() == pytest.approx(0.5, abs=0.02)
    forward = sample_independent(np.random.default_rng(0), np.array([20]), 500, "inverse", negatives=False)
    assert (forward.gap(forward.index, np.array([20])) > 0).all()


def test_gap_is_normalised_by_the_given_length():
    batch = sample_independent(np.random.default_rng(0), np.array([11]), 50, "inverse", negatives=True)
    steps = batch.index[batch.after] - batch.index[batch.before]
    assert batch.gap(batch.index, np.array([11])) == pytest.approx(steps / 10)
    assert batch.gap(batch.index, np.array([101])) == pytest.approx(steps / 100)
