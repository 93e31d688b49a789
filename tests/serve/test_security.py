"""The token, foreign hosts and origins, and the headers that keep a browser from harm."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from tests.conftest import crossing
from tests.serve.served import application, npy, value

TOKEN = "correct-horse"


def test_with_a_token_only_its_holders_are_served() -> None:
    with TestClient(application(TOKEN), base_url="http://robot.example") as client:
        for path in ("/v1/models", "/v1/videos", "/metrics", "/v1/limits", "/v1/nothing"):
            for headers in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": TOKEN},
                {"Authorization": "Bearer "},
            ):
                answer = client.get(path, headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
                assert TOKEN not in answer.text
        assert client.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        for path in ("/", "/healthz", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        text = client.get("/metrics", headers={"Authorization": f"bearer {TOKEN}"}).text
        assert value(text, 'timerewarder_refused_total{reason="unauthorized"}') == 20
        assert TOKEN not in text


def test_a_websocket_shows_its_token_in_a_header_or_as_a_subprotocol() -> None:
    address = "ws://robot.example/v1/stream"
    with TestClient(application(TOKEN)) as client:
        for wrong in ({}, {"headers": {"Authorization": "Bearer no"}}, {"subprotocols": ["timerewarder", "token.no"]}):
            with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect(address, **wrong):
                pass
            assert denied.value.status_code == 401
            assert denied.value.json()["error"]["code"] == "unauthorized"
        with client.websocket_connect(address, headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
            socket.send_bytes(npy(crossing(1)[0]))
            assert socket.receive_json()["step"] == 0
        with client.websocket_connect(address, subprotocols=["timerewarder", f"token.{TOKEN}"]) as socket:
            assert socket.accepted_subprotocol == "timerewarder"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"])
def test_without_a_token_this_machine_is_served(host: str) -> None:
    with TestClient(application()) as client:
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "foreign_host"),
        ({"Host": "127.0.0.1.evil.example:8000"}, "foreign_host"),
        ({"Host": "192.168.1.5:8000"}, "foreign_host"),
        ({"Host": ""}, "foreign_host"),
        ({"Host": "localhost:8000", "Origin": "https://evil.example"}, "foreign_origin"),
        ({"Host": "localhost:8000", "Origin": "http://localhost:3000"}, "foreign_origin"),
        ({"Host": "localhost:8000", "Origin": "null"}, "foreign_origin"),
    ],
)
def test_without_a_token_others_are_refused(headers: dict[str, str], code: str) -> None:
    with TestClient(application()) as client:
        for path in ("/", "/v1/models"):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
        with (
            pytest.raises(WebSocketDenialResponse) as denied,
            client.websocket_connect("ws://localhost/v1/stream", headers=headers),
        ):
            pass
        assert denied.value.status_code == 403


def test_answers_carry_security_headers() -> None:
    with TestClient(application(), base_url="http://localhost") as client:
        page, api = client.get("/"), client.get("/v1/models")
    for answer in (page, api):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert api.headers["cache-control"] == "no-store"
