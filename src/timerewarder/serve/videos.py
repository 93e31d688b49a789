"""The page's videos: uploaded, decoded and scored in the background by every model, kept in a temporary folder."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from timerewarder.errors import UserError
from timerewarder.serve.batching import Batcher, log
from timerewarder.serve.decoding import Decoders
from timerewarder.serve.decoding_process import preview_fps
from timerewarder.serve.errors import ApiError, busy
from timerewarder.serve.limits import Limits
from timerewarder.serve.scoring import Scores, compare, encode, has_distances, matrix

State = Literal["waiting", "decoding", "scoring", "done", "failed"]


class _Deleted(Exception):
    """The video was deleted while it was worked on."""


@dataclass(eq=False)
class StoredVideo:
    """One video and what is known of it. `folder` holds its preview, features and exports."""

    id: str
    name: str
    folder: Path
    state: State = "waiting"
    done: int = 0
    total: int | None = None
    error: dict[str, str] | None = None
    fps: float | None = None
    frames: int | None = None
    height: int | None = None
    width: int | None = None
    scores: dict[str, Scores] = field(default_factory=dict)
    deleted: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)  # one export of it at a time

    @property
    def preview(self) -> Path:
        return self.folder / "preview.mp4"

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def summary(self) -> dict[str, Any]:
        names = ("id", "name", "state", "done", "total", "error", "fps", "frames", "width", "height")
        return {name: getattr(self, name) for name in names}


class Videos:
    """All videos that the page knows, at most `limits.videos`."""

    def __init__(
        self, folder: Path, batchers: Mapping[str, Batcher], limits: Limits, decoders: Decoders, pool: Executor
    ) -> None:
        self.folder, self.batchers, self.limits, self.decoders, self._pool = folder, batchers, limits, decoders, pool
        self._videos: dict[str, StoredVideo] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._videos)

    def all(self) -> list[StoredVideo]:
        return list(self._videos.values())

    def get(self, id: str) -> StoredVideo:
        if id not in self._videos:
            raise ApiError(
                404, "no_video", "there is no such video: it was deleted, or had to make room for newer ones"
            )
        return self._videos[id]

    def finished(self, id: str) -> StoredVideo:
        """A video with its scores."""
        video = self.get(id)
        if video.state == "failed":
            raise ApiError(409, "failed", f"{video.name} could not be scored: delete it, or upload it again")
        if video.state != "done":
            raise ApiError(409, "not_done", f"{video.name} is still being scored: ask again in a moment")
        return video

    def scores(self, id: str, model: str) -> tuple[StoredVideo, Scores]:
        video = self.finished(id)
        return video, video.scores[model]

    def reserve(self, name: str) -> StoredVideo:
        """Room for a new video: its folder, empty. The oldest finished ones go."""
        over = [video for video in self._videos.values() if video.is_over]
        for video in over[: max(0, len(self._videos) + 1 - self.limits.videos)]:
            self.delete(video.id)
        if len(self._videos) >= self.limits.videos or self._waiting() >= self.limits.queue:
            raise busy(f"{len(self._videos)} videos are still being scored")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        video = StoredVideo(secrets.token_urlsafe(9), name, folder)
        self._videos[video.id] = video
        return video

    def start(self, video: StoredVideo, file: Path, name: str, fps: float | None) -> None:
        """Decode and score it in the background."""
        video.name = name
        self._pool.submit(self._process, video, file, fps)

    def delete(self, id: str) -> None:
        video = self._videos.pop(id, None)
        if video is not None:
            video.deleted = True  # work on it ends at the next chunk and removes what it has written since
            shutil.rmtree(video.folder, ignore_errors=True)

    def distances(self, id: str, model: str) -> dict[str, Any]:
        """The distance matrix; takes a while for long videos."""
        reward = self.batchers[model].reward
        if not has_distances(reward):
            raise ApiError(404, "no_distances", f"{model} ({reward.method}) knows no distances between frames")
        video = self.finished(id)
        with video.lock, _present(video):
            return matrix(reward, torch.from_numpy(np.load(_features_file(video, self.batchers, model))))

    def export(self, id: str, name: str, write: Callable[[StoredVideo, Path], None]) -> tuple[StoredVideo, Path]:
        """The file `name` of a video, written once."""
        video = self.finished(id)
        file = video.folder / name
        with video.lock, _present(video):
            if not file.exists():
                write(video, file)
        return video, file

    def _waiting(self) -> int:
        return sum(video.state == "waiting" for video in self._videos.values())

    def _process(self, video: StoredVideo, file: Path, fps: float | None) -> None:
        try:
            self._score(video, file, fps)
        except _Deleted:
            pass
        except ApiError as error:
            video.state, video.error = "failed", error.content["error"]
        except UserError as error:
            video.state, video.error = "failed", {"code": "not_usable", "message": str(error)}
        except Exception:
            if not video.deleted:
                log.exception("a video could not be scored")
                message = "the server failed at this video; its log says why"
                video.state, video.error = "failed", {"code": "internal", "message": message}
        finally:
            for left in (file, *video.folder.glob("upload*")):
                left.unlink(missing_ok=True)
            if video.deleted:
                shutil.rmtree(video.folder, ignore_errors=True)

    def _score(self, video: StoredVideo, file: Path, fps: float | None) -> None:
        def done(count: int) -> None:
            if video.deleted:
                raise _Deleted
            video.done = count

        done(0)
        video.state = "decoding"
        with self.decoders.open(file, video.name, fps, video.preview) as decoder:
            shape = decoder.shape
            video.height, video.width, video.total = shape.height, shape.width, shape.total
            features = encode(decoder.chunks(), self.batchers, done)
        video.fps, video.frames = preview_fps(shape.fps), video.done
        video.state, video.done, video.total = "scoring", 0, len(self.batchers) * video.done
        for name, its in features.items():
            scores = compare(self.batchers[name].reward, its)
            np.save(_features_file(video, self.batchers, name), its.cpu().numpy())
            done(video.done + video.frames)
            video.scores[name] = scores
        video.done = video.total = video.frames
        video.state = "done"


def _features_file(video: StoredVideo, batchers: Mapping[str, Batcher], model: str) -> Path:
    return video.folder / f"features-{list(batchers).index(model)}.npy"


class _present:
    """A video that is deleted meanwhile is not found, whatever else goes wrong because of it."""

    def __init__(self, video: StoredVideo) -> None:
        self.video = video

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None and self.video.deleted:
            raise ApiError(404, "no_video", "the video was deleted meanwhile") from None
