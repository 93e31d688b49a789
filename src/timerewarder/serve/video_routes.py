"""Addresses of the page's videos and of what can be downloaded of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse

from timerewarder.rewards.reward import FrameReward
from timerewarder.serve import answers, exports
from timerewarder.serve.description import UPLOAD, Fps, ModelName, file_answer, refusals
from timerewarder.serve.errors import ApiError
from timerewarder.serve.scoring import has_distances
from timerewarder.serve.service import Service
from timerewarder.serve.uploads import check_suffix, label, receive_video
from timerewarder.serve.videos import StoredVideo

FOREVER = {"Cache-Control": "private, max-age=86400, immutable"}  # an id never stands for another video


def add_videos(app: FastAPI, service: Service) -> None:
    videos = service.videos

    @app.post(
        "/v1/videos",
        status_code=202,
        response_model=answers.VideoAccepted,
        tags=["videos"],
        responses=refusals(400, 408, 413, 429, 503),
        openapi_extra=UPLOAD,
    )
    async def upload(request: Request, name: str = "", fps: Fps = None) -> Response:
        """Upload a video, to be scored by all models in the background."""
        check_suffix(name)
        video = videos.reserve(label(name))
        try:
            file, given = await receive_video(request, service.limits, video.folder)
            check_suffix(name or given)
            videos.start(video, file, label(name or given), fps)
        except BaseException:
            videos.delete(video.id)
            raise
        return JSONResponse({"id": video.id, "name": video.name, "state": "decoding"}, 202)

    @app.get("/v1/videos", response_model=answers.VideoList, tags=["videos"], responses=refusals())
    async def list_videos() -> Response:
        """All videos, the oldest first, without their scores."""
        return JSONResponse({"videos": [video.summary for video in videos.all()]})

    @app.get("/v1/videos/{id}", response_model=answers.VideoDetail, tags=["videos"], responses=refusals(404))
    async def show_video(id: str) -> Response:
        """A video, how far the work on it is, and its scores."""
        video = videos.get(id)
        results = {
            model: {
                **scores.content,
                "is_value": service.batchers[model].reward.is_value,
                "has_distances": has_distances(service.batchers[model].reward),
            }
            for model, scores in list(video.scores.items())
        }
        return JSONResponse({**video.summary, "results": results})

    @app.delete("/v1/videos/{id}", status_code=204, tags=["videos"], responses=refusals(404))
    async def delete_video(id: str) -> Response:
        """Forget a video."""
        videos.delete(videos.get(id).id)
        return Response(status_code=204)

    @app.get(
        "/v1/videos/{id}/distances", response_model=answers.Distances, tags=["videos"],
        responses=refusals(404, 409, 429),
    )  # fmt: skip
    async def distances(id: str, model: ModelName = None) -> Response:
        """The matrix of predicted distances between at most 200 frames."""
        work = partial(videos.distances, id, service.batcher(model).name)
        with service.admission():
            return JSONResponse(await service.drawing(work), headers=FOREVER)


def add_exports(app: FastAPI, service: Service) -> None:
    videos = service.videos
    refused = refusals(404, 409, 429)

    def rewards(models: list[str] | None) -> dict[str, FrameReward]:
        named = [service.batcher(model) for model in dict.fromkeys(models or service.batchers)]
        return {batcher.name: batcher.reward for batcher in named}

    async def export(id: str, name: str, write: Callable[[StoredVideo, Path], None]) -> tuple[StoredVideo, Path]:
        with service.admission():
            return await service.drawing(partial(videos.export, id, name, write))

    def index(model: str) -> int:
        return list(service.batchers).index(model)

    @app.get("/v1/videos/{id}/preview.mp4", tags=["videos"], response_class=FileResponse, responses={
        **file_answer("video/mp4"), 206: {"description": "A part of it."}, 416: {"description": "No such part."},
        **refused, 400: {"description": "A Range header that cannot be read."},
    })  # fmt: skip
    async def preview(id: str) -> Response:
        """The video as H.264, one picture for every scored frame: frame i is shown at (i + 0.5) / fps."""
        video = videos.finished(id)
        if not video.preview.exists():
            raise ApiError(404, "no_video", "the video was deleted meanwhile")
        return FileResponse(video.preview, media_type="video/mp4", headers=FOREVER)

    @app.get(
        "/v1/videos/{id}/scores.csv", tags=["videos"], response_class=FileResponse,
        responses={**file_answer("text/csv"), **refused},
    )  # fmt: skip
    async def table(id: str, model: ModelName = None) -> Response:
        """frame, time, reward, progress."""
        name = service.batcher(model).name
        write = partial(exports.write_csv, model=name, reward=service.batchers[name].reward)
        video, file = await export(id, f"scores-{index(name)}.csv", write)
        return FileResponse(file, media_type="text/csv", filename=exports.file_name(video, name, "csv"))

    @app.get(
        "/v1/videos/{id}/plot.png", tags=["videos"], response_class=FileResponse,
        responses={**file_answer("image/png"), **refused},
    )  # fmt: skip
    async def plot(
        id: str, model: Annotated[list[str] | None, Query(description="Names of models; all by default.")] = None
    ) -> Response:
        """The curves as a picture; several models are drawn over each other."""
        shown = rewards(model)
        stem = "-".join(str(index(name)) for name in shown)
        write = partial(exports.write_plot, rewards=shown)
        video, file = await export(id, f"plot-{stem}.png", write)
        names = next(iter(shown)) if len(shown) == 1 else "models"
        return FileResponse(file, media_type="image/png", filename=exports.file_name(video, names, "png"))

    @app.get(
        "/v1/videos/{id}/overlay.mp4", tags=["videos"], response_class=FileResponse,
        responses={**file_answer("video/mp4"), **refused},
    )  # fmt: skip
    async def overlay(id: str, model: ModelName = None) -> Response:
        """The video with its curve running beside it."""
        name = service.batcher(model).name
        write = partial(exports.write_overlay_video, model=name, reward=service.batchers[name].reward)
        video, file = await export(id, f"overlay-{index(name)}.mp4", write)
        return FileResponse(file, media_type="video/mp4", filename=exports.file_name(video, name, "mp4"))
