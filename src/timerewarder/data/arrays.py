"""Frames of npy and npz files, read as a stream: one frame is in memory at a time, whatever the size of the array.

Every array of four axes in an npz file is a video; others (actions, states) are left alone. A number called `fps` in it
is the rate of its videos. Pickled objects are never loaded.
"""

from __future__ import annotations

import contextlib
import math
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from timerewarder.data.frames import complaint
from timerewarder.data.source import DEFAULT_FPS, MAX_PIXELS, BadVideo, Source, TimedFrame

SUFFIXES = (".npy", ".npz")

# What a damaged zip archive or array header raises.
DAMAGE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)

# NumPy parses a header with `ast`, which fails in CPython 3.11 when two threads do it at once.
ONE_AT_A_TIME = threading.Lock()


class Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype


def headers(path: Path) -> dict[str | None, Header]:
    """The arrays in a file, by their key in an npz; an npy has one, with key None. Reads no data."""
    with _damage_is_bad(path):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as stream:
                return {None: read_header(stream)}
        found: dict[str | None, Header] = {}
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as stream:
                        found[name.removesuffix(".npy")] = read_header(stream)
        return found


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of an npy file; the stream then stands at the data. ValueError if it is none."""
    read = np.lib.format.read_array_header_1_0
    if np.lib.format.read_magic(stream) != (1, 0):
        read = np.lib.format.read_array_header_2_0
    try:
        with ONE_AT_A_TIME:
            return Header(*read(stream))
    except (SyntaxError, TypeError, tokenize.TokenError) as error:
        raise ValueError("its header is damaged") from error


def rate(source: Source) -> float:
    """The number `fps` beside the array, if there is one. Also checks that the array holds frames."""
    found = headers(source.path)
    if source.member not in found:
        listing = ", ".join(f"{key} {h.dtype} {h.shape}" for key, h in found.items()) or "nothing"
        raise BadVideo(source.path, f"holds no array uint8 (T, H, W, 3) but {listing}")
    header = found[source.member]
    problem = complaint(header.dtype, header.shape)
    if problem:
        raise BadVideo(source.path, problem)
    if math.prod(header.shape[1:3]) > MAX_PIXELS:
        raise BadVideo(source.path, f"has frames of more than {MAX_PIXELS / 1e6:.0f} million pixels")
    if header.fortran_order:
        raise BadVideo(source.path, "is in Fortran order: save np.ascontiguousarray(frames)")
    return _number(source.path, "fps") if "fps" in found and found["fps"].shape == () else DEFAULT_FPS


def decode(source: Source) -> Iterator[TimedFrame]:
    """Every frame of the array."""
    fps = rate(source)
    with _damage_is_bad(source.path), _stream(source.path, source.member) as stream:
        length, *shape = read_header(stream).shape
        for number in range(length):
            data = stream.read(math.prod(shape))
            if len(data) < math.prod(shape):
                raise BadVideo(source.path, f"is cut off: it holds {number} of {length} frames")
            frame = np.frombuffer(data, np.uint8).reshape(shape)
            yield number / fps, partial(np.asarray, frame)


@contextlib.contextmanager
def _stream(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with path.open("rb") as stream:
            yield stream
    else:
        with zipfile.ZipFile(path) as archive, archive.open(f"{member}.npy") as stream:
            yield stream


def _number(path: Path, member: str) -> float:
    with _damage_is_bad(path), _stream(path, member) as stream:
        dtype = read_header(stream).dtype
        if dtype.kind not in "iuf":
            raise BadVideo(path, f"{member} must be a positive number, not {dtype}")
        value = float(np.frombuffer(stream.read(dtype.itemsize), dtype)[0])
    if not 0 < value < np.inf:
        raise BadVideo(path, f"{member} must be a positive number, not {value}")
    return value


@contextlib.contextmanager
def _damage_is_bad(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise BadVideo(path, f"cannot be read as a NumPy {path.suffix[1:]} file ({error})") from error
