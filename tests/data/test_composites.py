"""Composites: a scene without its hand, another hand in it, and the moment that it counts as."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import crossing
from tests.data.test_hands import HAND, OBJECT, SIZE, pulling, store_of
from timerewarder.data import hands
from timerewarder.data.composites import APPROACH, composite, put_anywhere, scene
from timerewarder.data.hands import find_hands
from timerewarder.data.store import FrameStore
from timerewarder.rewards.timerewarder import Config, load_moments

VIDEOS, LENGTH = 6, 20


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    """Hands of one colour are soon known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hands, "STEPS", 100)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FrameStore:
    folder: Path = tmp_path_factory.mktemp("pulling")
    return find_hands(store_of(folder, [pulling(seed, SIZE, LENGTH).frames for seed in range(VIDEOS)]))


def shows(frames: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """How many pixels of each frame (N, S, S, 3) have a colour, (N,)."""
    return (frames == colour).all(-1).sum((-1, -2))


def test_a_scene_has_no_hand_and_shows_what_it_hid(store):
    for video in range(VIDEOS):
        truth = pulling(video, SIZE, LENGTH)
        frames = store.frames(video, np.arange(LENGTH))
        scenes = np.stack([scene(store, video, moment) for moment in range(LENGTH)])
        assert (shows(scenes, HAND) < 0.05 * shows(frames, HAND)).all()
        hand = store.hands[video].mask(np.arange(LENGTH))
        assert np.array_equal(scenes[~hand], frames[~hand])
        assert np.array_equal(scenes[:5], truth.scenes[:5]), "before the object is moved nothing else can be seen there"


def test_where_a_hand_never_leaves_the_nearest_pixels_are_shown(tmp_path):
    frames, rng = pulling(0).frames, np.random.default_rng(0)
    for frame in frames:
        frame[:6, :6] = np.array(HAND) - rng.integers(0, 50)  # it stays there, and moves
    store = find_hands(store_of(tmp_path, [frames, *(pulling(seed).frames for seed in range(1, 6))]))
    moments = [moment for moment in (1, 3, 4, 5, 6, 7, 9, 13, 21) if moment < len(frames)]
    shown, never = scene(store, 0, 5), store.hands[0].mask(np.array(moments)).all(0)
    assert never[:4, :4].all()
    check_nearest(shown, never)


def test_a_scene_that_remembers_nothing_shows_the_nearest_pixels(store):
    """Nothing of another moment: of an object that has been moved, none stands where it was."""
    for video, moment in itertools.product(range(VIDEOS), (3, LENGTH - 1)):
        shown, hand = scene(store, video, moment, remember=False), store.hands[video].mask(np.array([moment]))[0]
        assert hand.any()
        assert np.array_equal(shown[~hand], store.frames(video, [moment])[0][~hand])
        check_nearest(shown, hand)


def check_nearest(shown: np.ndarray, hidden: np.ndarray) -> None:
    """Each hidden pixel is like one that is seen, and none is nearer."""
    seen = np.argwhere(~hidden)
    for place in np.argwhere(hidden):
        distance = np.square(seen - place).sum(1)
        nearest = seen[distance == distance.min()]
        assert (shown[nearest[:, 0], nearest[:, 1]] == shown[tuple(place)]).all(1).any()


@given(st.integers(0, VIDEOS - 1), st.integers(0, LENGTH - 1), st.integers(0, 3), st.integers(0, 2**32))
@settings(max_examples=50)
def test_the_time_is_told_by_what_has_changed_or_by_a_hand_in_its_place(store, video, moment, history, seed):
    moments = np.maximum(moment - np.arange(history, -1, -1), 0)
    made, time = composite(store, video, moments, np.random.default_rng(seed))
    scenes = [np.stack([scene(store, video, one, remember) for one in moments]) for remember in (True, False)]
    differs = [(made != other).any(-1) for other in scenes]
    times = {0}  # nobody's, or put anywhere
    for donor, last in itertools.product(range(VIDEOS), range(LENGTH)):
        others = np.maximum(last - (moments[-1] - moments), 0)
        hand = store.hands[donor].mask(others)
        here = np.array_equal(made[hand], store.frames(donor, others)[hand])
        if here and not all(other[~hand].any() for other in differs):
            touched = store.hands[donor].touched
            times.add(APPROACH * (last if last <= touched else max(0, 2 * touched - last)))
    if store.hands[video].changed[moment]:
        assert time == moment
    else:
        assert time in times


@given(st.integers(0, 2**32))
def test_a_hand_put_anywhere_is_a_whole_hand_but_for_what_leaves_the_picture(seed):
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (2, 12, 12, 3)).astype(np.uint8)
    hand = np.zeros((2, 12, 12), bool)
    hand[0, 3:6, 4:8] = hand[1, 2:4, 5:9] = True
    put, shown = put_anywhere(hand, frames, rng)
    assert put.shape == hand.shape
    assert shown.shape == frames.shape
    for one, picture, old, before in zip(put, shown, hand, frames, strict=True):
        colours = {tuple(colour) for colour in before[old]}
        assert {tuple(colour) for colour in picture[one]} <= colours
        edges = np.concatenate([one[0], one[-1], one[:, 0], one[:, -1]])
        assert one.sum() == old.sum() or edges.any() or not one.any()


def test_hands_are_put_anywhere(store):
    """In a scene in which nothing has changed, and are worth nothing there."""
    rng, elsewhere = np.random.default_rng(0), 0
    for _ in range(40):
        made, time = composite(store, 0, np.array([2]), rng)
        rows, columns = np.nonzero((made[0] == HAND).all(-1))
        if len(rows) and (rows.min() > 36 or columns.min() > 40):
            elsewhere += 1
            assert time == 0
    assert elsewhere, "low in the picture, or far to the right, where no hand of a video is"


def test_a_hand_that_never_changes_anything_is_on_its_way_all_the_time(tmp_path):
    """As far as its own video had come, on the clock of the video whose scene it is put into."""
    videos = [crossing(seed, length, SIZE) for seed, length in enumerate((10, 19))]
    store = find_hands(store_of(tmp_path, videos))
    for video, seed in itertools.product(range(2), range(20)):
        time = composite(store, video, np.array([4]), np.random.default_rng(seed))[1]
        own, other = ((9, 18), (18, 9))[video]
        assert any(
            time == pytest.approx(APPROACH * own * u / whole) for whole in (own, other) for u in range(whole + 1)
        )


def test_a_share_of_the_frames_are_composites_and_have_their_times(store):
    """All of them are, so times tell: once the object is moved, they are the scenes'."""
    video, index = np.repeat(np.arange(VIDEOS), LENGTH), np.tile(np.arange(LENGTH), VIDEOS)
    frames, times = load_moments(store, video, index, Config(composites=1.0), np.random.default_rng(0))
    changed = np.concatenate([store.hands[number].changed for number in range(VIDEOS)])
    assert 0 < changed.sum() < len(changed)
    assert np.array_equal(times[changed], index[changed])
    touched = np.repeat([store.hands[number].touched for number in range(VIDEOS)], LENGTH)
    assert (times[~changed] <= APPROACH * touched.max()).all()
    assert (times[~changed] != index[~changed]).mean() > 0.5
    whole = np.concatenate([store.frames(number, np.arange(LENGTH)) for number in range(VIDEOS)])
    kept = shows(frames.numpy()[:, 0], OBJECT) / shows(whole, OBJECT)
    assert np.median(kept) > 0.8, "the object stays, but for what another hand hides"


def test_shifted_frames_of_a_video_stay_together(store):
    video, index = np.repeat(np.arange(2), 8), np.tile(np.arange(8), 2)
    frames, _ = load_moments(store, video, index, Config(shift=3), np.random.default_rng(4))
    still = load_moments(store, video, index, Config(), np.random.default_rng(4))[0].numpy()
    offsets = []
    for number in range(2):
        moved, there = frames.numpy()[video == number, 0], still[video == number, 0]
        padded = np.pad(there, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="edge")
        fits = [
            (top, left)
            for top in range(7)
            for left in range(7)
            if np.array_equal(moved, padded[:, top : top + SIZE, left : left + SIZE])
        ]
        assert len(fits) == 1
        offsets += fits
    assert offsets[0] != offsets[1]
