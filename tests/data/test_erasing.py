"""Erasing: what is painted over, and what is not."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.data.erasing import PATCHES, SIDE, erase


@given(st.integers(0, 2**32), st.integers(16, 120), st.integers(1, 3), st.integers(0, 2))
def test_patches_are_small_and_the_rest_of_the_picture_stays(seed, side, count, history):
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (count, history + 1, side, side, 3), dtype=np.uint8)
    before = frames.copy()
    erased = erase(frames, rng)
    assert erased.shape == frames.shape
    assert erased.dtype == np.uint8
    assert np.array_equal(frames, before), "the frames that were given stay as they are"
    changed = (erased != frames).any(-1)
    largest = PATCHES[1] * round(SIDE[1] * side) ** 2
    assert (changed.sum((2, 3)) <= largest).all()
    assert (changed.any(1).sum((1, 2)) <= largest).all(), "all frames of a window have the same patches"


def test_every_frame_has_patches_of_its_own_in_colours_of_their_own():
    frames = np.full((40, 2, 84, 84, 3), 7, np.uint8)
    erased = erase(frames, np.random.default_rng(0))
    places = (erased != 7).any(-1)
    assert places.any((1, 2, 3)).all()
    assert np.array_equal(places[:, 0], places[:, 1])
    assert len({place.tobytes() for place in places[:, 0]}) == 40
    colours = {tuple(pixel) for frame, place in zip(erased[:, 0], places[:, 0], strict=True) for pixel in frame[place]}
    assert 40 <= len(colours) <= 40 * PATCHES[1]
