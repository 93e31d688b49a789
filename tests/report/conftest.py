from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from timerewarder.report.clip import Clip, true_distances


@pytest.fixture
def make_clip() -> Callable[..., Clip]:
    """A white square that crosses the picture, scored perfectly."""

    def make(name: str = "square", kind: str = "held-out", length: int = 12, size: tuple[int, int] = (48, 64)) -> Clip:
        frames = np.zeros((length, *size, 3), np.uint8)
        for frame, column in enumerate(np.linspace(0, size[1] - 8, length).astype(int)):
            frames[frame, 8:16, column : column + 8] = 255
        rewards = np.full(length, 1 / (length - 1), np.float32)
        rewards[0] = 0
        return Clip(name, kind, frames, 10.0, rewards, np.cumsum(rewards), true_distances(length))

    return make
