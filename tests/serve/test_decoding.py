"""The decoder's process: its frames are the reader's, and it is stopped when it takes too long or too much."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import crossing
from timerewarder.data.videos import read_videos, write_video
from timerewarder.serve.decoding import Decoder, Decoders
from timerewarder.serve.decoding_process import preview_fps, shrunk
from timerewarder.serve.errors import ApiError
from timerewarder.serve.limits import Limits


def test_frames_are_the_readers_and_the_process_ends(tmp_path: Path) -> None:
    file, preview = tmp_path / "upload", tmp_path / "preview.mp4"
    write_video(tmp_path / "clip.mp4", crossing(1, 150, 64), fps=25)
    (video,) = read_videos(tmp_path / "clip.mp4")
    file.write_bytes((tmp_path / "clip.mp4").read_bytes())
    with Decoders(Limits()).open(file, "clip.mp4", preview=preview) as decoder:
        assert (decoder.shape.fps, decoder.shape.height, decoder.shape.width) == (25.0, 64, 64)
        assert decoder.shape.total == 150
        np.testing.assert_array_equal(np.concatenate(list(decoder.chunks())), video.frames)
        process = decoder._process
    assert process.returncode is not None
    (shown,) = read_videos(preview)
    assert (len(shown.frames), shown.fps) == (150, 25.0)


def test_too_many_frames_after_resampling(tmp_path: Path) -> None:
    np.save(tmp_path / "upload.npy", crossing(1, 20))
    decoding = Decoders(Limits(frames=30)).open(tmp_path / "upload.npy", "a.npy", fps=100)
    with decoding as decoder, pytest.raises(ApiError, match=r"a\.npy has more than 30 frames: .*fps"):
        list(decoder.chunks())


def test_a_decoder_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    np.save(tmp_path / "upload.npy", crossing(1))
    with Decoders(Limits(decode_seconds=0.001)).open(tmp_path / "upload.npy", "slow.npy") as decoder:
        with pytest.raises(ApiError, match=r"slow\.npy was not decoded in 0\.001 seconds") as refused:
            list(decoder.chunks())
        assert refused.value.status == 422
        process = decoder._process
    assert process.returncode is not None
    assert not _is_alive(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_a_decoder_that_needs_too_much_memory_fails_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "upload.npy", np.zeros((2, 8000, 8000, 3), np.uint8))  # two frames are a chunk of 384 MB
    limits = Limits(decode_megabytes=400, pixels=2**26)
    with Decoders(limits).open(tmp_path / "upload.npy", "large.npy") as decoder, pytest.raises(ApiError) as refused:
        list(decoder.chunks())
    assert refused.value.status in (400, 413)
    assert refused.value.message.startswith("large.npy ")


def test_stopping_the_server_ends_decoders(tmp_path: Path) -> None:
    np.save(tmp_path / "upload.npy", crossing(1))
    decoders = Decoders(Limits())
    with decoders.open(tmp_path / "upload.npy", "a.npy") as decoder:
        decoders.close()
        with pytest.raises(ApiError, match="made the decoder fail"):
            list(decoder.chunks())


def test_the_decoder_does_not_wait_for_pytorch() -> None:
    code = "import sys, timerewarder.serve.decoding_process; print('torch' in sys.modules, 'fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "said",
    [
        "hello",
        '{"fps": 1, "height": 99999, "width": 99999, "total": null}',
        '{"fps": 1, "height": 9, "width": 9, "total": null}\n{"count": 99999999}',
        '{"fps": 1, "height": 9, "width": 9, "total": null}\n{"count": 2}\nshort',
        "x" * 100_000,
    ],
)
def test_a_decoder_that_speaks_nonsense_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """A file that takes the decoder over still has to get past the server."""
    start = subprocess.Popen
    taken_over = [sys.executable, "-S", "-c", f"print({said!r})"]
    monkeypatch.setattr("timerewarder.serve.decoding.subprocess.Popen", lambda _, **rest: start(taken_over, **rest))
    decoder = Decoder(tmp_path / "none", "a.mp4", Limits(), None, None)
    with pytest.raises(ApiError, match="made the decoder fail"):
        list(decoder.chunks())
    decoder.close()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1080, 1920), (480, 852)), ((100, 4000), (20, 854)), ((84, 84), (84, 84)), ((8000, 2), (480, 2))],
)
def test_previews_are_small(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert shrunk(np.zeros((*shape, 3), np.uint8)).shape[:2] == expected


def test_preview_rates_can_be_played() -> None:
    assert preview_fps(30000 / 1001) == 30000 / 1001
    assert preview_fps(25.0) == 25.0
    assert preview_fps(1e-9) == 0.1
    assert preview_fps(1e9) == 1000.0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
