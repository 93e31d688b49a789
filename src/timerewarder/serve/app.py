"""The application: what it is made of, and the addresses of the page and of the server itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, HTMLResponse

from timerewarder import __version__
from timerewarder.config import to_dict
from timerewarder.rewards.reward import FrameReward
from timerewarder.serve import answers
from timerewarder.serve.description import refusals
from timerewarder.serve.errors import ApiError, explain_errors
from timerewarder.serve.limits import Limits
from timerewarder.serve.listing import STYLE, listing
from timerewarder.serve.metrics import Measured
from timerewarder.serve.score_routes import add_scoring, add_streams
from timerewarder.serve.security import Gate
from timerewarder.serve.service import Service
from timerewarder.serve.video_routes import add_exports, add_videos

PAGE = Path(__file__).parent / "page"


def create_app(rewards: Mapping[str, FrameReward], limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """The application for these models. With a token only its holders may use it; without, this machine only."""
    service = Service(rewards, limits or Limits())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watch = asyncio.create_task(service.watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.to_thread(service.close)

    app = FastAPI(
        title="TimeRewarder",
        version=__version__,
        description="Rewards from videos: score whole videos, or stream frames from a robot.",
        docs_url=None,  # FastAPI's own page comes from a CDN
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    explain_errors(app)
    _add_pages(app, service)
    add_scoring(app, service)
    add_streams(app, service)
    add_videos(app, service)
    add_exports(app, service)
    app.add_middleware(Gate, token=token)
    app.add_middleware(Measured, metrics=service.metrics)
    return app


def _add_pages(app: FastAPI, service: Service) -> None:
    assets = {file.name: file for file in PAGE.iterdir()} if PAGE.exists() else {}  # no path of a client is opened

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return await asset("index.html")

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in assets:
            raise ApiError(404, "not_found", "the page has no such file")
        return FileResponse(assets[name], headers={"Cache-Control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(listing(app.openapi()))

    @app.get("/docs.css", include_in_schema=False)
    async def docs_style() -> Response:
        return Response(STYLE, media_type="text/css")

    @app.get("/healthz", response_model=answers.Health, tags=["server"])
    async def health() -> dict[str, Any]:
        """Whether the server runs, and with which models. Needs no token."""
        return {"status": "ok", "models": list(service.batchers)}

    @app.get("/metrics", tags=["server"], response_class=Response, responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refusals()
    })  # fmt: skip
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        service.sessions.expire()
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models", response_model=answers.Models, tags=["server"], responses=refusals())
    async def models() -> dict[str, Any]:
        """The models that are served."""
        return {"models": service.describe_models()}

    @app.get("/v1/limits", response_model=answers.LimitsAnswer, tags=["server"], responses=refusals())
    async def limits() -> dict[str, Any]:
        """What is refused."""
        return to_dict(service.limits)
