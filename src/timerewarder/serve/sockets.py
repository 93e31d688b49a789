"""The conversation of a WebSocket: frames in, rewards out."""

from __future__ import annotations

import asyncio
import contextlib
import json

from starlette.websockets import WebSocket, WebSocketDisconnect

from timerewarder.errors import UserError
from timerewarder.serve.batching import log
from timerewarder.serve.episodes import Arrival
from timerewarder.serve.errors import ApiError, bad_request
from timerewarder.serve.security import PROTOCOL
from timerewarder.serve.service import Service
from timerewarder.serve.sessions import Session


async def converse(websocket: WebSocket, service: Service, model: str | None) -> None:
    """Serve one robot until it goes, however it goes."""
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(PROTOCOL if PROTOCOL in offered else None)
    try:
        session = service.sessions.open(service.batcher(model))
        try:
            session.on_expiry = lambda: _hang_up(websocket, service.limits.session_seconds)
            await _answer_frames(websocket, session, service.limits.frame_bytes)
        finally:
            service.sessions.close(session.id)
    except ApiError as error:
        await _say_goodbye(websocket, error)
    except WebSocketDisconnect:  # gone in the middle of an answer
        pass


async def _answer_frames(websocket: WebSocket, session: Session, most: int) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        body = message.get("bytes")
        if body is None:
            if message.get("text") != "reset":
                raise ApiError(422, "not_a_frame", 'send frames as binary messages, or the text "reset"')
            session.end_episode()
            continue
        if len(body) > most:
            raise ApiError(413, "frame_too_large", f"a frame may have {most / 1e6:.1f} MB at most: send it smaller")
        step, reward, progress = await _arrive(session, body)
        told = "" if reward is None else f'"reward": {reward!r}, '  # so small an object needs no JSON library
        await websocket.send({"type": "websocket.send", "text": f'{{"step": {step}, {told}"progress": {progress!r}}}'})


async def _arrive(session: Session, body: bytes) -> Arrival:
    try:
        with session.turn():
            return await session.arrive(body)
    except ApiError:
        raise
    except UserError as error:
        raise bad_request(error) from None
    except Exception:
        log.exception("a frame of a stream could not be rewarded")
        raise ApiError(500, "internal", "the server failed at this frame; its log says why") from None


def _hang_up(websocket: WebSocket, seconds: float) -> None:
    """Tell an idle client; its handler then sees the socket close."""
    error = ApiError(408, "expired", f"the stream was idle for {seconds:g} seconds: connect again")
    websocket.state.goodbye = asyncio.ensure_future(_say_goodbye(websocket, error))


async def _say_goodbye(websocket: WebSocket, error: ApiError) -> None:
    websocket.scope["refused"] = error.code
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it may be gone, or be told by somebody else
        await websocket.send_text(json.dumps(error.content))
        await websocket.close(error.close_code, error.code)
