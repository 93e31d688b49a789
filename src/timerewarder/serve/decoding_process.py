"""The decoder of untrusted files: reads one, writes its frames to stdout. It does not import PyTorch, to start quickly.

    python -m timerewarder.serve.decoding_process FILE --limits JSON [--fps 10] [--preview OUT.mp4]

It writes lines of JSON, some followed by raw pixels:
    {"fps": 10.0, "height": 84, "width": 84, "total": 50 or null}      first
    {"count": 12}, then 12 frames uint8 (height, width, 3)             again and again
    {"end": true}  or  {"status": 400, "code": ..., "message": ...}    last
The preview is a small copy of the video that every browser plays, one picture a frame.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, Literal

import av
import numpy as np
from PIL import Image

from timerewarder.data import arrays, containers
from timerewarder.data.source import BadVideo, Source
from timerewarder.data.videos import Video, write_video
from timerewarder.errors import UserError
from timerewarder.serve.limits import Limits

SUFFIXES = (*containers.SUFFIXES, *arrays.SUFFIXES)
KINDS = ", ".join(suffix[1:] for suffix in SUFFIXES)
CHUNK = 64  # frames
PREVIEW_HEIGHT, PREVIEW_WIDTH = 480, 854  # pixels, at most
SMALL = 240  # pixels: pictures so low lose too much colour at the quality of the web
SLOWEST, FASTEST = 0.1, 1000.0  # frames a second of a preview


class Refused(Exception):
    """Why a file is refused; the message continues its name."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="timerewarder.serve.decoding_process")
    parser.add_argument("file", type=Path)
    parser.add_argument("--limits", required=True)
    parser.add_argument("--fps", type=float)
    parser.add_argument("--preview", type=Path)
    given = parser.parse_args(arguments)
    limits = Limits(**json.loads(given.limits))
    _confine(limits)
    out = sys.stdout.buffer
    try:
        _decode(given.file, limits, given.fps, given.preview, out)
        last: dict[str, Any] = {"end": True}
    except Refused as error:
        last = {"status": error.status, "code": error.code, "message": error.message}
    except BadVideo as error:
        code = ("too_few_frames", 422) if "at least 2 are needed" in error.reason else ("not_a_video", 400)
        reason = error.reason.replace(str(given.file), "the file").replace(given.file.name, "the file")
        last = {"status": code[1], "code": code[0], "message": f"{reason}: send a whole video that plays ({KINDS})"}
    except UserError as error:
        last = {"status": 422, "code": "not_usable", "message": str(error).replace(str(given.file), "the file")}
    except MemoryError:
        message = f"needs more than {limits.decode_megabytes} MB of memory to decode: make its frames smaller"
        last = {"status": 413, "code": "too_large", "message": message}
    _say(out, last)


def _confine(limits: Limits) -> None:
    """Take from this process what a decoder does not need; systems without these limits have the clock alone."""
    try:
        import resource
    except ImportError:  # Windows
        return
    cores = os.cpu_count() or 1
    wanted = {
        resource.RLIMIT_AS: limits.decode_megabytes * 10**6,
        resource.RLIMIT_CPU: math.ceil(limits.decode_seconds * cores) + 10,  # should the server itself be gone
        resource.RLIMIT_FSIZE: 2 * 10**9,  # the preview
        resource.RLIMIT_CORE: 0,
    }
    for what, most in wanted.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


def _decode(file: Path, limits: Limits, fps: float | None, preview: Path | None, out: BinaryIO) -> None:
    source, total = _opened(file, limits)
    video = Video(source, fps)
    frames = _passed_on(video, limits, total if fps is None else None, out)
    if preview is None:
        for _ in frames:
            pass
    else:
        first = next(frames)
        quality: Literal["near-lossless", "web"] = "near-lossless" if len(first) <= SMALL else "web"
        write_video(preview, map(shrunk, itertools.chain([first], frames)), preview_fps(video.fps), quality)


def _opened(file: Path, limits: Limits) -> tuple[Source, int | None]:
    """What the file is by its first bytes, checked by its header alone; and how many frames it says it has."""
    with file.open("rb") as stream:
        start = stream.read(6)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _array_source(file, limits, ".npz")
    if start == b"\x93NUMPY":
        return _array_source(file, limits, ".npy")
    with (
        contextlib.suppress(av.FFmpegError, OSError),
        av.open(f"file:{file.absolute()}", options={"format_whitelist": containers.FORMATS}) as container,
    ):
        for pictures in container.streams.video[:1]:
            if pictures.codec_context is not None and pictures.width and pictures.height:
                _check_size(pictures.height, pictures.width, limits)
            total = pictures.frames or None
            if total is not None and total > 20 * limits.frames:  # resampling may still bring it down
                raise _too_many(limits)
            return Source("", file, "container"), total
    return Source("", file, "container"), None  # its reader says what is wrong


def _array_source(file: Path, limits: Limits, suffix: str) -> tuple[Source, int | None]:
    named = file.with_suffix(suffix)  # the reader goes by the name
    if named != file:
        os.replace(file, named)
    videos = {key: header for key, header in arrays.headers(named).items() if len(header.shape) == 4}
    if len(videos) > 1:
        listing = ", ".join(str(key) for key in list(videos)[:5])
        raise Refused(422, "several_videos", f"holds {len(videos)} videos ({listing}): send one at a time")
    for key, header in videos.items():
        _check_size(header.shape[1], header.shape[2], limits)
        if header.shape[0] > limits.frames:
            raise _too_many(limits)
        return Source("", named, "array", key), int(header.shape[0])
    return Source("", named, "array"), None  # its reader says what is wrong


def _passed_on(video: Video, limits: Limits, total: int | None, out: BinaryIO) -> Iterator[np.ndarray]:
    """Send every frame to the server, and yield it."""
    sent = 0
    for chunk in video.chunks(CHUNK):
        if sent == 0:
            height, width = chunk.shape[1:3]
            _check_size(height, width, limits)
            _say(out, {"fps": video.fps, "height": height, "width": width, "total": total})
        if sent + len(chunk) > limits.frames:
            raise _too_many(limits)
        sent += len(chunk)
        _say(out, {"count": len(chunk)})
        out.write(np.ascontiguousarray(chunk).data)
        out.flush()
        yield from chunk


def size_complaint(height: int, width: int, limits: Limits) -> str | None:
    """What is wrong with frames of this size, or None."""
    if max(height, width) > limits.side:
        return f"has frames of {width}x{height}: their sides may have {limits.side} pixels at most"
    if height * width > limits.pixels:
        return f"has frames of {width}x{height}: they may have {limits.pixels / 1e6:.1f} million pixels at most"
    return None


def _check_size(height: int, width: int, limits: Limits) -> None:
    if message := size_complaint(height, width, limits):
        raise Refused(413, "frame_too_large", message)


def _too_many(limits: Limits) -> Refused:
    return Refused(413, "too_many_frames", f"has more than {limits.frames} frames: cut it, or lower its rate with fps")


def shrunk(frame: np.ndarray) -> np.ndarray:
    """uint8 (H, W, 3) -> the same picture at a size for the page."""
    height, width = frame.shape[:2]
    scale = min(PREVIEW_HEIGHT / height, PREVIEW_WIDTH / width)
    if scale >= 1:
        return frame
    size = (max(2, int(width * scale / 2) * 2), max(2, int(height * scale / 2) * 2))
    return np.asarray(
        Image.fromarray(np.ascontiguousarray(frame)).resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    )


def preview_fps(fps: float) -> float:
    """The constant rate of a preview: as the file's writer will round it, and one that players can show."""
    return float(Fraction(min(max(fps, SLOWEST), FASTEST)).limit_denominator(1001))


def _say(out: BinaryIO, values: dict[str, Any]) -> None:
    out.write(json.dumps(values).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    main()
