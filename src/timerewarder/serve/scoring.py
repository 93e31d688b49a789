"""Whole videos: frames in chunks -> features, once for every model -> rewards, progress and distances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from timerewarder.rewards.reward import FrameReward
from timerewarder.serve.batching import Batcher

MATRIX_SIDE = 200  # frames of a distance matrix that is sent, at most


@dataclass(frozen=True)
class Scores:
    """What one model says of a video of T frames: float32 (T,) each, as in report/run.make_clip."""

    rewards: np.ndarray
    progress: np.ndarray

    @property
    def content(self) -> dict[str, Any]:
        progress = self.progress.tolist()
        return {"rewards": self.rewards.tolist(), "progress": progress, "final_progress": progress[-1]}


def encode(
    chunks: Iterable[np.ndarray], batchers: Mapping[str, Batcher], done: Callable[[int], None] = lambda count: None
) -> dict[str, Tensor]:
    """Chunks uint8 (t, H, W, 3) -> for every model the features (T, D).

    A chunk is encoded while the next one is decoded; `done` is told how many frames have been encoded by all models.
    """
    features: dict[str, list[Tensor]] = {name: [] for name in batchers}
    running: dict[str, list[Future[Tensor]]] = {}
    count = 0
    for chunk in chunks:
        prepared = _prepared(chunk, batchers)
        _collect(running, features)
        done(count)
        running = {name: batcher.video(prepared[_sight(batcher)]) for name, batcher in batchers.items()}
        count += len(chunk)
    _collect(running, features)
    done(count)
    return {name: torch.cat(parts) for name, parts in features.items()}


@torch.no_grad()
def compare(reward: FrameReward, features: Tensor) -> Scores:
    """Features (T, D) -> what the model says of the video."""
    rewards = reward.compare(features.to(reward.device)).cpu().numpy()
    return Scores(rewards, reward.progress(rewards))


@torch.no_grad()
def matrix(reward: FrameReward, features: Tensor) -> dict[str, Any]:
    """Features (T, D) -> the distances between at most MATRIX_SIDE frames, evenly over the video."""
    distances = reward.distances(features.to(reward.device))
    assert distances is not None
    indices = np.linspace(0, len(features) - 1, min(MATRIX_SIDE, len(features))).round().astype(np.int64)
    values = distances.cpu().numpy()[np.ix_(indices, indices)].astype(np.float64).round(4)
    return {"indices": indices.tolist(), "values": values.tolist()}


def has_distances(reward: FrameReward) -> bool:
    return type(reward).distances is not FrameReward.distances


def _sight(batcher: Batcher) -> tuple[int, str]:
    """How a model sees frames; models that see them alike share the work of resizing."""
    return batcher.reward.preprocessing.size, batcher.reward.preprocessing.how


def _prepared(chunk: np.ndarray, batchers: Mapping[str, Batcher]) -> dict[tuple[int, str], np.ndarray]:
    prepared: dict[tuple[int, str], np.ndarray] = {}
    for batcher in batchers.values():
        if _sight(batcher) not in prepared:
            prepared[_sight(batcher)] = batcher.prepare(chunk)
    return prepared


def _collect(running: Mapping[str, list[Future[Tensor]]], features: dict[str, list[Tensor]]) -> None:
    for name, futures in running.items():
        features[name].extend(future.result() for future in futures)
