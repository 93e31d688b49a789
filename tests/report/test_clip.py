from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.report.clip import WIDEST, resize, shown_size, true_distances


def test_true_distances_are_signed_shares_of_the_video():
    np.testing.assert_allclose(true_distances(3), [[0, 0.5, 1], [-0.5, 0, 0.5], [-1, -0.5, 0]])


def test_true_distances_in_units_of_a_longer_video():
    np.testing.assert_allclose(true_distances(3, unit=5), true_distances(3) / 2)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((84, 84), (336, 336)),
        ((64, 128), (336, 672)),
        ((400, 300), (400, 300)),
        ((1080, 1920), (480, 854)),
        ((1920, 1080), (480, 270)),
    ],
)
def test_small_pictures_grow_and_large_ones_shrink(size, expected):
    assert shown_size(*size, lowest=336, highest=480) == expected


@given(height=st.integers(8, 4000), width=st.integers(8, 4000))
def test_shown_size_is_even_bounded_and_keeps_the_shape(height, width):
    shown_height, shown_width = shown_size(height, width, lowest=336, highest=480)
    assert shown_height % 2 == shown_width % 2 == 0
    assert shown_height <= 480
    assert shown_width <= WIDEST
    assert shown_height >= 336 or shown_width >= WIDEST - 1
    # Rounding to even moves either side by at most one pixel; no side is less than two.
    assert shown_width == 2 or abs(shown_width - shown_height * width / height) <= 1 + width / height + 1e-6


def test_resize_keeps_a_picture_that_fits_and_scales_another(make_clip):
    frame = make_clip().frames[0]
    assert resize(frame, (48, 64)) is frame
    larger = resize(frame, (96, 128))
    assert larger.shape == (96, 128, 3)
    assert larger.dtype == np.uint8
    assert abs(float(larger.mean()) - float(frame.mean())) < 1


@pytest.mark.parametrize(("field", "shape"), [("rewards", (11,)), ("progress", (12, 1)), ("distances", (11, 12))])
def test_arrays_that_do_not_match_the_frames_are_refused(make_clip, field, shape):
    with pytest.raises(ValueError, match="square: 12 frames"):
        dataclasses.replace(make_clip(), **{field: np.zeros(shape, np.float32)})
