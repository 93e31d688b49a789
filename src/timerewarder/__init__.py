"""Dense rewards from passive videos: predict the time between two frames, reward progress.

The public names load on first use, so that `import timerewarder` and `timerewarder --help` do not wait for PyTorch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timerewarder.api import evaluate, fit, load
    from timerewarder.client import Client
    from timerewarder.data.videos import Video, read_videos
    from timerewarder.envs.learned import FinalFrame, LearnedReward, VectorLearnedReward
    from timerewarder.errors import UserError

# Threads that wait by spinning make PyTorch many times slower on a CPU that something else uses too. No effect
# if torch is imported first.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
__all__ = [
    "Client",
    "FinalFrame",
    "LearnedReward",
    "UserError",
    "VectorLearnedReward",
    "Video",
    "evaluate",
    "fit",
    "load",
    "read_videos",
]

_HOMES = {
    "Client": "client",
    "evaluate": "api",
    "fit": "api",
    "load": "api",
    "Video": "data.videos",
    "read_videos": "data.videos",
    "UserError": "errors",
    "FinalFrame": "envs.learned",
    "LearnedReward": "envs.learned",
    "VectorLearnedReward": "envs.learned",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'timerewarder' has no attribute {name!r}")
    return getattr(import_module(f"timerewarder.{_HOMES[name]}"), name)
