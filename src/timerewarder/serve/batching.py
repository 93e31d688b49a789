"""One worker a model: frames that wait at the same time pass the encoder together.

Frames of streams go before frames of whole videos, because a robot waits for them. While there are some, a pass takes
a quarter of videos' frames at most, so that neither starves the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from timerewarder.data.resize import resize
from timerewarder.rewards.reward import FrameReward
from timerewarder.serve.episodes import Arrival, Arrivals, Episode
from timerewarder.serve.errors import ApiError, busy
from timerewarder.serve.limits import Limits
from timerewarder.serve.metrics import Metrics

log = logging.getLogger("timerewarder.serve")


class _Frame(NamedTuple):
    """A frame of a stream, uint8 (1, S, S, 3), the episode that arrives at it, and who waits for the reward."""

    frames: np.ndarray
    episode: Episode
    waits: asyncio.Future[Arrival]


class _Piece(NamedTuple):
    """Frames of a video, uint8 (n, S, S, 3), and who waits for their features (n, D)."""

    frames: np.ndarray
    waits: Future[Tensor]


class Batcher:
    """Encodes the frames of everybody who asks for one model."""

    def __init__(self, name: str, reward: FrameReward, limits: Limits, metrics: Metrics) -> None:
        self.name, self.reward, self.limits = name, reward.eval(), limits
        self.piece = max(1, limits.batch // 4)
        self._arrivals = Arrivals(self.reward)
        self._urgent: deque[_Frame] = deque()
        self._patient: deque[_Piece] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._frames, self._seconds = metrics.frames.labels(name), metrics.encoding.labels(name)
        self._batches = metrics.batches.labels(name)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"encoder {name}")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many frames wait."""
        return len(self._urgent) + sum(len(work.frames) for work in list(self._patient))

    def prepare(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (n, H, W, 3) -> (n, S, S, 3), as the encoder sees them."""
        pre = self.reward.preprocessing
        return resize(frames, pre.size, pre.how)

    def is_prepared(self, frame: np.ndarray) -> bool:
        size = self.reward.preprocessing.size
        return frame.shape[:2] == (size, size)

    def stream(self, frame: np.ndarray, episode: Episode) -> asyncio.Future[Arrival]:
        """The reward for arriving at a prepared frame (S, S, 3). An episode has one frame here at a time."""
        if len(self._urgent) >= self.limits.queue:
            raise busy("too many frames are waiting")
        future: asyncio.Future[Arrival] = asyncio.get_running_loop().create_future()
        with self._adding():
            self._urgent.append(_Frame(frame[None], episode, future))
        return future

    def video(self, frames: np.ndarray) -> list[Future[Tensor]]:
        """Encode prepared frames (n, S, S, 3) when there is room; the features come in pieces."""
        pieces = [frames[start : start + self.piece] for start in range(0, len(frames), self.piece)]
        futures: list[Future[Tensor]] = [Future() for _ in pieces]
        with self._adding():
            self._patient.extend(map(_Piece, pieces, futures))
        return futures

    def close(self) -> None:
        """Finish the pass that runs; whatever waits is refused."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    @contextlib.contextmanager
    def _adding(self) -> Iterator[None]:
        with self._wake:
            if self._closed:
                raise _stopping()
            yield
            self._wake.notify()

    @torch.inference_mode()
    def _run(self) -> None:
        while not self._closed:
            frames, pieces = self._take()
            try:
                self._serve(frames, pieces)
            except Exception as error:  # whatever it is, nobody may wait for ever
                log.exception("a forward pass of %s failed", self.name)
                _refuse(frames, pieces, error)
        _refuse(list(self._urgent), list(self._patient), _stopping())

    def _take(self) -> tuple[list[_Frame], list[_Piece]]:
        """What goes into the next pass."""
        with self._wake:
            while not (self._urgent or self._patient or self._closed):
                self._wake.wait()
            pieces: list[_Piece] = []
            room = self.limits.batch // 4 if self._urgent else self.limits.batch
            while self._patient and len(self._patient[0].frames) <= room:
                pieces.append(self._patient.popleft())
                room -= len(pieces[-1].frames)
            room = self.limits.batch - sum(len(piece.frames) for piece in pieces)
            return [self._urgent.popleft() for _ in range(min(room, len(self._urgent)))], pieces

    def _serve(self, frames: list[_Frame], pieces: list[_Piece]) -> None:
        parts = [frame.frames for frame in frames] + [piece.frames for piece in pieces]
        if not parts:  # woken up to end
            return
        features = self._encode(parts)
        if frames:
            arrivals = self._arrivals([frame.episode for frame in frames], features[: len(frames)])
            _tell(frames, arrivals)
        of_pieces = features[len(frames) :].split([len(piece.frames) for piece in pieces])
        for piece, its in zip(pieces, of_pieces, strict=True):
            piece.waits.set_result(its)

    def _encode(self, parts: list[np.ndarray]) -> Tensor:
        """Frames, uint8 (n, S, S, 3) each -> features of all of them (N, D)."""
        start = time.perf_counter()
        frames = np.concatenate(parts)
        features = self.reward.encoder(torch.from_numpy(frames).to(self.reward.device))
        self._seconds.inc(time.perf_counter() - start)
        self._frames.inc(len(frames))
        self._batches.observe(len(frames))
        return features


def _stopping() -> ApiError:
    return ApiError(503, "stopping", "the server is stopping: connect again later")


def _tell(frames: Sequence[_Frame], results: Sequence[Arrival | Exception]) -> None:
    """Answer streams. Those of one event loop are told with one call, because waking it up is what costs."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Arrival], Arrival | Exception]]] = {}
    for frame, result in zip(frames, results, strict=True):
        loops.setdefault(frame.waits.get_loop(), []).append((frame.waits, result))
    for loop, answers in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: list[tuple[asyncio.Future[Arrival], Arrival | Exception]]) -> None:
    for future, result in answers:
        if future.done():  # its client is gone
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _refuse(frames: Sequence[_Frame], pieces: Sequence[_Piece], error: Exception) -> None:
    _tell(frames, [error] * len(frames))
    for piece in pieces:
        if not piece.waits.done():
            piece.waits.set_exception(error)
