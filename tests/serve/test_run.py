"""Starting and stopping: the address, the token, busy ports, signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.conftest import crossing
from tests.serve.served import model, npy
from timerewarder.errors import UserError
from timerewarder.serve.limits import Limits
from timerewarder.serve.run import load_models, serve

START = "import sys; from timerewarder.serve.run import serve; serve([sys.argv[1]], port=0)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "drawer"
    model().save(folder)
    return folder


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_and_removes_the_folder(folder: Path, tmp_path: Path, ending: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TIMEREWARDER_TOKEN": "s3cret"}
    command = [sys.executable, "-c", START, str(folder)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.search(r"serving drawer at http://(127\.0\.0\.1:\d+)/", line)
        assert found, line
        with urllib.request.urlopen(f"http://{found[1]}/healthz") as answer:
            assert b"drawer" in answer.read()
        headers = {"Authorization": "Bearer s3cret"}
        with connect(f"ws://{found[1]}/v1/stream", additional_headers=headers, proxy=None) as stream:
            stream.send(npy(crossing(1)[0]))
            stream.recv()
            assert len(list(tmp_path.glob("timerewarder-serve-*"))) == 1
            server.send_signal(ending)
            with pytest.raises(ConnectionClosed):
                stream.recv(timeout=30)
        assert server.wait(30) in (0, -ending)
        said = line + server.stderr.read()
        assert "Traceback" not in said
        assert "s3cret" not in said
        assert list(tmp_path.glob("timerewarder-serve-*")) == []
    finally:
        server.kill()
        server.wait()


def test_a_busy_port_is_one_line(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} .*: choose another --port"):
            serve([str(folder)], port=port)
    with pytest.raises(UserError, match="--port 99999 is not a port"):
        serve([str(folder)], port=99999)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "robot.example"])
def test_off_loopback_a_token_is_needed(folder: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIMEREWARDER_TOKEN", raising=False)
    with pytest.raises(UserError, match="--token"):
        serve([str(folder)], host=host, port=0)


@pytest.mark.parametrize("token", ["", "two words", "schlüssel", "line\n"])
def test_a_token_that_cannot_be_sent_is_refused(folder: Path, token: str) -> None:
    with pytest.raises(UserError, match="printable ASCII"):
        serve([str(folder)], token=token)


def test_models_have_different_names(folder: Path) -> None:
    rewards = load_models([str(folder), f"{folder}/", os.path.relpath(folder)])
    assert list(rewards) == ["drawer", "drawer-2", "drawer-3"]
    np.testing.assert_array_equal(rewards["drawer-2"].score(crossing(1)), model().score(crossing(1)))
    with pytest.raises(UserError, match="no model to serve"):
        load_models([])


def test_limits_have_to_make_sense() -> None:
    with pytest.raises(UserError, match="--decode-seconds 0"):
        Limits(decode_seconds=0)
    with pytest.raises(UserError, match="--frames -1"):
        Limits(frames=-1)
