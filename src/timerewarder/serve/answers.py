"""The form of every answer, for the OpenAPI description."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ErrorDetail(Answer):
    code: str
    """A word for programs."""
    message: str
    """A sentence for people, with the remedy."""


class Error(Answer):
    error: ErrorDetail


class Health(Answer):
    status: Literal["ok"]
    models: list[str]


class Model(Answer):
    name: str
    method: str
    encoder: str
    image_size: int
    """Side in pixels of the square picture that the encoder sees."""
    resize: Literal["squash", "crop"]
    """How frames of another shape become square."""
    streams: bool
    """Whether the model rewards frames as they come."""
    is_value: bool
    """Whether the running sum of the rewards is progress."""
    has_distances: bool


class Models(Answer):
    models: list[Model]


class LimitsAnswer(Answer):
    upload_megabytes: float
    upload_seconds: float
    frames: int
    pixels: int
    side: int
    decode_seconds: float
    decode_megabytes: int
    sessions: int
    session_seconds: float
    queue: int
    videos: int
    batch: int
    scores: int


class ModelScores(Answer):
    rewards: list[float]
    """For arriving at each frame; the first is 0."""
    progress: list[float]
    """Running sum of the rewards, in shares of what a whole demonstration sums to (if the model's is_value)."""
    final_progress: float


class Score(ModelScores):
    model: str
    frames: int
    fps: float | None
    """Frames per second; null for raw frames, which have no rate."""


class StreamOpened(Answer):
    id: str
    model: str
    expires_in: float
    """Seconds without a frame after which it is closed."""


class StreamReset(Answer):
    step: Literal[0]
    progress: float


class StreamStep(Answer):
    step: int
    reward: float
    progress: float


State = Literal["waiting", "decoding", "scoring", "done", "failed"]


class VideoAccepted(Answer):
    id: str
    name: str
    state: State


class VideoSummary(VideoAccepted):
    done: int
    """Frames decoded and encoded so far, then frames scored."""
    total: int | None
    error: ErrorDetail | None
    fps: float | None
    frames: int | None
    width: int | None
    height: int | None


class VideoResult(ModelScores):
    is_value: bool
    has_distances: bool


class VideoDetail(VideoSummary):
    results: dict[str, VideoResult]


class VideoList(Answer):
    videos: list[VideoSummary]


class Distances(Answer):
    indices: list[int]
    """The frames that are compared."""
    values: list[list[float]]
    """[u][v]: predicted signed distance from frame indices[u] to indices[v], as a share of the task."""
