from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.data.sample_videos import scene
from timerewarder.data.resize import resize


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 90), st.integers(1, 90)),
    size=st.integers(1, 70),
    how=st.sampled_from(["squash", "crop"]),
    n=st.integers(1, 20),
)
def test_chunks_give_exactly_what_the_whole_gives(shape: tuple[int, int, int], size: int, how: str, n: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    whole = resize(frames, size, how)
    assert whole.shape == (shape[0], size, size, 3)
    assert whole.dtype == np.uint8
    assert whole.flags.c_contiguous
    parts = [resize(frames[i : i + n], size, how) for i in range(0, len(frames), n)]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("shape", [(120, 160), (37, 91), (200, 50), (84, 60)])
def test_squash_is_pillows_antialiased_bilinear(shape: tuple[int, int]) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (1, *shape, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(frame[0]).resize((84, 84), Image.Resampling.BILINEAR))
    assert np.abs(resize(frame, 84)[0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("shape", [(120, 161), (37, 91), (200, 50), (60, 60)])
def test_crop_is_clips(shape: tuple[int, int]) -> None:
    """Shorter side to the size by bicubic interpolation, then the centre, as transformers' CLIPImageProcessor does."""
    frame = scene(1, *shape)
    height, width = (int(64 * side / min(shape)) for side in shape)
    top, left = (height - 64) // 2, (width - 64) // 2
    scaled = np.asarray(Image.fromarray(frame[0]).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(resize(frame, 64, "crop")[0] - scaled[top : top + 64, left : left + 64]).max() <= 2


@pytest.mark.parametrize("how", ["squash", "crop"])
def test_the_right_size_is_left_alone(how: str) -> None:
    frames = scene(3, 40, 40)
    assert resize(frames, 40, how) is frames


@pytest.mark.filterwarnings("error")
def test_views_and_read_only_arrays() -> None:
    frames = scene(6)
    frames.flags.writeable = False
    expected = resize(frames.copy(), 20)
    assert np.array_equal(resize(frames, 20), expected)
    assert np.array_equal(resize(frames[::-2], 20), expected[::-2])
