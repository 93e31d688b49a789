"""Videos that the tests write with PyAV alone, so that the reader is not tested against our own writer."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

# suffix -> codec, pixel format, encoder options
CODECS: dict[str, tuple[str, str, dict[str, str]]] = {
    ".mp4": ("libx264", "yuv420p", {"crf": "4", "preset": "ultrafast"}),
    ".mov": ("libx264", "yuv420p", {"crf": "4", "bf": "2"}),
    ".m4v": ("libx264", "yuv420p", {"crf": "4", "bf": "2"}),
    ".mkv": ("libx265", "yuv420p", {"crf": "4", "preset": "ultrafast", "x265-params": "log-level=none"}),
    ".webm": ("libvpx-vp9", "yuv420p", {"crf": "4", "b": "0", "deadline": "realtime", "cpu-used": "8"}),
    ".avi": ("mpeg4", "yuv420p", {"b": "5000000", "bf": "2"}),
    ".gif": ("gif", "rgb8", {}),
}


def scene(length: int, height: int = 48, width: int = 64, seed: int = 0) -> np.ndarray:
    """A bright disc that crosses a soft background: uint8 (T, H, W, 3)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    colour = rng.uniform(40, 200, 3)
    background = colour * (0.5 + 0.5 * y[..., None]) + 30 * x[..., None]
    frames = np.empty((length, height, width, 3), np.uint8)
    for t in range(length):
        distance = np.hypot(x - (t + 1) / (length + 1), y - 0.3)[..., None]
        frames[t] = background + (255 - background) * np.clip(1.5 - 10 * distance, 0, 1)
    return frames


def numbered(length: int, height: int = 32, width: int = 32) -> np.ndarray:
    """Grey frames whose brightness tells their number, through any codec: up to 30 of them."""
    return np.repeat(8 * np.arange(length, dtype=np.uint8), height * width * 3).reshape(length, height, width, 3)


def numbers(frames: np.ndarray) -> list[int]:
    """Which frames of `numbered` these are."""
    return np.round(frames.mean(axis=(1, 2, 3)) / 8).astype(int).tolist()


def encode(
    path: Path,
    frames: np.ndarray,
    fps: float = 10,
    times: Sequence[float] | None = None,
    options: dict[str, str] | None = None,
    like: str | None = None,
    **container_options: str,
) -> Path:
    """Write frames with the codec that goes with the suffix (or with another, `like`); `times` are in seconds."""
    codec, pixels, defaults = CODECS[like or path.suffix.lower()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=container_options) as container:
        stream = container.add_stream(codec, rate=Fraction(fps), options={**defaults, **(options or {})})
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], pixels
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            if times is not None:
                picture.pts, picture.time_base = round(times[number] * 1000), Fraction(1, 1000)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def cut(path: Path, keep: float) -> Path:
    """Cut a file off: keep a part of its bytes, or drop -keep bytes from its end."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if keep > 0 else len(data) + int(keep)])
    return path
