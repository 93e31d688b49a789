"""Who may talk to the server: the token's holders or, without a token, this machine and its own page only.

Without a token a page of another site, open in a browser on this machine, could reach a server on loopback: directly
(its Origin is then another one), or under a name of its own that points to 127.0.0.1 (then the Host is that name).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timerewarder.serve.addresses import is_loopback
from timerewarder.serve.errors import ApiError

PROTOCOL = "timerewarder"  # the WebSocket subprotocol, beside `token.TOKEN`
OPEN_PATHS = ("/", "/healthz", "/docs", "/docs.css", "/openapi.json")  # they hold nothing of the user's
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; media-src blob: 'self'; img-src blob: data: 'self'; style-src 'self'; "
        "connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Gate:
    """Lets a request through or refuses it, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = self.refusal(scope)
        guarded = _with_headers(scope, send)
        if refusal is None:
            await self.app(scope, receive, guarded)
        elif scope["type"] == "http":
            scope["refused"] = refusal.code
            await refusal.response(scope, receive, guarded)
        else:
            scope["refused"] = refusal.code
            await deny(scope, receive, send, refusal)

    def refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        if self.token is None:
            return _foreign(headers)
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith("/assets/"):
            return None
        given = _tokens(headers, scope["type"] == "websocket")
        if any(hmac.compare_digest(candidate, self.token) for candidate in given):
            return None
        return ApiError(401, "unauthorized", "this server needs its token: send Authorization: Bearer TOKEN")


def _foreign(headers: Headers) -> ApiError | None:
    host = headers.get("host", "")
    if not is_loopback(_without_port(host)):
        return ApiError(
            403, "foreign_host", "without a token the server answers at localhost only: start it with --token"
        )
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return ApiError(
            403, "foreign_origin", "a page of another site may not use this server: open the server's own page"
        )
    return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


def _tokens(headers: Headers, is_websocket: bool) -> Iterable[bytes]:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip().encode("latin-1")
    if is_websocket:
        for protocol in headers.get("sec-websocket-protocol", "").split(","):
            if protocol.strip().startswith("token."):
                yield protocol.strip().removeprefix("token.").encode("latin-1")


def _with_headers(scope: Scope, send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if scope["path"].startswith(("/v1", "/metrics", "/healthz")):
                headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded


async def deny(scope: Scope, receive: Receive, send: Send, error: ApiError) -> None:
    """Refuse a WebSocket before it is accepted, with the reason as the HTTP answer where the server can do that."""
    await receive()  # the protocol wants the connect message to be read first
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": error.close_code, "reason": error.message[:120]})
        return
    headers = {"content-type": "application/json", **{k.lower(): v for k, v in error.headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": raw})
    await send({"type": "websocket.http.response.body", "body": json.dumps(error.content).encode()})
