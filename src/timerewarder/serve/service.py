"""What the application holds while it runs: the models with their workers, the streams, the videos, one folder."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from timerewarder.errors import UserError
from timerewarder.rewards.reward import ENCODE_BATCH, FrameReward
from timerewarder.serve.batching import Batcher
from timerewarder.serve.decoding import Decoders
from timerewarder.serve.errors import ApiError, busy
from timerewarder.serve.limits import Limits
from timerewarder.serve.metrics import Metrics
from timerewarder.serve.scoring import compare, encode, has_distances
from timerewarder.serve.sessions import Sessions
from timerewarder.serve.videos import Videos

T = TypeVar("T")
CHUNK_BYTES = 32 * 2**20  # of raw frames that are resized at once


class Service:
    """The application without its addresses."""

    def __init__(self, rewards: Mapping[str, FrameReward], limits: Limits) -> None:
        if not rewards:
            raise UserError("there is no model to serve: name at least one")
        self.limits, self.metrics = limits, Metrics()
        self._temporary = tempfile.TemporaryDirectory(prefix="timerewarder-serve-")
        self.folder = Path(self._temporary.name)
        self.batchers = {name: Batcher(name, reward, limits, self.metrics) for name, reward in rewards.items()}
        self.decoders = Decoders(limits)
        self.sessions = Sessions(limits, self.metrics)
        self._pool = ThreadPoolExecutor(limits.scores, "score")
        self._drawing = ThreadPoolExecutor(1, "export")
        self._asked = 0  # requests that upload, wait for a thread or have one
        self.videos = Videos(self.folder, self.batchers, limits, self.decoders, self._pool)
        gauge = self.metrics.gauge
        gauge("sessions", "Streams that are open.", lambda: len(self.sessions))
        gauge("videos", "Videos that the page keeps.", lambda: len(self.videos))
        gauge("queue_frames", "Frames that wait for a forward pass.", self._waiting)

    def _waiting(self) -> float:
        return sum(batcher.waiting for batcher in self.batchers.values())

    def batcher(self, model: str | None) -> Batcher:
        """The model that a client names; it need not name the only one."""
        names = ", ".join(self.batchers)
        if model is None:
            if len(self.batchers) > 1:
                raise ApiError(422, "which_model", f"several models are served: name one of {names} with ?model=NAME")
            return next(iter(self.batchers.values()))
        if model not in self.batchers:
            raise ApiError(404, "no_model", f"there is no such model: name one of {names} with ?model=NAME")
        return self.batchers[model]

    def describe_models(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "method": batcher.reward.method,
                "encoder": batcher.reward.looks_through.removeprefix("encoder "),
                "image_size": batcher.reward.preprocessing.size,
                "resize": batcher.reward.preprocessing.how,
                "streams": batcher.reward.streams,
                "is_value": batcher.reward.is_value,
                "has_distances": has_distances(batcher.reward),
            }
            for name, batcher in self.batchers.items()
        ]

    @contextlib.contextmanager
    def upload_folder(self) -> Iterator[Path]:
        """A folder for one request, inside the server's own."""
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    @contextlib.contextmanager
    def admission(self) -> Iterator[None]:
        """For a request that uploads or computes for long: refused if too many are there already."""
        if self._asked >= self.limits.queue + self.limits.scores:
            raise busy("too many requests are waiting")
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1

    async def scoring(self, work: Callable[[], T]) -> T:
        """Run work on whole videos in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def drawing(self, work: Callable[[], T]) -> T:
        """The same for exports, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._drawing, work)

    def score_file(self, batcher: Batcher, file: Path, label: str, fps: float | None) -> dict[str, Any]:
        """The answer for an uploaded video."""
        with self.decoders.open(file, label, fps) as decoder:
            features = encode(decoder.chunks(), {batcher.name: batcher})[batcher.name]
            return self._answer(batcher, features, decoder.shape.fps)

    def score_frames(self, batcher: Batcher, frames: np.ndarray) -> dict[str, Any]:
        """The answer for frames uint8 (T, H, W, 3)."""
        length = max(1, min(ENCODE_BATCH, CHUNK_BYTES // frames[0].nbytes))
        chunks = (np.asarray(frames[start : start + length]) for start in range(0, len(frames), length))
        return self._answer(batcher, encode(chunks, {batcher.name: batcher})[batcher.name], None)

    def _answer(self, batcher: Batcher, features: Any, fps: float | None) -> dict[str, Any]:
        scores = compare(batcher.reward, features)
        return {"model": batcher.name, "frames": len(features), "fps": fps, **scores.content}

    async def watch(self) -> None:
        """Free idle streams while the server runs."""
        while True:
            await asyncio.sleep(min(5.0, self.limits.session_seconds / 4))
            self.sessions.expire()

    def close(self) -> None:
        """End all work and remove the folder."""
        for video in self.videos.all():
            video.deleted = True
        self.decoders.close()
        for batcher in self.batchers.values():
            batcher.close()
        for pool in (self._pool, self._drawing):
            pool.shutdown(cancel_futures=True)
        self._temporary.cleanup()
