"""The cache of decoded videos: one uncompressed npy file each, uint8 (T, size, size, 3).

The file's name is the hash of the video's content and of all settings, so that it is found again when the video moves
and is never mistaken for another. Beside it lies a small json with the frame rate, written last: it says that the npy
file is complete. Two processes may build the same file at once; each writes its own, and the last to finish stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from timerewarder.data.arrays import read_header
from timerewarder.data.resize import How, resize
from timerewarder.data.source import BadVideo, Source
from timerewarder.data.videos import Video
from timerewarder.errors import UserError
from timerewarder.files import atomic, write_json

FORMAT = 1  # raise it when the same video and settings give other frames
HEADER_BYTES = 128  # of an npy file of four axes; NumPy leaves room in it for any length


class Settings(NamedTuple):
    """What the frames in the cache depend on, beside the video."""

    size: int
    how: How
    fps: float | None


class Entry(NamedTuple):
    """One video in the cache."""

    file: Path
    length: int
    fps: float


def cache_folder() -> Path:
    """$TIMEREWARDER_CACHE, or `timerewarder` in the user's cache folder."""
    if os.environ.get("TIMEREWARDER_CACHE"):
        return Path(os.environ["TIMEREWARDER_CACHE"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "timerewarder"


def cache_file(folder: Path, source: Source, digests: list[str], settings: Settings) -> Path:
    """Where a video whose files have these digests lies in the cache, or will."""
    cut = [] if source.cut is None else [source.cut.camera, source.cut.episode.length, source.cut.fps, source.cut.start]
    key = json.dumps([FORMAT, source.kind, source.member, *cut, *settings, *digests])
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"


def digest(file: Path) -> str:
    """The hash of a file's content."""
    content = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                content.update(block)
    except OSError as error:
        raise BadVideo(file, f"cannot be read ({error.filename}: {error.strerror})") from error
    return content.hexdigest()


def lookup(file: Path, size: int) -> Entry | None:
    """A video in the cache, if its file is whole."""
    try:
        fps = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))["fps"]
        with file.open("rb") as stream:
            length, *shape = read_header(stream).shape
            whole = shape == [size, size, 3] and stream.tell() == HEADER_BYTES
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = whole and file.stat().st_size == HEADER_BYTES + length * size * size * 3
    return Entry(file, length, float(fps)) if whole else None


def build(source: Source, file: Path, settings: Settings) -> Entry:
    """Decode a video into the cache, a chunk at a time."""
    size, how, fps = settings
    video = Video(source, fps)
    with _explained(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    with atomic(file) as temporary, _explained(file.parent), temporary.open("wb") as stream:
        stream.write(bytes(HEADER_BYTES))
        length = 0
        for chunk in video.chunks():
            stream.write(resize(chunk, size, how).data)
            length += len(chunk)
        stream.seek(0)
        header = {"descr": "|u1", "fortran_order": False, "shape": (length, size, size, 3)}
        np.lib.format.write_array_header_1_0(stream, header)
    write_json(file.with_suffix(".json"), {"fps": video.fps, "from": str(source.path)})
    return Entry(file, length, video.fps)


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to the frame cache {folder} ({error.strerror}): free some space there, "
            "or set TIMEREWARDER_CACHE to another folder"
        ) from error
