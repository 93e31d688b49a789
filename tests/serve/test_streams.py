"""Streams: over HTTP and WebSocket, alone and together, they give what `score` gives; sessions do not leak."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tests.conftest import crossing
from tests.serve.served import application, model, models, npy, picture, running, value
from timerewarder.serve.app import create_app
from timerewarder.serve.limits import Limits

LOCAL, SOCKET = "http://localhost", "ws://localhost"
ROBOT = """
import sys, numpy as np
from io import BytesIO
from websockets.sync.client import connect
file = BytesIO()
np.save(file, np.zeros((32, 32, 3), np.uint8))
with connect(sys.argv[1], compression=None, proxy=None) as socket:
    for step in range(10**9):
        socket.send(file.getvalue())
        socket.recv()
        if step == 3:
            print("streaming", flush=True)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(models()), base_url=LOCAL) as client:
        yield client


@pytest.mark.parametrize("name", ["near", "far", "past"])
def test_http_stream_equals_score(client: TestClient, name: str) -> None:
    frames, expected = crossing(1, 12), models()[name].score(crossing(1, 12))
    opened = client.post("/v1/streams", params={"model": name}, content=npy(crossing(9)[0]))
    assert opened.status_code == 201
    assert opened.json()["model"] == name
    id = opened.json()["id"]
    client.post(f"/v1/streams/{id}/step", content=npy(crossing(9)[1]))
    for _ in range(2):  # a reset forgets the episode before
        assert client.post(f"/v1/streams/{id}/reset", content=npy(frames[0])).json() == {"step": 0, "progress": 0.0}
        answers = [client.post(f"/v1/streams/{id}/step", content=npy(frame)).json() for frame in frames[1:]]
        assert [answer["step"] for answer in answers] == list(range(1, 12))
        np.testing.assert_allclose([answer["reward"] for answer in answers], expected[1:], atol=1e-5)
        np.testing.assert_allclose([answer["progress"] for answer in answers], expected.cumsum()[1:], atol=1e-5)
    assert client.delete(f"/v1/streams/{id}").status_code == 204
    assert client.post(f"/v1/streams/{id}/step", content=npy(frames[0])).status_code == 404
    assert client.delete(f"/v1/streams/{id}").status_code == 404


@pytest.mark.parametrize("name", ["near", "far", "past"])
def test_websocket_equals_score(client: TestClient, name: str) -> None:
    frames = crossing(2, 9, 48)  # larger than the model sees them
    expected = models()[name].score(frames)
    with client.websocket_connect(f"{SOCKET}/v1/stream?model={name}") as socket:
        for episode in range(2):
            if episode:
                socket.send_text("reset")
            socket.send_bytes(npy(frames[0]))
            assert socket.receive_json() == {"step": 0, "progress": 0.0}
            rewards = []
            for step, frame in enumerate(frames[1:], 1):
                socket.send_bytes(picture(frame))
                answer = socket.receive_json()
                assert answer["step"] == step
                rewards.append(answer["reward"])
            np.testing.assert_allclose(rewards, expected[1:], atol=1e-5)


def test_many_streams_at_once_equal_score(client: TestClient) -> None:
    """Robots of three models, each at another place of another episode, share forward passes."""
    robots = [(name, crossing(seed, 6 + seed)) for seed in range(4) for name in ("near", "far", "past")]

    def ride(robot: tuple[str, np.ndarray]) -> list[float]:
        name, frames = robot
        with client.websocket_connect(f"{SOCKET}/v1/stream?model={name}") as socket:
            answers = []
            for frame in frames:
                socket.send_bytes(npy(frame))
                answers.append(socket.receive_json())
        return [answer.get("reward", 0.0) for answer in answers]

    with concurrent.futures.ThreadPoolExecutor(len(robots)) as pool:
        for (name, frames), rewards in zip(robots, pool.map(ride, robots), strict=True):
            np.testing.assert_allclose(rewards, models()[name].score(frames), atol=1e-5)


def test_a_jpeg_is_a_frame(client: TestClient) -> None:
    opened = client.post("/v1/streams?model=near", content=picture(crossing(1)[0], "jpeg"))
    assert opened.status_code == 201
    client.delete(f"/v1/streams/{opened.json()['id']}")


def test_websocket_errors_are_told_before_it_closes(client: TestClient) -> None:
    for message, code, close in (
        (b"nonsense", "not_a_frame", 1008),
        (npy(crossing(1)), "not_a_frame", 1008),
        (npy(crossing(1)[0].astype(np.float32)), "not_frames", 1008),
        (npy(np.zeros((1, 9000, 3), np.uint8)), "frame_too_large", 1009),
        ("hello", "not_a_frame", 1008),
    ):
        with client.websocket_connect(f"{SOCKET}/v1/stream?model=near") as socket:
            socket.send_bytes(message) if isinstance(message, bytes) else socket.send_text(message)
            assert socket.receive_json()["error"]["code"] == code
            with pytest.raises(WebSocketDisconnect) as closed:
                socket.receive_json()
            assert closed.value.code == close
    with client.websocket_connect(f"{SOCKET}/v1/stream?model=no") as socket:
        assert socket.receive_json()["error"]["code"] == "no_model"
    assert value(client.get("/metrics").text, "timerewarder_sessions") == 0


def test_a_method_of_whole_episodes_does_not_stream() -> None:
    whole = model("ot")
    with TestClient(create_app({"whole": whole}), base_url=LOCAL) as client:
        answer = client.post("/v1/streams", content=npy(crossing(1)[0]))
        assert answer.status_code == 422
        assert "/v1/score/frames" in answer.json()["error"]["message"]


def test_sessions_are_limited_and_expire() -> None:
    app = create_app({"near": model()}, Limits(sessions=2, session_seconds=1000))
    first = npy(crossing(1)[0])
    with TestClient(app, base_url=LOCAL) as client:
        ids = [client.post("/v1/streams", content=first).json()["id"] for _ in range(2)]
        assert client.post("/v1/streams", content=first).status_code == 429
        with client.websocket_connect(f"{SOCKET}/v1/stream") as socket:
            assert socket.receive_json()["error"]["code"] == "busy"
        app.state.service.sessions.get(ids[0]).used -= 2000  # as if it had been idle
        assert client.post("/v1/streams", content=first).status_code == 201
        assert client.post(f"/v1/streams/{ids[0]}/step", content=first).status_code == 404
        assert client.post(f"/v1/streams/{ids[1]}/step", content=first).status_code == 200


def test_an_idle_websocket_is_told_and_closed() -> None:
    with TestClient(application(session_seconds=0.2), base_url=LOCAL) as client:
        with client.websocket_connect(f"{SOCKET}/v1/stream") as socket:
            socket.send_bytes(npy(crossing(1)[0]))
            assert socket.receive_json()["step"] == 0
            assert socket.receive_json()["error"]["code"] == "expired"
        assert value(client.get("/metrics").text, "timerewarder_sessions") == 0


def test_a_bad_first_frame_keeps_no_session() -> None:
    with TestClient(application(), base_url=LOCAL) as client:
        assert client.post("/v1/streams", content=b"").status_code == 400
        assert value(client.get("/metrics").text, "timerewarder_sessions") == 0


def test_two_frames_of_one_session_at_once_are_refused() -> None:
    app = application()
    with TestClient(app, base_url=LOCAL) as client:
        id = client.post("/v1/streams", content=npy(crossing(1)[0])).json()["id"]
        app.state.service.sessions.get(id)._busy = True  # as if a frame were on its way
        answer = client.post(f"/v1/streams/{id}/step", content=npy(crossing(1)[1]))
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "busy_session")


def test_killed_clients_leak_no_session() -> None:
    with running(application()) as address:
        command = [sys.executable, "-c", ROBOT, f"ws://{address}/v1/stream"]
        robots = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        try:
            for robot in robots:
                assert robot.stdout is not None
                assert robot.stdout.readline() == "streaming\n"
            assert _sessions(address) == 3
        finally:
            for robot in robots:
                os.kill(robot.pid, signal.SIGKILL)
                robot.communicate()
        end = time.monotonic() + 30
        while _sessions(address) and time.monotonic() < end:
            time.sleep(0.02)
        assert _sessions(address) == 0


def _sessions(address: str) -> float:
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        return value(answer.read().decode(), "timerewarder_sessions")
