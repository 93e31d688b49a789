"""Principal components of per-frame features along videos: does a representation move with the task's progress?

    X      features of all frames of the first kind of videos given, (N, D), minus their mean m
    V      the two right singular vectors of X with the largest singular values: X = U S V'
    point  (f - m) V of a frame with features f, of any video

The directions come from one kind of videos (the training videos, if they are given), so that the others are seen in a
space that they had no part in. Signs are arbitrary in PCA; here videos end on the positive side of where they begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from timerewarder.data.search import Sources
from timerewarder.data.source import AS_THEY_ARE, Opening
from timerewarder.data.videos import read_videos
from timerewarder.errors import UserError
from timerewarder.rewards.reward import FrameReward

DIRECTIONS = 2


@dataclass(frozen=True)
class Components:
    """The main directions of some features; `explained` is their share of the variance."""

    mean: Tensor  # (D,)
    directions: Tensor  # (DIRECTIONS, D)
    explained: tuple[float, ...]

    def project(self, features: Tensor) -> np.ndarray:
        """(T, D) -> float64 (T, DIRECTIONS)."""
        return ((features.double() - self.mean) @ self.directions.T).numpy()


@dataclass(frozen=True)
class Trajectory:
    """A video's way through the features; points (T, DIRECTIONS)."""

    kind: str
    name: str
    points: np.ndarray


@dataclass(frozen=True)
class Projection:
    """What a model makes of all videos."""

    explained: tuple[float, ...]
    trajectories: Sequence[Trajectory]


def principal_components(videos: Sequence[Tensor]) -> Components:
    """The main directions of the features of some videos, (T, D) each."""
    features = torch.cat(list(videos)).double()
    mean = features.mean(0)
    _, sizes, rows = torch.linalg.svd(features - mean, full_matrices=False)
    missing = max(0, DIRECTIONS - len(rows))  # fewer frames or features than directions
    directions = torch.cat([rows[:DIRECTIONS], rows.new_zeros(missing, features.shape[1])])
    variance = torch.cat([sizes[:DIRECTIONS] ** 2, sizes.new_zeros(missing)])
    advance = torch.stack([video[-1] - video[0] for video in videos]).double().mean(0)
    signs = torch.where(directions @ advance < 0, -1.0, 1.0)
    total = (sizes**2).sum().clamp(min=torch.finfo(torch.float64).tiny)
    return Components(mean, signs[:, None] * directions, tuple((variance / total).tolist()))


def encode_videos(
    reward: FrameReward, sets: Mapping[str, Sources], count: int, opening: Opening = AS_THEY_ARE
) -> Iterator[tuple[str, str, Tensor]]:
    """Kind, name and features (T, D) of the first `count` videos of each kind; one video is in memory at a time."""
    for kind, places in sets.items():
        for video in itertools.islice(read_videos(places, **vars(opening)), count):
            features = reward.encode(video.frames).cpu()
            if not features.is_floating_point():
                raise UserError(f"{reward.method} looks at pictures and has no features: leave its model out")
            yield kind, video.name, features


def project(encoded: Sequence[tuple[str, str, Tensor]]) -> Projection:
    """Videos as `encode_videos` gives them, in the main directions of those of the first kind."""
    first = encoded[0][0]
    components = principal_components([features for kind, _, features in encoded if kind == first])
    trajectories = [Trajectory(kind, name, components.project(features)) for kind, name, features in encoded]
    return Projection(components.explained, trajectories)
