"""A small application and a real server for the tests. Weights are random: the server has to agree with the model."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI
from PIL import Image

from tests.conftest import SIZE
from timerewarder.rewards import METHODS
from timerewarder.rewards.reward import FrameReward
from timerewarder.rewards.timerewarder import Config, TimeRewarder
from timerewarder.serve.app import create_app
from timerewarder.serve.limits import Limits


def model(method: str = "timerewarder", **options: Any) -> FrameReward:
    torch.manual_seed(0)
    entry = METHODS[method]
    return entry.reward(entry.config(image_size=SIZE, **options)).eval()


def models() -> dict[str, FrameReward]:
    """One that compares neighbours, one that looks at the first frame too, one that sees the past."""
    return {"near": model(), "far": model("from-init"), "past": model(history=2)}


def application(token: str | None = None, **limits: Any) -> FastAPI:
    return create_app({"near": model()}, Limits(**limits), token)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=array.dtype == object)
    return file.getvalue()


def picture(frame: np.ndarray, kind: str = "png") -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, kind)
    return file.getvalue()


def upload(content: bytes, name: str = "clip.npy") -> dict[str, Any]:
    return {"files": {"video": (name, content)}}


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """A real server in a thread; gives its address, such as 127.0.0.1:41235."""
    config = uvicorn.Config(app, port=0, log_level="error", ws_max_size=10**7, ws_per_message_deflate=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def value(metrics: str, name: str) -> float:
    """A number on the page of metrics; `name` with its labels."""
    return next(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(f"{name} "))


__all__ = ["Config", "TimeRewarder", "application", "model", "models", "npy", "picture", "running", "upload", "value"]
