"""Frames as bodies: one frame as npy, PNG or JPEG; many as one npy file. Nothing is ever unpickled."""

from __future__ import annotations

import functools
import io
import math
from pathlib import Path

import numpy as np
from PIL import Image

from timerewarder.data.arrays import Header, read_header
from timerewarder.data.frames import complaint
from timerewarder.serve.decoding_process import size_complaint
from timerewarder.serve.errors import ApiError
from timerewarder.serve.limits import FRAME_OVERHEAD, Limits

NPY, PNG, JPEG = b"\x93NUMPY", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


def read_frame(body: bytes, limits: Limits) -> np.ndarray:
    """The frame that a body holds, uint8 (H, W, 3): npy, PNG or JPEG, told apart by the first bytes."""
    if body.startswith(NPY):
        return _npy_frame(body, limits)
    if body.startswith((PNG, JPEG)):
        return _picture(body, limits)
    found = "is empty" if not body else "is none of them"
    raise ApiError(400, "not_a_frame", f"a frame is an npy file uint8 (H, W, 3), a PNG or a JPEG, and the body {found}")


def is_picture(body: bytes) -> bool:
    """Whether a frame takes long to read: compressed pictures do."""
    return not body.startswith(NPY)


def open_frames(file: Path, limits: Limits) -> np.ndarray:
    """The frames in an npy file, uint8 (T, H, W, 3), mapped rather than read."""
    with file.open("rb") as stream:
        start = stream.read(FRAME_OVERHEAD)
    if not start.startswith(NPY):
        found = "is empty" if not start else "is none"
        raise ApiError(
            400, "not_frames", f"the body must be an npy file uint8 (T, H, W, 3) as np.save writes it, and {found}"
        )
    header, offset = _header(start)
    _check(header, header.shape, limits)
    length = header.shape[0]
    if length > limits.frames:
        message = f"{length} frames are more than the {limits.frames} that are allowed: send fewer at a time"
        raise ApiError(413, "too_many_frames", message)
    if file.stat().st_size != offset + math.prod(header.shape):
        raise ApiError(400, "not_frames", f"the body is cut off: its header promises {length} frames")
    return np.memmap(file, np.uint8, "r", offset, header.shape)


def _npy_frame(body: bytes, limits: Limits) -> np.ndarray:
    # A stream's frames all have the same header, and parsing it costs more than the rest.
    shape, offset = _frame_header(_header_bytes(body), limits)
    if len(body) != offset + math.prod(shape):
        raise ApiError(400, "not_a_frame", f"the npy file is cut off: its header promises {shape}")
    return np.frombuffer(body, np.uint8, offset=offset).reshape(shape)


def _header_bytes(body: bytes) -> bytes:
    """The beginning of an npy file up to its data."""
    width = 2 if body[6:7] == b"\x01" else 4
    length = int.from_bytes(body[8 : 8 + width], "little")
    return body[: 8 + width + min(length, FRAME_OVERHEAD)]


@functools.lru_cache(maxsize=256)
def _frame_header(start: bytes, limits: Limits) -> tuple[tuple[int, ...], int]:
    header, offset = _header(start)
    if len(header.shape) != 3:
        raise ApiError(422, "not_a_frame", f"a frame is uint8 (H, W, 3), not {header.dtype} {header.shape}")
    _check(header, (1, *header.shape), limits)
    return header.shape, offset


def _header(start: bytes) -> tuple[Header, int]:
    stream = io.BytesIO(start)
    try:
        return read_header(stream), stream.tell()
    except (ValueError, RecursionError, MemoryError, UnicodeDecodeError):
        raise ApiError(400, "not_frames", "the npy file's header is damaged: write it with np.save") from None


def _check(header: Header, shape: tuple[int, ...], limits: Limits) -> None:
    problem = complaint(header.dtype, shape)
    if problem is None and header.fortran_order:
        problem = "the array is in Fortran order: send np.ascontiguousarray(frames)"
    if problem:
        raise ApiError(422, "not_frames", problem)
    if problem := size_complaint(shape[1], shape[2], limits):
        raise ApiError(413, "frame_too_large", f"the body {problem}")


def _picture(body: bytes, limits: Limits) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG")) as image:
            width, height = image.size
            if problem := size_complaint(height, width, limits):
                raise ApiError(413, "frame_too_large", f"the picture {problem}")
            if image.mode.startswith(("I", "F")):
                raise ApiError(422, "not_a_frame", f"the picture has {image.mode} pixels: send 8 bits a channel")
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow's decoders raise
        raise ApiError(400, "not_a_frame", f"the picture cannot be read ({error}): send a whole PNG or JPEG") from None
