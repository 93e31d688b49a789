"""The metrics by hand: a perfect predictor, a constant one, one that sees nothing, and definitions by brute force."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from tests.data.sample_videos import numbered, numbers
from timerewarder.data.store import open_store
from timerewarder.evaluation.metrics import auroc, evaluate, video_metrics
from timerewarder.rewards.fitting import order_correlation

KEYS = [
    "voc", "voc_from_first", "voc_reversed", "frozen_sum", "pair_mae", "adjacent_sign_accuracy", "success_auroc",
    "videos", "frames", "frames_per_second",
]  # fmt: skip


class Perfect:
    """Reads the number of a frame off its brightness: its features are the time itself, (T, 1)."""

    is_value = True

    def encode(self, frames):
        return torch.tensor(numbers(frames), dtype=torch.float64)[:, None]

    def compare(self, features):
        steps = torch.diff(features[:, 0], prepend=features[:1, 0])
        return steps / (self.unit(len(features)) - 1)

    def distances(self, features):
        time = features[:, 0]
        return (time[None, :] - time[:, None]) / (self.unit(len(features)) - 1)

    def score(self, frames):
        return self.compare(self.encode(frames)).numpy()

    def unit(self, length):
        return length


class Constant(Perfect):
    """Says the same positive number whatever it sees: the trivial winner of VOC."""

    step = 0.125

    def compare(self, features):
        return torch.full((len(features),), self.step, dtype=torch.float64).index_fill(0, torch.tensor([0]), 0.0)

    def distances(self, features):
        return torch.full((len(features), len(features)), self.step, dtype=torch.float64)


class WholeTaskIs(Perfect):
    """Measures in shares of a task that has 21 frames, however long the video is (`length_norm="dataset_max"`)."""

    def unit(self, length):
        return 21


def times(length):
    return torch.arange(length, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("length", [2, 3, 12])
def test_perfect_predictor(length):
    found = video_metrics(Perfect(), times(length))
    assert found.voc == pytest.approx(1)
    assert found.voc_from_first == pytest.approx(1)
    assert found.voc_reversed == pytest.approx(-1)
    assert found.frozen_sum == 0
    assert found.pair_mae == pytest.approx(0, abs=1e-15)
    assert found.adjacent_sign_accuracy == 1
    assert found.final_value == pytest.approx(1)


@pytest.mark.parametrize("length", [2, 3, 12])
def test_constant_predictor_wins_voc_and_nothing_else(length):
    found = video_metrics(Constant(), times(length))
    assert found.voc == pytest.approx(1)
    assert found.voc_from_first == 0
    assert found.voc_reversed == pytest.approx(1)
    assert found.frozen_sum == Constant.step * (length - 1)
    assert found.adjacent_sign_accuracy == 0.5
    assert found.final_value == Constant.step * (length - 1)
    pairs = [(u, v) for u in range(length) for v in range(length) if u != v]
    errors = [abs(Constant.step - (v - u) / (length - 1)) for u, v in pairs]
    assert found.pair_mae == pytest.approx(sum(errors) / len(errors))


def test_silent_predictor_orders_nothing():
    silent = Constant()
    silent.step = 0.0
    found = video_metrics(silent, times(5))
    assert (found.voc, found.voc_from_first, found.voc_reversed, found.frozen_sum) == (0, 0, 0, 0)
    assert found.adjacent_sign_accuracy == 0


def test_distances_are_measured_in_the_unit_of_the_reward():
    found = video_metrics(WholeTaskIs(), times(11))
    assert found.pair_mae == pytest.approx(0, abs=1e-15)
    assert found.final_value == pytest.approx(0.5)


def test_frozen_sum_is_of_the_first_the_middle_and_the_last_frame():
    class Restless(Perfect):
        """Punishes standing still at frame t with t, so a frozen video of T frames loses t (T - 1)."""

        def compare(self, features):
            return (-features[:, 0]).index_fill(0, torch.tensor([0]), 0.0)

    assert video_metrics(Restless(), times(9)).frozen_sum == pytest.approx(8 * (0 + 4 + 8) / 3)


def test_sign_accuracy_counts_both_orders():
    features = torch.tensor([[0.0], [1.0], [2.0], [1.0], [1.0]])  # one step back, one step that stands still
    assert video_metrics(Perfect(), features).adjacent_sign_accuracy == 0.5  # (2 of 4 + 2 of 4) of 8


curves = arrays(np.float64, st.integers(2, 40), elements=st.integers(-4, 4) | st.floats(-1e6, 1e6, width=32))


@settings(deadline=None)
@given(curves)
def test_order_correlation_is_spearmans(curve):
    found = order_correlation(curve)
    if np.ptp(curve) == 0:
        assert found == 0
    else:
        assert found == pytest.approx(spearmanr(curve, np.arange(len(curve))).statistic, abs=1e-12)


@settings(deadline=None)
@given(curves)
def test_order_correlation_of_the_reversed_curve_is_its_negative(curve):
    assert order_correlation(curve[::-1]) == pytest.approx(-order_correlation(curve), abs=1e-12)


values = st.lists(st.integers(-3, 3) | st.floats(-10, 10), min_size=1, max_size=15)


@settings(deadline=None)
@given(values, values)
def test_auroc_is_the_share_of_pairs_won(positives, negatives):
    won = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives]
    assert auroc(positives, negatives) == pytest.approx(sum(won) / len(won))


@pytest.fixture
def stores(tmp_path):
    """Successes of 5 and 11 frames that play to the end, and failures of 13 frames that come back half-way."""
    there = numbered(13)
    for name, videos in {
        "success": {"short": there[:5], "long": there[:11]},
        "failure": {"one": np.concatenate([there[:7], there[:6][::-1]]), "two": np.concatenate([there[:7]] * 2)[:13]},
    }.items():
        (tmp_path / name).mkdir()
        for video, frames in videos.items():
            np.save(tmp_path / name / f"{video}.npy", frames)
    return tuple(open_store(tmp_path / name, size=32, cache=tmp_path / "cache") for name in ("success", "failure"))


def test_evaluation_of_a_perfect_predictor(stores):
    found = evaluate(Perfect(), *stores)
    assert list(found.metrics) == KEYS
    rounded = {key: round(value, 9) for key, value in found.metrics.items() if key != "frames_per_second"}
    assert rounded == {
        "voc": 1, "voc_from_first": 1, "voc_reversed": -1, "frozen_sum": 0, "pair_mae": 0, "adjacent_sign_accuracy": 1,
        "success_auroc": 1, "videos": 2, "frames": 16,
    }  # fmt: skip
    assert 0 < found.metrics["frames_per_second"] < math.inf
    assert found.final_values["held-out"] == pytest.approx({"short": 1, "long": 1})
    assert found.final_values["failure"] == pytest.approx({"one": 0, "two": 5 / 12})


def test_metrics_are_means_over_the_videos(stores):
    found = evaluate(Constant(), *stores)
    assert found.metrics["frozen_sum"] == Constant.step * (4 + 10) / 2
    assert found.metrics["success_auroc"] == 0  # it takes the longer video for the better one


def test_without_failures_there_is_no_auroc(stores):
    found = evaluate(Perfect(), stores[0])
    assert list(found.metrics) == KEYS
    assert found.metrics["success_auroc"] is None
    assert list(found.final_values) == ["held-out"]
    assert json.loads(json.dumps(found.metrics)) == found.metrics
