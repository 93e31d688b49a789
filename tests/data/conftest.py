from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for videos."""
    path = tmp_path / "videos"
    path.mkdir()
    return path
