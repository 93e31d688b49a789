"""Composites: what they are put together from, and which moment they count as."""

import numpy as np
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


def put_together(differs: np.ndarray, time: int, other_time: int, seed: int):
    """A black frame and one that is white where it differs (S, S) -> the pixels taken over (S, S), and the time."""
    frames = np.zeros((1, 2, SIDE, SIDE, 3), np.uint8)
    others = np.broadcast_to(np.where(differs, 255, 0)[..., None], frames.shape).astype(np.uint8)
    mixed, times = composite(frames, np.array([time]), others, np.array([other_time]), np.random.default_rng(seed))
    assert np.array_equal(mixed[0, 0], mixed[0, 1]), "all frames of a window get the same part"
    assert not frames.any(), "the frames that were given stay as they are"
    return mixed[0, -1].all(-1), int(times[0])


@given(
    st.integers(0, 2**32),
    st.integers(0, 30),
    st.integers(0, 30),
    st.tuples(*[st.integers(0, SIDE - 1)] * 2).map(sorted),
)
def test_a_frame_counts_as_its_least_advanced_part(seed, time, other_time, columns):
    differs = np.zeros((SIDE, SIDE), bool)
    differs[:, columns[0] : columns[1] + 1] = True
    taken, counted = put_together(differs, time, other_time, seed)
    share = taken.sum() / differs.sum()
    if share <= 0.1:
        assert counted == time
    elif share <= 0.9 or (taken & ~differs).any():
        assert counted == min(time, other_time)
    else:
        assert counted in (other_time, min(time, other_time))  # put where it was, or by chance just there


def test_all_cases_happen():
    differs = np.zeros((SIDE, SIDE), bool)
    differs[8:14, 8:14] = True
    later = [put_together(differs, 3, 9, seed) for seed in range(100)]
    assert {counted for _, counted in later} == {3, 9}
    earlier = [put_together(differs, 9, 3, seed) for seed in range(100)]
    assert {counted for _, counted in earlier} == {3, 9}
    assert any((taken & ~differs).any() for taken, _ in later), "some parts are put elsewhere"
    assert any(taken.any() and not (taken & ~differs).any() for taken, _ in later), "and some where they were"
    assert all(counted == 3 for taken, counted in later if (taken & ~differs).any())


def test_what_compression_changes_is_no_difference():
    frames = np.full((1, 1, SIDE, SIDE, 3), 100, np.uint8)
    for others, expected in ((frames + 15, 9), (frames - 15, 9), (frames + 60, 3), (frames - 60, 3)):
        counted = [
            composite(frames, np.array([9]), others, np.array([3]), np.random.default_rng(seed))[1][0]
            for seed in range(20)
        ]
        assert expected in counted
        assert (expected == 9) == (3 not in counted)


def test_nothing_to_put_together():
    none = np.empty((0, 1, SIDE, SIDE, 3), np.uint8)
    frames, times = composite(none, np.empty(0, int), none, np.empty(0, int), np.random.default_rng(0))
    assert frames.shape == none.shape
    assert times.shape == (0,)
