"""LeRobot itself where it is installed (Python 3.12 and later), else the stand-in beside this file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import timerewarder as tr
from tests.conftest import QUICK

STANDIN = Path(__file__).parent / "standin"
PLUGIN = "timerewarder.lerobot_plugin"


@pytest.fixture(scope="session")
def real_lerobot() -> bool:
    return find_spec("lerobot") is not None and STANDIN not in Path(str(find_spec("lerobot").origin)).parents


@pytest.fixture(scope="module", autouse=True)
def lerobot(real_lerobot: bool) -> Iterator[None]:
    """`import lerobot` works; other tests see nothing of the stand-in."""
    if real_lerobot:
        yield
        return
    sys.path.insert(0, str(STANDIN))
    importlib.invalidate_caches()
    yield
    sys.path.remove(str(STANDIN))
    for name in list(sys.modules):
        if name.split(".")[0] == "lerobot" or name.startswith(PLUGIN):
            del sys.modules[name]


@pytest.fixture(scope="session")
def model(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted model that sees one frame of the past beside each frame."""
    out = tmp_path_factory.mktemp("plugin") / "model"
    tr.fit(videos, out, **{**QUICK, "epoch_frames": 800, "validate_every": 400}, history=1)
    return out
