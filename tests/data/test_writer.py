from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from tests.data.sample_videos import numbered, numbers, scene
from timerewarder.data.videos import read_videos, write_video
from timerewarder.errors import UserError


def read_back(path: Path) -> np.ndarray:
    (video,) = read_videos(path)
    return video.frames


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    frames = scene(20, 84, 84)
    write_video(tmp_path / "a.mp4", frames, fps=12.5)
    error = read_back(tmp_path / "a.mp4").astype(float) - frames
    assert np.abs(error).mean() < 0.8
    assert np.abs(error.mean(axis=(0, 1, 2))).max() < 0.3
    write_video(tmp_path / "web.mp4", iter(frames), fps=12.5, quality="web")
    assert (tmp_path / "web.mp4").stat().st_size < 0.5 * (tmp_path / "a.mp4").stat().st_size


def test_plain_colours_come_back(tmp_path: Path) -> None:
    """Wrong matrix or range moves saturated colours by 10 to 30."""
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (10, 60, 200), (250, 200, 30)]
    frames = np.stack([np.full((32, 32, 3), colour, np.uint8) for colour in colours])
    write_video(tmp_path / "a.mp4", frames, fps=10)
    assert np.abs(read_back(tmp_path / "a.mp4").astype(int) - frames).max() <= 3


def test_any_player_opens_it(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", scene(5), fps=30000 / 1001)
    data = (tmp_path / "a.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")  # plays before all of it is there
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.name, context.pix_fmt, context.profile) == ("h264", "yuv420p", "High")
        assert stream.average_rate == Fraction(30000, 1001)
        assert (context.colorspace, context.color_primaries, context.color_trc, context.color_range) == (1, 1, 1, 1)


def test_same_frames_same_bytes(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, scene(30), fps=10)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_odd_sizes_get_one_more_row_and_column(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", numbered(6, 31, 45), fps=10)
    got = read_back(tmp_path / "a.mp4")
    assert got.shape == (6, 32, 46, 3)
    assert numbers(got) == list(range(6))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (np.zeros((0, 8, 8, 3), np.uint8), "no frames to write"),
        (np.zeros((2, 8, 8, 3), np.float32), "multiply by 255"),
        (np.zeros((2, 8, 8), np.uint8), "uint8"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 10, 3), np.uint8)], "frames must have one size"),
    ],
)
def test_bad_frames_leave_the_old_file(tmp_path: Path, frames: np.ndarray, message: str) -> None:
    write_video(tmp_path / "a.mp4", scene(3), fps=10)
    before = (tmp_path / "a.mp4").read_bytes()
    with pytest.raises(UserError, match=message):
        write_video(tmp_path / "a.mp4", frames, fps=10)
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_bytes() == before


def test_a_senseless_rate(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fps must be above 0"):
        write_video(tmp_path / "a.mp4", scene(3), fps=0)
