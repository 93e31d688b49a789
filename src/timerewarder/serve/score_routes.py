"""Addresses that give rewards: whole videos, and streams for robots."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import JSONResponse

from timerewarder.serve import answers
from timerewarder.serve.description import FRAME, RAW, UPLOAD, Fps, ModelName, refusals
from timerewarder.serve.episodes import Arrival
from timerewarder.serve.frames import open_frames
from timerewarder.serve.service import Service
from timerewarder.serve.sessions import Session
from timerewarder.serve.sockets import converse
from timerewarder.serve.uploads import check_suffix, label, receive_bytes, receive_file, receive_video


def add_scoring(app: FastAPI, service: Service) -> None:
    refused = refusals(400, 404, 408, 413, 429, 503)

    @app.post("/v1/score", response_model=answers.Score, tags=["score"], responses=refused, openapi_extra=UPLOAD)
    async def score(request: Request, model: ModelName = None, fps: Fps = None) -> Response:
        """Score a video: mp4, mov, webm, mkv, avi, gif, npy or npz, in the form field `video`."""
        batcher = service.batcher(model)
        with service.admission(), service.upload_folder() as folder:
            file, name = await receive_video(request, service.limits, folder)
            check_suffix(name)
            return JSONResponse(await service.scoring(partial(service.score_file, batcher, file, label(name), fps)))

    @app.post("/v1/score/frames", response_model=answers.Score, tags=["score"], responses=refused, openapi_extra=RAW)
    async def score_frames(request: Request, model: ModelName = None) -> Response:
        """Score raw frames: an npy file uint8 (T, H, W, 3) as the body."""
        batcher = service.batcher(model)
        with service.admission(), service.upload_folder() as folder:
            file = folder / "frames"
            await receive_file(request, service.limits, file)
            frames = open_frames(file, service.limits)
            return JSONResponse(await service.scoring(partial(service.score_frames, batcher, frames)))


def add_streams(app: FastAPI, service: Service) -> None:
    sessions, limits = service.sessions, service.limits
    refused = refusals(400, 404, 408, 409, 413, 429, 503)

    async def arrive(request: Request, session: Session, first: bool) -> Arrival:
        with session.turn():
            return await session.arrive(await receive_bytes(request, limits, limits.frame_bytes), first)

    @app.post(
        "/v1/streams",
        status_code=201,
        response_model=answers.StreamOpened,
        tags=["streams"],
        responses=refused,
        openapi_extra=FRAME,
    )
    async def open_stream(request: Request, model: ModelName = None) -> Response:
        """Begin a stream with the first frame of an episode: npy uint8 (H, W, 3), PNG or JPEG."""
        session = sessions.open(service.batcher(model))
        try:
            await arrive(request, session, first=True)
        except BaseException:
            sessions.close(session.id)
            raise
        answer = {"id": session.id, "model": session.model, "expires_in": limits.session_seconds}
        return JSONResponse(answer, 201)

    @app.post(
        "/v1/streams/{id}/reset",
        response_model=answers.StreamReset,
        tags=["streams"],
        responses=refused,
        openapi_extra=FRAME,
    )
    async def reset_stream(request: Request, id: str) -> Response:
        """Begin a new episode with its first frame."""
        arrival = await arrive(request, sessions.get(id), first=True)
        return JSONResponse({"step": 0, "progress": arrival.progress})

    @app.post(
        "/v1/streams/{id}/step",
        response_model=answers.StreamStep,
        tags=["streams"],
        responses=refused,
        openapi_extra=FRAME,
    )
    async def step_stream(request: Request, id: str) -> Response:
        """The next frame: its reward, and the progress so far."""
        arrival = await arrive(request, sessions.get(id), first=False)
        return JSONResponse(arrival._asdict())

    @app.delete("/v1/streams/{id}", status_code=204, tags=["streams"], responses=refusals(404))
    async def close_stream(id: str) -> Response:
        """End a stream."""
        sessions.close(sessions.get(id).id)
        return Response(status_code=204)

    @app.websocket("/v1/stream")
    async def stream(websocket: WebSocket, model: str | None = None) -> None:
        await converse(websocket, service, model)
