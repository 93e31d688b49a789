"""Composites: what they are put together from, and which moment they count as."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.data.composites import AREA, composite, place, size

SIDE = 24


@given(st.integers(16, 200), st.integers(0, 2**32))
def test_a_rectangle_lies_in_the_picture_and_has_the_area_asked_for(side, seed):
    rng = np.random.default_rng(seed)
    height, width = size(side, rng)
    rows, columns = place(side, height, width, rng)
    assert (rows.stop - rows.start, columns.stop - columns.start) == (height, width)
    assert 0 <= rows.start < rows.stop <= side
    assert 0 <= columns.start < columns.stop <= side
    assert AREA[0] * side**2 - 2 * side < height * width <= AREA[1] * side**2 + 2 * side


def put_together(
    differs: np.ndarray, time: int, other_time: int, seed: int, hand: np.ndarray | None = None, other_hand=None
):
    """A black frame and one that is white where it differs (S, S) -> the pixels taken over (S, S), and the time."""
    frames = np.zeros((1, 2, SIDE, SIDE, 3), np.uint8)
    others = np.broadcast_to(np.where(differs, 255, 0)[..., None], frames.shape).astype(np.uint8)
    moving, other_moving = (np.zeros((1, SIDE, SIDE), bool) if one is None else one[None] for one in (hand, other_hand))
    mixed, times = composite(
        frames, np.array([time]), others, np.array([other_time]), moving, other_moving, np.random.default_rng(seed)
    )
    assert np.array_equal(mixed[0, 0], mixed[0, 1]), "all frames of a window get the same part"
    assert not frames.any(), "the frames that were given stay as they are"
    return mixed[0, -1].all(-1), int(times[0])


@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 30), st.tuples(*[st.integers(0, 23)] * 2).map(sorted))
def test_where_nothing_tells_hand_from_object_the_earlier_moment_counts(seed, time, other_time, columns):
    differs = np.zeros((SIDE, SIDE), bool)
    differs[:, columns[0] : columns[1] + 1] = True
    taken, counted = put_together(differs, time, other_time, seed)  # nothing moves
    share = taken.sum() / differs.sum()
    if share < 0.1:
        assert counted == time
    elif share <= 0.9:
        assert counted == min(time, other_time)
    else:
        assert counted == other_time


HAND, OBJECT = np.zeros((2, SIDE, SIDE), bool)
HAND[2:6, 2:6] = OBJECT[16:22, 14:22] = True


@pytest.mark.parametrize(("time", "other_time"), [(3, 9), (9, 3)])
def test_the_object_decides_wherever_the_hand_comes_from(time, other_time):
    """Both differ between the moments, the hand moves; a rectangle may hold either."""
    seen = set()
    for seed in range(300):
        taken, counted = put_together(HAND | OBJECT, time, other_time, seed, HAND, HAND)
        got_hand, got_object = (taken[part].mean() for part in (HAND, OBJECT))
        if got_object > 0.95 and got_hand == 0:
            assert counted == other_time, "the object is from the other moment, the hand is not"
            seen.add("object")
        if got_hand == 1 and got_object == 0:
            assert counted == time, "the hand is from the other moment, the object is not"
            seen.add("hand")
    assert seen == {"object", "hand"}


def test_what_compression_changes_is_no_difference():
    frames, still = np.full((1, 1, SIDE, SIDE, 3), 100, np.uint8), np.zeros((1, SIDE, SIDE), bool)
    for others, expected in ((frames + 15, 9), (frames - 15, 9), (frames + 60, 3), (frames - 60, 3)):
        counted = [
            composite(frames, np.array([9]), others, np.array([3]), still, still, np.random.default_rng(seed))[1][0]
            for seed in range(20)
        ]
        assert expected in counted
        assert (expected == 9) == (3 not in counted)


def test_nothing_to_put_together():
    none, still, times = np.empty((0, 1, SIDE, SIDE, 3), np.uint8), np.empty((0, SIDE, SIDE), bool), np.empty(0, int)
    frames, times = composite(none, times, none, times, still, still, np.random.default_rng(0))
    assert frames.shape == none.shape
    assert times.shape == (0,)
