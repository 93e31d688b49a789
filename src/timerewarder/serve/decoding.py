"""Untrusted video files: decoded by a process of their own that has little memory, little time and one way out, a pipe.

Frames are passed on as they come, so that a video of any length is never in memory or on disk as a whole. The clock of
`decode_seconds` runs only while the server waits for the decoder (decoding_process.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from timerewarder.serve.decoding_process import CHUNK, size_complaint
from timerewarder.serve.errors import ApiError
from timerewarder.serve.limits import Limits

LONGEST_LINE = 10_000  # bytes


@dataclass(frozen=True)
class Shape:
    """What the decoder says before the first frame. `total` is how many frames the file says it has, if it does."""

    fps: float
    height: int
    width: int
    total: int | None


class Decoders:
    """The decoders that run, so that all of them can be ended."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._running: set[Decoder] = set()

    @contextlib.contextmanager
    def open(self, file: Path, label: str, fps: float | None = None, preview: Path | None = None) -> Iterator[Decoder]:
        """Decode a file, which is removed; `label` is its name in messages. Leaving the block ends the process."""
        decoder = Decoder(file, label, self.limits, fps, preview)
        self._running.add(decoder)
        try:
            yield decoder
        finally:
            self._running.discard(decoder)
            decoder.close()

    def close(self) -> None:
        for decoder in list(self._running):
            decoder.kill()


class Decoder:
    """One running decoder: `shape`, then `chunks()`."""

    def __init__(self, file: Path, label: str, limits: Limits, fps: float | None, preview: Path | None) -> None:
        self.limits, self.label = limits, label
        command = [sys.executable, "-m", "timerewarder.serve.decoding_process", str(file)]
        command += ["--limits", json.dumps(dataclasses.asdict(limits))]
        command += [] if fps is None else ["--fps", repr(fps)]
        command += [] if preview is None else ["--preview", str(preview)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # they cost address space
        environment.pop("TIMEREWARDER_TOKEN", None)  # the decoder has no use for it
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._left = limits.decode_seconds
        # A thread reads, so that waiting can end in time on every system. It holds one chunk, and one waits here.
        self._messages: queue.Queue[Shape | np.ndarray | ApiError | None] = queue.Queue(maxsize=1)
        self._reader = threading.Thread(target=self._read, daemon=True, name="decoder")
        self._reader.start()

    @functools.cached_property
    def shape(self) -> Shape:
        """What the video is; waits for the decoder."""
        first = self._next()
        if not isinstance(first, Shape):
            raise self._died()
        return first

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self.kill()
        while self._reader.is_alive():  # it may wait for room in the queue
            with contextlib.suppress(queue.Empty):
                self._messages.get(timeout=0.05)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def chunks(self) -> Iterator[np.ndarray]:
        """The frames, uint8 (t, H, W, 3) at a time."""
        assert self.shape  # comes first
        while isinstance(chunk := self._next(), np.ndarray):
            yield chunk

    def _next(self) -> Shape | np.ndarray | None:
        start = time.monotonic()
        try:
            message = self._messages.get(timeout=max(0.0, self._left))
        except queue.Empty:
            seconds = f"{self.limits.decode_seconds:g} seconds"
            raise ApiError(
                422, "too_slow", f"{self.label} was not decoded in {seconds}: send a shorter or smaller video"
            ) from None
        self._left -= time.monotonic() - start
        if isinstance(message, ApiError):
            raise message
        return message

    def _read(self) -> None:
        """Pass on what the decoder says; whatever else it does means that it broke."""
        try:
            assert self._process.stdout is not None
            for message in _messages(self._process.stdout, self.limits, self.label):
                self._messages.put(message)
        except (OSError, ValueError, KeyError, TypeError):
            self._messages.put(self._died())

    def _died(self) -> ApiError:
        return ApiError(
            400,
            "not_a_video",
            f"{self.label} made the decoder fail: send a video that plays elsewhere, or convert it to H.264 mp4",
        )


def _messages(stream: IO[bytes], limits: Limits, label: str) -> Iterator[Shape | np.ndarray | ApiError | None]:
    """Read the decoder's pipe to its end; ValueError and the like if it does not speak as it should."""
    shape: Shape | None = None
    while True:
        values = json.loads(stream.readline(LONGEST_LINE))
        if "end" in values:
            yield None
            return
        if "code" in values:
            yield ApiError(int(values["status"]), str(values["code"]), f"{label} {values['message']}")
            return
        if shape is None:
            shape = Shape(**values)
            if size_complaint(shape.height, shape.width, limits):
                raise ValueError("the decoder sends frames that it had to refuse")
            yield shape
            continue
        size = shape.height * shape.width * 3
        count = int(values["count"])
        if not 0 < count <= CHUNK:
            raise ValueError("the decoder sends too much")
        data = bytearray(count * size)
        if _read_into(stream, memoryview(data)) < len(data):
            raise ValueError("the decoder stopped")
        yield np.frombuffer(data, np.uint8).reshape(count, shape.height, shape.width, 3)


def _read_into(stream: IO[bytes], view: memoryview) -> int:
    filled = 0
    while filled < len(view):
        read = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not read:
            break
        filled += read
    return filled
