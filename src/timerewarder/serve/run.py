"""`timerewarder serve`: load the models, bind the address, serve until a signal."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import torch

from timerewarder import api
from timerewarder.errors import UserError
from timerewarder.progress import console
from timerewarder.rewards.reward import FrameReward
from timerewarder.serve.addresses import is_loopback
from timerewarder.serve.limits import Limits

TOKEN_VARIABLE = "TIMEREWARDER_TOKEN"
STOP_SECONDS = 5  # for answers that are on their way when the server is stopped


def serve(
    models: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Serve models until Ctrl-C or SIGTERM. `token` may also come from the environment, where others cannot see it."""
    try:
        import uvicorn

        from timerewarder.serve.app import create_app
    except ModuleNotFoundError as error:
        raise UserError(f"the server needs the package {error.name}: pip install 'timerewarder[serve]'") from None
    token = _checked_token(token if token is not None else os.environ.get(TOKEN_VARIABLE), host)
    _leave_a_core()
    listener = _bind(host, port)
    with listener:
        rewards = load_models(models)
        limits = limits or Limits()
        app = create_app(rewards, limits, token)
        address = _address(host, listener.getsockname()[1])
        listener.listen(1024)  # who reads the next line may connect at once
        _say(f"serving {', '.join(rewards)} at {address} (API: {address}docs); Ctrl-C stops it")
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            ws_max_size=limits.frame_bytes,
            ws_max_queue=2,  # frames of one robot that wait in memory
            ws_per_message_deflate=False,  # compressing a frame takes longer than encoding it
            timeout_graceful_shutdown=STOP_SECONDS,
            server_header=False,
            date_header=False,
        )
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has stopped in order and passes the signal on
            uvicorn.Server(config).run(sockets=[listener])
    return {"address": address, "stopped": True}


def _leave_a_core() -> None:
    """One core talks to clients while the others encode, unless the user has said how many threads to use."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def load_models(models: Sequence[str]) -> dict[str, FrameReward]:
    """Models by name: the last part of the folder or of the Hub id, with a number if it is taken."""
    if not models:
        raise UserError("there is no model to serve: name at least one folder or Hub id")
    rewards: dict[str, FrameReward] = {}
    for model in models:
        last = os.path.basename(os.path.normpath(os.path.abspath(model))) or "model"
        name, number = last, 2
        while name in rewards:
            name, number = f"{last}-{number}", number + 1
        rewards[name] = api.load(model)
    return rewards


def _checked_token(token: str | None, host: str) -> str | None:
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host} can be reached by others, so a token is needed: "
                f"add --token TOKEN, or set {TOKEN_VARIABLE}"
            )
        return None
    if not token or not all(33 <= ord(character) <= 126 for character in token):
        raise UserError(
            "the token must be printable ASCII without spaces: choose another, such as from `openssl rand -hex 16`"
        )
    return token


def _bind(host: str, port: int) -> socket.socket:
    """Take the port before the models are loaded, so that a busy one is known at once."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port {port} is not a port: choose 1 to 65535, or 0 for any that is free")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        return listener
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot listen at {host} port {port} ({reason}): choose another --port, 0 for any") from None


def _address(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def _say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
    sys.stderr.flush()
