"""Videos for the tests: a square crosses the picture, at another height and pace in each video."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

# The networks of the tests are tiny: one thread each is fastest, and stays so on a busy machine.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
settings.register_profile("suite", deadline=None)  # no test depends on how busy the machine is
settings.load_profile("suite")

# Modules that take longest, which begin first so that no process is left alone with one of them.
LONG = ("test_timerewarder", "test_online", "test_readme", "test_training", "test_cli", "test_label", "test_judge")

SIZE = 32
QUICK = {
    "image_size": SIZE, "epochs": 1.0, "epoch_frames": 4000, "validate_every": 1000, "lr": 1e-3, "device": "cpu",
    "precision": "fp32",  # the same numbers on every machine
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither use nor fill the user's frame cache."""
    os.environ["TIMEREWARDER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def exact_arithmetic() -> Iterator[None]:
    """A training makes its process take the smallest numbers for 0; the next test is to have them."""
    yield
    torch.set_flush_denormal(False)


def crossing(seed: int, length: int | None = None, size: int = SIZE) -> np.ndarray:
    """uint8 (T, size, size, 3): a bright square goes from left to right over a fixed background."""
    rng = np.random.default_rng(seed)
    length = length or int(rng.integers(10, 20))
    frames = np.broadcast_to(rng.integers(0, 40, (1, size, size, 3)), (length, size, size, 3)).astype(np.uint8)
    side = size // 5
    top = int(rng.integers(0, size - side))
    for t in range(length):
        left = round(t * (size - side) / (length - 1))
        frames[t, top : top + side, left : left + side] = (240, 200, 60)
    return frames


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 24 short videos as npy files."""
    folder = tmp_path_factory.mktemp("videos")
    for seed in range(24):
        np.save(folder / f"crossing_{seed:02d}.npy", crossing(seed))
    return folder


@pytest.fixture(scope="session")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heldout")
    for seed in range(100, 106):
        np.save(folder / f"crossing_{seed}.npy", crossing(seed))
    return folder


@pytest.fixture(scope="session")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The square turns back half-way."""
    folder = tmp_path_factory.mktemp("failures")
    for seed in range(200, 206):
        frames = crossing(seed, 16)
        np.save(folder / f"failed_{seed}.npy", np.concatenate([frames[:8], frames[:8][::-1]]))
    return folder
