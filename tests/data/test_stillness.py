"""Where a video comes to rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import crossing
from timerewarder.data.stillness import moving_length
from timerewarder.data.store import open_store


def with_rest(frames: np.ndarray, still: int, flicker: int = 0) -> np.ndarray:
    """The video, its last frame held for `still` frames in which `flicker` pixels drift."""
    tail = np.repeat(frames[-1:], still, axis=0)
    for t in range(still):
        tail[t, 0, :flicker] += t
    return np.concatenate([frames, tail])


@pytest.mark.parametrize("flicker", [0, 3])
def test_the_clock_stops_at_the_last_movement(flicker: int) -> None:
    frames = crossing(0, 20)
    assert moving_length(with_rest(frames, 15, flicker)) == 20


def test_a_video_that_moves_to_its_end_keeps_its_length() -> None:
    assert moving_length(crossing(1, 20)) == 20


def test_rest_in_the_middle_does_not_stop_the_clock() -> None:
    frames = crossing(2, 20)
    assert moving_length(np.concatenate([frames[:10], np.repeat(frames[9:10], 20, axis=0), frames[10:]])) == 40


def test_a_video_without_any_movement_keeps_its_length() -> None:
    assert moving_length(np.full((7, 8, 8, 3), 9, np.uint8)) == 7


def test_times_of_a_store(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", with_rest(crossing(0, 12), 6))
    np.save(tmp_path / "b.npy", crossing(1, 9))
    store = open_store(tmp_path, 32)
    assert store.spans.tolist() == store.lengths.tolist() == [18, 9]
    stopped = store.stopped_at_rest()
    assert stopped.spans.tolist() == [12, 9]
    assert stopped.lengths.tolist() == [18, 9]
    assert stopped.times(0, np.arange(18)).tolist() == [*range(12), *[11] * 6]
    assert stopped.subset([1]).spans.tolist() == [9]
