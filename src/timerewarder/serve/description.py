"""The parts of the API's description that many addresses share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from timerewarder.serve import answers

ModelName = Annotated[str | None, Query(description="Name of the model; may be left out if one is served.")]
Fps = Annotated[float | None, Query(gt=0, le=1000, description="Resample the video to this rate.")]
UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["video"],
                    "properties": {"video": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}
BINARY = {"type": "string", "format": "binary"}
RAW = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": BINARY}}}}
FRAME = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": BINARY} for kind in ("application/octet-stream", "image/png", "image/jpeg")},
    }
}
MEANINGS = {
    400: "Not what it should be.",
    401: "The token is missing or wrong.",
    403: "Another site or host.",
    404: "Not there.",
    408: "The body stopped arriving.",
    409: "Not now.",
    413: "Too large.",
    422: "Cannot be used.",
    429: "Too much at once; Retry-After says when to try again.",
    503: "The server is stopping.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": answers.Error, "description": MEANINGS[status]}
        for status in sorted({401, 403, 422, *statuses})
    }


def file_answer(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"schema": BINARY}}, "description": "The file."}}
