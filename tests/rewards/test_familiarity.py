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
        assert learned(store.frames(0, np.arange(store.lengths[0]))).all()
    assert not learned(255 - crossing(0, 10)).any()


@pytest.mark.parametrize(("distance", "known"), [(0.5, True), (1.9, True), (2.1, False), (4.0, False)])
def test_a_frame_is_known_up_to_twice_the_reach(distance: float, known: bool) -> None:
    familiarity, frame = Familiarity(), crossing(0, 10)[:1]
    familiarity.thumbnails = thumbnails(frame).round().byte()
    familiarity.reach = (thumbnails(frame + 20) - familiarity.thumbnails).norm() / distance
    assert familiarity(frame + 20).tolist() == [known]


def test_an_empty_one_finds_everything_familiar() -> None:
    assert Familiarity()(crossing(0, 5)).tolist() == [True] * 5


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
    known = tr.load(tmp_path / "model").familiarity(frames)
    assert np.array_equal(known, reward.familiarity(frames))
    assert known.any()
    assert not known.all()


def test_without_validation_the_videos_measure_each_other(videos: Path) -> None:
    store = open_store(videos, 32)
    alone, several = Familiarity(), Familiarity()
    alone.learn(store.subset([0]), store.subset([]))
    assert alone(255 - crossing(0, 4)).all()  # one video alone: nothing is known about what is familiar
    several.learn(store, store.subset([]))
    frames = [thumbnails(store.frames(video, np.arange(length))) for video, length in enumerate(store.lengths)]
    distances = [
        np.linalg.norm(own.numpy()[:, None] - np.concatenate(frames[:i] + frames[i + 1 :])[None], axis=2).min(1)
        for i, own in enumerate(frames)
    ]
    assert float(several.reach) == pytest.approx(np.concatenate(distances).max(), rel=1e-3)
    assert not several(255 - crossing(0, 4)).any()


def test_videos_that_are_all_alike_are_known(tmp_path: Path) -> None:
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.zeros((5, 16, 16, 3), np.uint8))
    store = open_store(tmp_path, 16)
    familiarity = Familiarity()
    familiarity.learn(store.subset([0, 1]), store.subset([2]))
    assert familiarity(np.zeros((2, 16, 16, 3), np.uint8)).all()
    assert not familiarity(np.full((2, 16, 16, 3), 200, np.uint8)).any()


def guarded(
    frames: np.ndarray, known: list[bool], limit: float | None = None, familiar: bool = True
) -> tuple[TimeRewarder, list[float]]:
    """An untrained model, and the rewards of its guarded stream over the frames."""
    torch.manual_seed(0)
    reward = TimeRewarder(Config(image_size=32)).eval()
    reward.head.linear.weight.data *= 5  # so that its distances do not add up
    stream, features = Guarded(reward.stream(), limit, familiar), reward.encode(frames)
    stream.begin(features[0])
    return reward, [stream.arrive(*step) for step in zip(features[1:], known[1:], strict=True)]


def account(reward: TimeRewarder, frames: np.ndarray, known: list[bool], limit: float = np.inf) -> list[float]:
    """The rewards of the module's docstring, from `score` alone."""
    steps, progress, seen, paid, rewards = reward.score(frames), 0.0, 0.0, 0.0, []
    for t in range(1, len(frames)):
        if not known[t]:
            progress = 0.0
        else:
            progress = progress + np.clip(steps[t], -limit, limit) if known[t - 1] else seen + limit
            progress = seen = min(progress, float(reward.score(frames[[0, t]])[1]))
        rewards.append(min(progress - paid, limit))
        paid += rewards[-1]
    return rewards


def test_without_guards_frames_are_rewarded_as_they_are_scored() -> None:
    frames = crossing(0, 8)
    reward, rewards = guarded(frames, [True] * 8, familiar=False)
    assert rewards == pytest.approx(reward.score(frames)[1:].tolist(), abs=1e-5)


def test_progress_is_at_most_what_is_seen_from_the_first_frame() -> None:
    frames = max(
        (crossing(seed, 8) for seed in range(10)), key=lambda f: sum(guarded(f, [True] * 8, familiar=False)[1])
    )
    reward, rewards = guarded(frames, [True] * 8)
    assert rewards == pytest.approx(account(reward, frames, [True] * 8), abs=1e-5)
    for t, total in enumerate(np.cumsum(rewards), start=1):
        assert total <= float(reward.score(frames[[0, t]])[1]) + 1e-6
    assert sum(rewards) < reward.score(frames).sum() - 1e-3, "the steps alone say more"


def test_out_of_sight_nothing_counts_and_coming_back_pays_the_way_from_the_first_frame() -> None:
    frames, known = crossing(0, 7), [True, True, True, False, False, True, True]
    reward, rewards = guarded(frames, known)
    assert rewards == pytest.approx(account(reward, frames, known), abs=1e-5)
    assert sum(rewards[:3]) == pytest.approx(0, abs=1e-5)
    assert rewards[3] == 0
    assert rewards[4] == pytest.approx(float(reward.score(frames[[0, 5]])[1]), abs=1e-5)


def test_out_of_sight_no_more_than_a_step_is_gained() -> None:
    known = [True, False, False, True, True, True, True]
    frames = max((crossing(seed, 7) for seed in range(10)), key=lambda frames: guarded(frames, known)[1][2])
    ahead = guarded(frames, known)[1][2]
    assert ahead > 0
    limit = ahead / 2.5
    reward, rewards = guarded(frames, known, limit)
    assert rewards[:3] == pytest.approx([0, 0, limit], abs=1e-5)  # not what the way from the first frame says
    assert rewards == pytest.approx(account(reward, frames, known, limit), abs=1e-5)


@given(
    known=st.lists(st.booleans(), min_size=2, max_size=12),
    limit=st.sampled_from([None, 0.001, 0.01, 0.1]),
    seed=st.integers(0, 3),
)
def test_no_more_is_ever_paid_than_was_reached(known: list[bool], limit: float | None, seed: int) -> None:
    """What was paid in all is the progress at the end, or less where the limit holds some back; out of sight 0."""
    frames = crossing(seed, len(known))
    reward, rewards = guarded(frames, known, limit)
    total = sum(rewards)
    if not known[-1]:
        assert total <= 1e-9
    if limit is not None:
        assert max(rewards, default=0) <= limit + 1e-9
    assert rewards == pytest.approx(account(reward, frames, [True, *known[1:]], limit or np.inf), abs=1e-5)
