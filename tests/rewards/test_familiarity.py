"""What a model knows: weights of pictures like and unlike the training videos, and the guard made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import timerewarder as tr
from tests.conftest import QUICK, crossing
from timerewarder.data.store import FrameStore, open_store
from timerewarder.rewards.familiarity import MOST, SIDE, Familiarity, Guard, thumbnails


def stores(videos: Path) -> tuple[FrameStore, FrameStore]:
    store = open_store(videos, 32)
    return store.subset(range(20)), store.subset(range(20, 24))


@pytest.fixture
def learned(videos: Path) -> Familiarity:
    familiarity = Familiarity()
    familiarity.learn(*stores(videos))
    return familiarity


def test_thumbnails_are_means_of_blocks() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (2, 4 * SIDE, 4 * SIDE, 3), dtype=np.uint8)
    blocks = frames.reshape(2, SIDE, 4, SIDE, 4, 3).mean((2, 4))
    assert thumbnails(frames).numpy() == pytest.approx(blocks.transpose(0, 3, 1, 2).reshape(2, -1), abs=1e-3)


def test_training_and_validation_frames_are_familiar_and_others_not(learned: Familiarity, videos: Path) -> None:
    for store in stores(videos):
        assert learned(store.frames(0, np.arange(store.lengths[0]))).min() == pytest.approx(1.0, abs=1e-3)
    unlike = 255 - crossing(0, 10)
    assert learned(unlike).max() == 0.0


def test_weights_fall_from_the_reach_to_half_as_far_again(learned: Familiarity) -> None:
    known = crossing(0, 10)[:1]
    learned.load({"thumbnails": thumbnails(known).round().byte()})
    for distance, expected in ((0.5, 1.0), (1.0, 1.0), (1.25, 0.5), (1.5, 0.0), (3.0, 0.0)):
        learned.reach = (thumbnails(known + 20) - learned.thumbnails).norm() / distance
        assert learned(known + 20)[0] == pytest.approx(expected, abs=1e-4)


def test_an_empty_one_finds_everything_familiar() -> None:
    assert Familiarity()(crossing(0, 5)).tolist() == [1.0] * 5


def test_it_keeps_a_bounded_number_of_thumbnails(tmp_path: Path) -> None:
    for name in ("long", "other"):
        np.save(tmp_path / f"{name}.npy", np.full((MOST, 16, 16, 3), len(name), np.uint8))
    store = open_store(tmp_path, 16)
    familiarity = Familiarity()
    familiarity.learn(store.subset([0]), store.subset([1]))
    assert MOST / 2 <= len(familiarity.thumbnails) <= MOST


def test_it_is_fitted_saved_and_loaded_with_the_model(videos: Path, tmp_path: Path) -> None:
    reward = tr.fit(videos, tmp_path / "model", **{**QUICK, "epochs": 0.1})
    frames = np.concatenate([crossing(7), 255 - crossing(8)])
    weights = tr.load(tmp_path / "model").familiarity(frames)
    assert np.array_equal(weights, reward.familiarity(frames))
    assert weights.min() == 0.0
    assert weights.max() == 1.0


def test_without_validation_the_videos_measure_each_other(videos: Path) -> None:
    store = open_store(videos, 32)
    alone, several = Familiarity(), Familiarity()
    alone.learn(store.subset([0]), store.subset([]))
    assert alone(255 - crossing(0, 4)).tolist() == [1.0] * 4  # one video alone: nothing is known about what is familiar
    several.learn(store, store.subset([]))
    frames = [thumbnails(store.frames(video, np.arange(length))) for video, length in enumerate(store.lengths)]
    distances = [
        np.linalg.norm(own.numpy()[:, None] - np.concatenate(frames[:i] + frames[i + 1 :])[None], axis=2).min(1)
        for i, own in enumerate(frames)
    ]
    assert float(several.reach) == pytest.approx(np.concatenate(distances).max(), rel=1e-3)
    assert several(255 - crossing(0, 4)).max() == 0.0


def test_videos_that_are_all_alike_give_finite_weights(tmp_path: Path) -> None:
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.zeros((5, 16, 16, 3), np.uint8))
    store = open_store(tmp_path, 16)
    familiarity = Familiarity()
    familiarity.learn(store.subset([0, 1]), store.subset([2]))
    assert familiarity(np.zeros((2, 16, 16, 3), np.uint8)).tolist() == [1.0, 1.0]


def test_the_guard_weighs_and_limits() -> None:
    guard = Guard(Familiarity(), 0.1, lambda frames: frames)
    assert guard(0.05, 1.0, 1.0) == 0.05
    assert guard(0.05, 1.0, 0.5) == guard(0.05, 0.5, 1.0) == 0.025
    assert guard(0.9, 1.0, 1.0) == 0.1
    assert guard(-0.9, 1.0, 1.0) == -0.9
    assert guard(-0.9, 0.0, 1.0) == -0.9
    assert guard(0.9, 0.0, 1.0) == 0.0
    assert Guard(Familiarity(), None, lambda frames: frames)(0.9, 1.0, 1.0) == 0.9
