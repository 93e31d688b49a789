"""Streams of robots: one session is one robot; it expires when it is idle and is freed when its socket closes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator

import numpy as np

from timerewarder.serve.batching import Batcher
from timerewarder.serve.episodes import Arrival, Episode
from timerewarder.serve.errors import ApiError, busy
from timerewarder.serve.frames import is_picture, read_frame
from timerewarder.serve.limits import Limits
from timerewarder.serve.metrics import Metrics

QUICK_PIXELS = 128 * 128  # a frame so small is resized at once; larger ones go to a thread


class Session:
    """The state of one robot's episode."""

    def __init__(self, batcher: Batcher, limits: Limits, metrics: Metrics) -> None:
        self.id = secrets.token_urlsafe(16)
        self.model = batcher.name
        self.used = time.monotonic()
        self._batcher, self._limits, self._metrics = batcher, limits, metrics
        self._episode = Episode(batcher.reward)
        self._busy = False
        self.on_expiry: Callable[[], object] = lambda: None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """From before a frame is received until it is rewarded: one at a time."""
        if self._busy:
            raise ApiError(409, "busy_session", "a frame of this stream is still being rewarded: send one at a time")
        self._busy = True
        try:
            yield
        finally:
            self._busy, self.used = False, time.monotonic()

    async def arrive(self, body: bytes, first: bool = False) -> Arrival:
        """The next frame of the episode, or with `first` the first one of a new episode. Inside a `turn`."""
        start = time.perf_counter()
        frame = await self._frame(body)
        if first:
            self._episode.end()
        arrival = await self._batcher.stream(frame, self._episode)
        self._metrics.steps.observe(time.perf_counter() - start)
        return arrival

    def end_episode(self) -> None:
        """Make the next frame a first one."""
        self._episode.end()
        self.used = time.monotonic()

    async def _frame(self, body: bytes) -> np.ndarray:
        """The body as the encoder's input (S, S, 3); what takes long happens in a thread."""
        if is_picture(body):
            return await asyncio.to_thread(lambda: self._prepared(read_frame(body, self._limits)))
        frame = read_frame(body, self._limits)
        if self._batcher.is_prepared(frame):
            return frame
        if frame.shape[0] * frame.shape[1] <= QUICK_PIXELS:
            return self._prepared(frame)
        return await asyncio.to_thread(self._prepared, frame)

    def _prepared(self, frame: np.ndarray) -> np.ndarray:
        return self._batcher.prepare(frame[None])[0]

    def has_expired(self) -> bool:
        return not self._busy and time.monotonic() - self.used > self._limits.session_seconds


class Sessions:
    """All sessions that are open."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self._open: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, batcher: Batcher) -> Session:
        self.expire()
        if not batcher.reward.streams:
            message = (
                f"{batcher.name} ({batcher.reward.method}) rewards whole episodes: send the episode to /v1/score/frames"
            )
            raise ApiError(422, "no_streams", message)
        if len(self._open) >= self.limits.sessions:
            raise busy(f"all {self.limits.sessions} streams are in use")
        session = Session(batcher, self.limits, self.metrics)
        self._open[session.id] = session
        return session

    def get(self, id: str) -> Session:
        self.expire()
        if id not in self._open:
            seconds = f"{self.limits.session_seconds:g} seconds"
            raise ApiError(404, "no_stream", f"there is no such stream, or it was idle for {seconds}: begin a new one")
        return self._open[id]

    def close(self, id: str) -> None:
        """Free a session; it may be gone already."""
        self._open.pop(id, None)

    def expire(self) -> None:
        """Free the sessions that are idle."""
        for session in [session for session in self._open.values() if session.has_expired()]:
            self.close(session.id)
            session.on_expiry()
