"""Frames of a folder of pictures: frame2.png comes before frame10.png, grey and transparent pictures become RGB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from timerewarder.data.source import DEFAULT_FPS, MAX_PIXELS, BadVideo, Source, TimedFrame

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


def natural_order(path: Path) -> tuple[list[str | int], str]:
    """A sort key that reads digits as numbers and ignores case."""
    words = re.split(r"([0-9]+)", path.name.lower())  # texts at even places, digits at odd ones: always comparable
    return [int(word) if place % 2 else word for place, word in enumerate(words)], path.name


def image_files(folder: Path) -> list[Path]:
    """The pictures directly in a folder, hidden ones aside, in natural order."""
    pictures = (
        f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith(".") and f.is_file()
    )
    return sorted(pictures, key=natural_order)


def rate(source: Source) -> float:
    """Pictures carry no rate."""
    return DEFAULT_FPS


def decode(source: Source) -> Iterator[TimedFrame]:
    """Every picture; all must have one size."""
    files = image_files(source.path)
    first = _size(files[0]) if files else None
    for number, file in enumerate(files):
        if _size(file) != first:
            raise BadVideo(
                source.path,
                f"{files[0].name} is {_by(first)} but {file.name} is {_by(_size(file))}: make them one size",
            )
        yield number / DEFAULT_FPS, partial(picture, file)


def _by(size: tuple[int, int] | None) -> str:
    return "x".join(map(str, size or ()))


def _size(file: Path) -> tuple[int, int]:
    """(width, height) from the header."""
    try:
        with Image.open(file) as image:
            size = image.size
    except (OSError, Image.DecompressionBombError) as error:
        raise BadVideo(file.parent, f"{file.name} cannot be read as an image ({error})") from error
    _check_size(file.parent, file.name, size)
    return size


def _check_size(path: Path, name: str, size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise BadVideo(path, f"{name} is {_by(size)}, more than {MAX_PIXELS / 1e6:.0f} million pixels")


def picture(file: Path) -> np.ndarray:
    """uint8 (H, W, 3), upright as its EXIF data say."""
    return decoded(file, file.parent, file.name)


def decoded(data: Path | IO[bytes], path: Path, name: str, formats: tuple[str, ...] | None = None) -> np.ndarray:
    """A picture called `name` in the video at `path`: uint8 (H, W, 3); `formats` are those that Pillow may try."""
    try:
        with Image.open(data, formats=formats) as image:
            _check_size(path, name, image.size)
            if image.mode.startswith(("I", "F")):
                raise BadVideo(path, f"{name} has {image.mode} pixels: convert it to 8 bits a channel")
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow's decoders raise
        raise BadVideo(path, f"{name} cannot be read as an image ({error})") from error
