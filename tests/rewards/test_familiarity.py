"""What a model knows: pictures like and unlike the training videos, and the stream that passes over the unlike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import timerewarder as tr
from tests.conftest import QUICK, crossing
from timerewarder.data.store import FrameStore, open_store
from timerewarder.rewards.familiarity import MOST, SIDE, Familiarity, Guarded, thumbnails
from timerewarder.rewards.timerewarder import Config, TimeRewarder


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
        assert learned(store.frames(0, np.arange(store.lengths[0])), 1.25).all()
    assert not learned(255 - crossing(0, 10), 1.25).any()


@pytest.mark.parametrize(("distance", "known"), [(0.5, True), (1.9, True), (2.1, False), (4.0, False)])
def test_a_frame_is_known_within_the_tolerance(distance: float, known: bool) -> None:
    familiarity, frame = Familiarity(), crossing(0, 10)[:1]
    familiarity.thumbnails = thumbnails(frame).round().byte()
    familiarity.reach = (thumbnails(frame + 20) - familiarity.thumbnails).norm() / distance
    assert familiarity(frame + 20, 2.0).tolist() == [known]


def test_an_empty_one_finds_everything_familiar() -> None:
    assert Familiarity()(crossing(0, 5), 1.25).tolist() == [True] * 5


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
    known = tr.load(tmp_path / "model").familiarity(frames, 1.25)
    assert np.array_equal(known, reward.familiarity(frames, 1.25))
    assert known.any()
    assert not known.all()


def test_without_validation_the_videos_measure_each_other(videos: Path) -> None:
    store = open_store(videos, 32)
    alone, several = Familiarity(), Familiarity()
    alone.learn(store.subset([0]), store.subset([]))
    assert alone(255 - crossing(0, 4), 1.25).all()  # one video alone: nothing is known about what is familiar
    several.learn(store, store.subset([]))
    frames = [thumbnails(store.frames(video, np.arange(length))) for video, length in enumerate(store.lengths)]
    distances = [
        np.linalg.norm(own.numpy()[:, None] - np.concatenate(frames[:i] + frames[i + 1 :])[None], axis=2).min(1)
        for i, own in enumerate(frames)
    ]
    assert float(several.reach) == pytest.approx(np.concatenate(distances).max(), rel=1e-3)
    assert not several(255 - crossing(0, 4), 1.25).any()


def test_videos_that_are_all_alike_are_known(tmp_path: Path) -> None:
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.zeros((5, 16, 16, 3), np.uint8))
    store = open_store(tmp_path, 16)
    familiarity = Familiarity()
    familiarity.learn(store.subset([0, 1]), store.subset([2]))
    assert familiarity(np.zeros((2, 16, 16, 3), np.uint8), 1.25).all()
    assert not familiarity(np.full((2, 16, 16, 3), 200, np.uint8), 1.25).any()


def guarded(frames: np.ndarray, known: list[bool], anchored: bool = False) -> tuple[TimeRewarder, list[float]]:
    """An untrained model, and the rewards of its guarded stream over the frames."""
    torch.manual_seed(0)
    reward = TimeRewarder(Config(image_size=32)).eval()
    stream, features = Guarded(reward.stream(), anchored), reward.encode(frames)
    stream.begin(features[0])
    return reward, [stream.arrive(*step) for step in zip(features[1:], known[1:], strict=True)]


def test_known_frames_are_rewarded_as_they_are_scored() -> None:
    frames = crossing(0, 8)
    reward, rewards = guarded(frames, [True] * 8)
    assert rewards == pytest.approx(reward.score(frames)[1:].tolist(), abs=1e-6)


def test_out_of_sight_nothing_counts_and_coming_back_pays_what_there_was() -> None:
    frames, known = crossing(0, 7), [True, True, True, False, False, True, True]
    reward, rewards = guarded(frames, known)
    scored = reward.score(frames)
    gained = float(scored[1:3].sum())
    assert rewards == pytest.approx([scored[1], scored[2], -gained, 0, gained, scored[6]], abs=1e-6)


def test_anchored_it_pays_what_is_seen_from_the_first_frame() -> None:
    frames, known = crossing(0, 6), [True, True, True, False, True, True]
    reward, rewards = guarded(frames, known, anchored=True)
    seen = [float(reward.score(frames[[0, t]])[1]) if known[t] else 0.0 for t in range(1, 6)]
    assert np.cumsum(rewards) == pytest.approx(seen, abs=1e-6)


@given(known=st.lists(st.booleans(), min_size=2, max_size=12), anchored=st.booleans(), seed=st.integers(0, 3))
def test_what_has_been_paid_is_the_progress_and_nothing_out_of_sight(
    known: list[bool], anchored: bool, seed: int
) -> None:
    frames = crossing(seed, len(known))
    reward, rewards = guarded(frames, known, anchored)
    scored, summed = reward.score(frames), 0.0
    for t in range(1, len(frames)):
        if known[t] and (known[t - 1] or t == 1):
            summed += float(scored[t])
        progress = float(reward.score(frames[[0, t]])[1]) if anchored else summed
        assert sum(rewards[:t]) == pytest.approx(progress if known[t] else 0.0, abs=1e-5)
