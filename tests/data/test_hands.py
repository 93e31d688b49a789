"""The hand is what moves first, and is found by its looks in all frames."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from timerewarder.data import hands
from timerewarder.data.hands import CHANGED, PART, find_hands
from timerewarder.data.store import FrameStore, open_store
from timerewarder.errors import UserError

SIZE = 48
HAND, OBJECT = (240, 200, 60), (60, 120, 240)


@dataclass
class Pulled:
    """A video in which a hand comes down to an object and then pulls it to the left, and the truth about it."""

    frames: np.ndarray  # uint8 (T, SIZE, SIZE, 3)
    scenes: np.ndarray  # the same without the hand
    hand: np.ndarray  # bool (T, SIZE, SIZE)
    pulled: np.ndarray  # pixels (T,)


def pulling(seed: int, size: int = SIZE, length: int = 20) -> Pulled:
    rng = np.random.default_rng(seed)
    scale = size // SIZE
    background = rng.integers(90, 110, (size, size, 3)).astype(np.uint8)
    start, place = rng.integers(0, 12), rng.integers(24, 32)  # columns of hand and object at first
    frames, scenes, hands, pulled = [], [], [], []
    for t in np.linspace(0, 2, length):
        down, left = min(t, 1.0), round(max(t - 1, 0) * 20)
        row, column = round(2 + 24 * down), round(start + (place - start) * down) - left
        frame, hand = background.copy(), np.zeros((size, size), bool)
        frame[36 * scale : 44 * scale, (place - left) * scale : (place - left + 12) * scale] = OBJECT
        hand[row * scale : (row + 10) * scale, column * scale : (column + 8) * scale] = True
        scenes.append(frame.copy())
        frame[hand] = HAND
        frames.append(frame)
        hands.append(hand)
        pulled.append(left)
    return Pulled(np.stack(frames), np.stack(scenes), np.stack(hands), np.array(pulled))


def store_of(folder: Path, videos: list[np.ndarray], size: int = SIZE) -> FrameStore:
    for number, frames in enumerate(videos):
        np.save(folder / f"{number:02d}.npy", frames)
    return open_store(folder, size)


@pytest.fixture(scope="module")
def eight(tmp_path_factory) -> tuple[list[Pulled], FrameStore]:
    """Eight videos, and the hands that are found in them."""
    truth = [pulling(seed) for seed in range(8)]
    return truth, find_hands(store_of(tmp_path_factory.mktemp("eight"), [video.frames for video in truth]))


def test_it_is_found_in_all_frames_though_the_object_moves_along_later(eight):
    check_found(*eight)


@pytest.mark.parametrize(("size", "length"), [(4 * SIZE, 20), (SIZE, 3 * PART // 2)])
def test_it_is_found_in_large_pictures_and_in_long_videos(tmp_path, size, length):
    truth = [pulling(seed, size, length) for seed in range(4)]
    check_found(truth, find_hands(store_of(tmp_path, [video.frames for video in truth], size)))


def check_found(truth: list[Pulled], store: FrameStore) -> None:
    for video, known in enumerate(truth):
        found = store.hands[video].mask(np.arange(len(known.frames)))
        assert found.shape == known.hand.shape
        both, either = (found & known.hand).sum((1, 2)), (found | known.hand).sum((1, 2))
        assert (both / either).min() > 0.6, "with one pixel more all around"
        is_object = (known.frames == OBJECT).all(-1)
        assert (found & is_object).sum() < 0.25 * is_object.sum()


def test_what_looks_like_it_but_stands_still_is_no_part_of_it(tmp_path):
    videos = [pulling(seed).frames for seed in range(6)]
    for frames in videos:
        frames[:, 4:10, 40:46] = HAND
    store = find_hands(store_of(tmp_path, videos))
    assert not any(hand.mask(np.arange(20))[:, 4:10, 40:46].any() for hand in store.hands)
    assert all(hand.mask(np.arange(20)).any((1, 2)).all() for hand in store.hands)


def test_the_scene_has_changed_once_the_object_is_moved(eight):
    truth, store = eight
    for video, known in enumerate(truth):
        changed = store.hands[video].changed
        assert not changed[known.pulled == 0].any()
        assert changed[known.pulled * 8 > 4 * CHANGED * SIZE**2].all()


def test_it_is_found_again_with_the_same_seed_and_goes_with_its_video(tmp_path, monkeypatch):
    monkeypatch.setattr(hands, "STEPS", 30)  # how well does not matter
    store = store_of(tmp_path, [pulling(seed).frames for seed in range(4)])
    once, again = find_hands(store, 3), find_hands(store, 3)
    for one, other in zip(once.hands, again.hands, strict=True):
        assert np.array_equal(one.bits, other.bits)
    assert once.subset([2, 0]).hands == (once.hands[2], once.hands[0])
    assert store.subset([2, 0]).hands == ()


def test_without_a_camera_that_stands_still_there_is_none(tmp_path):
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
    store = store_of(tmp_path, [np.stack([np.roll(picture, 3 * t, 1) for t in range(12)])] * 2)
    with pytest.raises(UserError, match=r"nearly the whole picture moves.*leave out --composites"):
        find_hands(store)


def test_without_a_hand_that_comes_first_there_is_none(tmp_path):
    frames = np.zeros((12, SIZE, SIZE, 3), np.uint8)
    frames[9:, 10:20, 10:20] = 255
    with pytest.raises(UserError, match=r"nothing moves.*leave out --composites"):
        find_hands(store_of(tmp_path, [frames] * 2))
