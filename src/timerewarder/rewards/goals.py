"""Goal pictures, for rewards that measure how far a frame is from where the task ends.

By default they are the last frames of some training videos; `--goal PATH` names others. Every video or picture under
the path gives one goal, its last frame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from timerewarder.data.images import SUFFIXES, image_files, picture
from timerewarder.data.search import find_sources
from timerewarder.data.source import BadVideo, Source
from timerewarder.data.store import FrameStore
from timerewarder.data.videos import Video
from timerewarder.errors import UserError
from timerewarder.rewards.reward import FrameConfig, FrameReward

Goals = dict[str, np.ndarray]  # name -> the goal with its past, uint8 (1 to history+1, H, W, 3); the last frame counts


@dataclass(frozen=True, kw_only=True)
class GoalConfig(FrameConfig):
    """Options of every method that looks at a goal."""

    goals: int = 1
    """How many training videos, drawn at random, give their last frame as a goal; all if there are fewer."""
    goal: str | None = None
    """Picture, video, or folder of them, whose last frame is the goal instead; several give a goal each."""

    def __post_init__(self) -> None:
        if self.goals < 1:
            raise UserError(f"--goals {self.goals} is too small: give at least 1, or a picture with --goal")


def read_goals(path: str | None, history: int) -> Goals:
    """The goals under a path that a user gave; none without a path."""
    if path is None:
        return {}
    place = Path(path).expanduser()
    try:
        if place.is_file() and place.suffix.lower() in SUFFIXES:
            return {place.name: np.stack([picture(place)])}
        return {source.name: _last_frames(source, history + 1) for source in find_sources(place)}
    except BadVideo as error:
        raise UserError(f"--goal {path}: {error.reason}: give a picture or a video that can be read") from error
    except UserError as error:
        raise UserError(f"--goal: {error}") from error


def _last_frames(source: Source, count: int) -> np.ndarray:
    if source.kind == "images":  # not as a video, which needs two of them
        return np.stack([picture(file) for file in image_files(source.path)[-count:]])
    last: deque[np.ndarray] = deque(maxlen=count)
    for chunk in Video(source).chunks():
        last.extend(chunk[-count:].copy())  # the chunk's memory is used again
    return np.stack(last)


def draw_goals(store: FrameStore, config: GoalConfig, history: int) -> Goals:
    """The last frames of `config.goals` videos, which the seed draws."""
    rng = np.random.default_rng([config.training.seed, 0x60A1])
    drawn = rng.choice(len(store), size=min(config.goals, len(store)), replace=False)
    return {store.names[v]: store.frames(v, np.arange(store.lengths[v])[-(history + 1) :]) for v in map(int, drawn)}


def goal_windows(reward: FrameReward, goals: Goals) -> Tensor:
    """Features of the goals with their past, (G, (history+1) D)."""
    return torch.cat([reward.windows(reward.encode(frames))[-1:] for frames in goals.values()])
