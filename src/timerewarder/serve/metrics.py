"""What Prometheus sees at /metrics. Routes are templates, so that ids do not become labels."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
FRAMES = (1, 2, 4, 8, 16, 32, 64, 128)
KNOWN = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"}


class Metrics:
    """The numbers of one application."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "timerewarder_requests", "Requests by route and status.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "timerewarder_request_seconds",
            "Time to answer a request, the body's arrival included.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.refused = Counter("timerewarder_refused", "Refusals by reason.", ["reason"], registry=registry)
        self.steps = Histogram(
            "timerewarder_stream_step_seconds",
            "Time from a frame of a stream to its reward.",
            buckets=SECONDS,
            registry=registry,
        )
        self.frames = Counter("timerewarder_frames_encoded", "Frames encoded.", ["model"], registry=registry)
        self.batches = Histogram(
            "timerewarder_batch_frames", "Frames in a forward pass.", ["model"], buckets=FRAMES, registry=registry
        )
        self.encoding = Counter(
            "timerewarder_encode_seconds", "Time spent in forward passes.", ["model"], registry=registry
        )

    def gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        """A number that is looked up when it is asked for."""
        Gauge(f"timerewarder_{name}", help, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Measured:
    """The outermost layer of the application: counts and times every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        status, start = 500, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
            elif kind == "websocket.accept":
                status = 101
            elif kind == "websocket.close" and status == 500:
                status = 403  # closed before it was accepted
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            method = scope.get("method", "WEBSOCKET")
            self.metrics.requests.labels(method if method in KNOWN else "other", route, str(status)).inc()
            if scope["type"] == "http":  # a WebSocket lasts as long as its client likes
                self.metrics.seconds.labels(route).observe(time.perf_counter() - start)
            if "refused" in scope:
                self.metrics.refused.labels(scope["refused"]).inc()
