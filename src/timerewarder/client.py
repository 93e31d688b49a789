"""A reward that lives on a server (`timerewarder serve`), used like a local one.

    reward = tr.Client("http://127.0.0.1:8000")
    reward.score(frames)            # float32 (T,), as reward.score of the model itself
    stream = reward.stream()        # reset(first_frame), then step(frame) -> float

Frames are made as small as the model sees them before they are sent, by the same code that the server would use, so the
rewards are the same and less travels.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import numpy as np

from timerewarder.config import nearest
from timerewarder.data.frames import check_frames
from timerewarder.errors import UserError
from timerewarder.serve.addresses import is_loopback

if TYPE_CHECKING:
    import httpx
    from websockets.sync.client import ClientConnection


class Client:
    """A reward on a server. `model` is needed only if the server has several. Use as a context manager, or `close`."""

    def __init__(self, url: str, token: str | None = None, model: str | None = None, timeout: float = 60.0) -> None:
        """`timeout`: seconds to wait for an answer."""
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"{url} is not the address of a server: give one such as http://127.0.0.1:8000")
        self._model = model
        self._nearby = is_loopback(parts.hostname)
        self._http: httpx.Client = _library("httpx").Client(
            base_url=self.url,
            headers=self._headers,
            timeout=timeout,
            trust_env=not self._nearby,  # a proxy for the internet does not lead to this machine
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; streams have their own."""
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """What the server serves: name, method, encoder, image_size, streams, is_value, has_distances."""
        return self._ask("GET", "/v1/models")["models"]

    def score(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (T, H, W, 3) -> float32 (T,). Entry t rewards arriving at frame t; entry 0 is 0."""
        body = _npy(self._shrunk(check_frames(frames)))
        answer = self._ask("POST", "/v1/score/frames", params={"model": self.info["name"]}, content=body)
        return np.array(answer["rewards"], np.float32)

    def stream(self) -> RemoteStream:
        """Rewards one frame at a time: `reset(first_frame)`, then `step(frame) -> float`."""
        if not self.info["streams"]:
            raise UserError(
                f"{self.info['method']} rewards whole episodes, not steps as they come: "
                "use score(frames) at an episode's end"
            )
        return RemoteStream(self)

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """What the server says about the model."""
        found = {model["name"]: model for model in self.models()}
        if self._model is None:
            if len(found) > 1:
                raise UserError(f"{self.url} serves several models: name one of {', '.join(found)} with model=NAME")
            return next(iter(found.values()))
        if self._model not in found:
            raise UserError(f"{self.url} has no model {self._model!r}{nearest(self._model, found)}")
        return found[self._model]

    @property
    def _headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def _shrunk(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (T, H, W, 3) -> (T, S, S, 3), as the model sees them."""
        size = self.info["image_size"]
        if frames.shape[1:3] == (size, size):
            return frames
        from timerewarder.data.resize import resize  # it imports PyTorch, which a policy may not need

        return resize(frames, size, self.info["resize"])

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        import httpx

        try:
            answer = self._http.request(method, path, **options)
        except httpx.TimeoutException:
            raise UserError(f"{self.url} did not answer in {self.timeout:g} seconds: give more with timeout=") from None
        except httpx.HTTPError as error:
            raise _absent(self.url, error) from None
        if answer.is_success:
            return answer.json()
        raise _refusal(self.url, answer.status_code, answer.content)

    def _connect(self, until: contextlib.ExitStack) -> ClientConnection:
        """A socket of the model's streams, which `until` closes."""
        connect = _library("websockets.sync.client").connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus

        address = f"ws{self.url.removeprefix('http')}/v1/stream?model={quote(self.info['name'], safe='')}"
        options: dict[str, Any] = {"proxy": None} if self._nearby else {}
        try:
            socket = connect(
                address,
                additional_headers=self._headers,
                compression=None,  # it would take longer than the way over the network
                open_timeout=self.timeout,
                **options,
            )
            return until.enter_context(socket)
        except InvalidStatus as error:
            raise _refusal(self.url, error.response.status_code, error.response.body) from None
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise _absent(self.url, error) from None


class RemoteStream:
    """Step-by-step rewards of one episode after the other, as `rewards.reward.Stream` gives them.

    The connection opens with the first `reset`; if it is lost, the next `reset` opens another.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._socket: ClientConnection | None = None
        self._closing = contextlib.ExitStack()
        self._begun = False

    def __enter__(self) -> RemoteStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def reset(self, frame: np.ndarray) -> None:
        """Begin an episode at `frame`, uint8 (H, W, 3)."""
        body = self._body(frame)
        if self._socket is not None and not self._send("reset"):
            self.close()
        if self._socket is None:
            self._socket = self._client._connect(self._closing)
        self._begun = False
        self._exchange(body)
        self._begun = True

    def step(self, frame: np.ndarray) -> float:
        """The reward for arriving at `frame`, uint8 (H, W, 3)."""
        if not self._begun:
            raise UserError("call stream.reset(first_frame) before stream.step(frame)")
        return float(self._exchange(self._body(frame))["reward"])

    def close(self) -> None:
        """Free the session on the server."""
        self._socket, self._begun = None, False
        self._closing.close()

    def _body(self, frame: np.ndarray) -> bytes:
        return _npy(self._client._shrunk(check_frames(np.asarray(frame)[None]))[0])

    def _send(self, message: str | bytes) -> bool:
        """Whether the connection still takes it."""
        from websockets.exceptions import ConnectionClosed

        assert self._socket is not None
        try:
            self._socket.send(message)
        except (ConnectionClosed, OSError):
            return False
        return True

    def _exchange(self, body: bytes) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed

        assert self._socket is not None
        try:
            self._send(body)  # if it fails, what the server said last explains why
            answer = json.loads(self._socket.recv(timeout=self._client.timeout))
        except TimeoutError:
            self.close()
            seconds = f"{self._client.timeout:g} seconds"
            raise UserError(f"{self._client.url} did not answer in {seconds}: give more with timeout=") from None
        except (ConnectionClosed, OSError) as error:
            self.close()
            raise UserError(
                f"the connection to {self._client.url} is lost ({error}): call stream.reset(first_frame) again"
            ) from None
        if "error" in answer:
            self.close()
            raise UserError(f"{self._client.url}: {answer['error']['message']}")
        return answer


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def _absent(url: str, error: Exception) -> UserError:
    return UserError(f"{url} cannot be reached ({error}): check the address, and that `timerewarder serve` runs there")


def _refusal(url: str, status: int, body: bytes | bytearray | None) -> UserError:
    try:
        message = json.loads(body or b"")["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"answers with status {status}: check that it is the address of `timerewarder serve`"
    return UserError(f"{url}: {message}")


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"tr.Client needs {name.split('.')[0]}: pip install 'timerewarder[client]'") from None
