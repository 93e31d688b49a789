"""What a client is told when it is refused: {"error": {"code": ..., "message": ...}}, one sentence with the remedy."""

from __future__ import annotations

import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from timerewarder.errors import UserError

CODES = {404: "not_found", 405: "method_not_allowed"}


class ApiError(Exception):
    """A refusal: an HTTP status, a word for programs, a sentence for people."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, " ".join(message.split())
        self.headers = {} if retry_after is None else {"Retry-After": str(math.ceil(retry_after))}

    @property
    def content(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.content, self.status, self.headers)

    @property
    def close_code(self) -> int:
        """The same as a WebSocket says it."""
        return {413: 1009, 429: 1013, 500: 1011, 503: 1012}.get(self.status, 1008)


def busy(what: str) -> ApiError:
    return ApiError(429, "busy", f"{what}: try again in a moment", retry_after=1)


def bad_request(error: UserError) -> ApiError:
    """A mistake that the package itself found."""
    return ApiError(422, "not_usable", str(error))


def explain_errors(app: FastAPI) -> None:
    """Give every refusal of the application the one form."""

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        request.scope["refused"] = error.code  # the metrics count it
        return error.response

    @app.exception_handler(UserError)
    async def unusable(request: Request, error: UserError) -> JSONResponse:
        return await refused(request, bad_request(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        message = f"{place} cannot be used ({first['msg']}): see /docs"
        return await refused(request, ApiError(422, "invalid", message))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        code = CODES.get(error.status_code, "refused")
        message = {
            404: "there is nothing at this address: see /docs",
            405: f"this address does not answer {request.method[:16]}: see /docs",
        }.get(error.status_code, str(error.detail))
        response = await refused(request, ApiError(error.status_code, code, message))
        response.headers.update(error.headers or {})  # which methods are allowed
        return response

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        message = "the server failed at this; its log says why"
        return await refused(request, ApiError(500, "internal", message))
