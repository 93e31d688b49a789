"""A small HTTP server that speaks the chat-completions protocol, and looks at the pictures it is sent.

A good answer reads where the square of `tests.conftest.crossing` stands in every frame asked for. `script` holds modes
for the next requests, one each; after them every answer is good.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

GOOD = "good"
SQUARE = 0.2  # of the picture's width


class Request(NamedTuple):
    """What a client sent."""

    path: str
    key: str
    body: dict[str, Any]


class ChatServer:
    """Serves on a free port of this machine until it is closed."""

    def __init__(self) -> None:
        self.script: deque[str] = deque()
        self.requests: list[Request] = []
        self.released = threading.Event()  # ends the wait of slow answers
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of the response, by the script."""
        mode = self.script.popleft() if self.script else GOOD
        if request.path != "/v1/chat/completions":
            return _refusal(404, "no such path")
        if mode == "slow":
            self.released.wait(60)
        if mode in REFUSALS:
            status, words = REFUSALS[mode]
            return _refusal(status, words.format(key=request.key))
        if mode == "web page":
            return 200, {"Content-Type": "text/html"}, b"<html>Welcome</html>"
        if mode == "broken json":
            return 200, {"Content-Type": "application/json"}, b'{"choices": ['
        if mode == "empty":
            return _json(200, {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": []})
        return _completion(spoil(lines(percentages(request.body)), mode), "length" if mode == "cut" else "stop")


REFUSALS = {
    "busy": (429, "too many requests"),
    "broken": (500, "something broke"),
    "key": (401, "Incorrect API key provided: {key}"),
    "forbidden": (403, "not for you"),
    "no model": (404, "the model does not exist"),
    "too many pictures": (400, "At most 1 image(s) may be provided in one request."),
}


def asked(body: dict[str, Any]) -> list[np.ndarray]:
    """The frames that a request asks for, uint8 (H, W, 3) each, in the order of their numbers."""
    parts = body["messages"][0]["content"]
    question = next(i for i, part in enumerate(parts) if "Now, for the task of" in part.get("text", ""))
    labels = [part["text"].splitlines()[-1] for part in parts[question::2]]
    assert labels == [f"Frame {number}:" for number in range(1, len(labels) + 1)]
    return [picture(part) for part in parts[question + 1 :: 2]]


def picture(part: dict[str, Any]) -> np.ndarray:
    """A part of a message -> uint8 (H, W, 3)."""
    kind, content = part["image_url"]["url"].split(",")
    assert kind == "data:image/jpeg;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def percentages(body: dict[str, Any]) -> list[float]:
    """How far the square has gone from left to right, in percent, in each frame asked for; 0 without a square."""
    found = []
    for frame in asked(body):
        columns = np.flatnonzero((frame[..., 0] > 140).any(0))
        centre = (columns.mean() + 0.5) / frame.shape[1] if len(columns) else SQUARE / 2
        found.append(float(np.clip((centre - SQUARE / 2) / (1 - SQUARE), 0, 1)) * 100)
    return found


def lines(values: list[float]) -> list[str]:
    return [
        f"Frame {number}: Frame Description: a square, 20% of the width, Task Completion Percentages: {value:.0f}%"
        for number, value in enumerate(values, 1)
    ]


def spoil(answer: list[str], mode: str) -> str:
    """A good answer, or what a mode makes of it."""
    if mode == "prose":
        return "I see a square. It moves to the right, and the task is about half done."
    if mode == "silent":
        return ""
    if mode in ("partial", "cut"):
        return "\n".join(answer[:-2])
    if mode == "out of range":
        return re.sub(r"\d+%$", "140%", "\n".join(answer))
    assert mode in (GOOD, "slow"), mode
    return "\n".join(answer)


def _completion(text: str, ended: str) -> tuple[int, dict[str, str], bytes]:
    choice = {"index": 0, "finish_reason": ended, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    described = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
    return _json(200, {**described, "choices": [choice], "usage": usage})


def _refusal(status: int, words: str) -> tuple[int, dict[str, str], bytes]:
    status, headers, content = _json(status, {"error": {"message": words, "type": "error", "code": None}})
    return status, {**headers, "retry-after-ms": "1"}, content


def _json(status: int, value: Any) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = Request(self.path, self.headers.get("Authorization", "").removeprefix("Bearer "), body)
            server.requests.append(request)
            status, headers, content = server.answer(request)
            try:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # a client that did not wait
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
