"""Bodies on their way to disk: the size limit holds while they arrive, and half an upload leaves nothing behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from timerewarder.serve.decoding_process import KINDS, SUFFIXES
from timerewarder.serve.errors import ApiError
from timerewarder.serve.limits import Limits

FIELD = b"video"
LONGEST_NAME = 120  # characters
MULTIPART_OVERHEAD = 2**16  # bytes of a form beside the file


async def receive_bytes(request: Request, limits: Limits, most: int) -> bytes:
    """A small body in memory."""
    return b"".join([chunk async for chunk in _limited(request, limits, most)])


async def receive_file(request: Request, limits: Limits, file: Path) -> None:
    """The body as it is, into `file`."""
    with _whole(file) as out:
        async for chunk in _limited(request, limits, limits.upload_bytes):
            out.write(chunk)


async def receive_video(request: Request, limits: Limits, folder: Path) -> tuple[Path, str]:
    """The field `video` of a form into a file in `folder`; returns the file and the name that the client gave."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise ApiError(422, "no_video", 'send the video as multipart/form-data, field "video": curl -F video=@FILE.mp4')
    file = folder / "upload"
    with _whole(file) as out:
        form = _Form(out)
        try:
            parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
            async for chunk in _limited(request, limits, limits.upload_bytes, MULTIPART_OVERHEAD):
                parser.write(chunk)
        except FormParserError:
            raise ApiError(400, "bad_form", "the form is damaged: send it with curl -F or a library") from None
        if not form.ended:
            raise ApiError(400, "half_upload", "the upload is not whole: send it again")
        if not form.found:
            raise ApiError(422, "no_video", 'the form has no file in its field "video": curl -F video=@FILE.mp4')
        if out.tell() == 0:
            raise ApiError(400, "empty", "the video is empty: send a file with content")
        if out.tell() > limits.upload_bytes:
            raise too_large(limits.upload_bytes)
    return file, form.name


def label(name: str) -> str:
    """A client's name for a video as one that is safe to show: the last part of the path, without odd characters."""
    last = re.split(r"[/\\]", name)[-1]
    plain = "".join(character for character in last if character.isprintable()).strip().strip(".")
    return plain[:LONGEST_NAME] or "video"


def check_suffix(name: str) -> None:
    """Refuse a kind of file that is no video by its name; a name without a kind is looked into."""
    suffix = Path(label(name)).suffix.lower()
    if suffix and suffix not in SUFFIXES and re.fullmatch(r"\.[a-z]\w{1,4}", suffix):
        raise ApiError(400, "not_a_video", f"{suffix} is not a kind of video: send one of {KINDS}")


def too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"the upload is larger than {most / 1e6:g} MB: send a smaller or shorter one")


class _whole:
    """A file that is there only if everything went well."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> IO[bytes]:
        self.out = self.file.open("xb")
        return self.out

    def __exit__(self, kind: object, *_: object) -> None:
        self.out.close()
        if kind is not None:
            self.file.unlink(missing_ok=True)


async def _limited(request: Request, limits: Limits, most: int, around: int = 0) -> AsyncIterator[bytes]:
    """The body, chunk by chunk, until it is slow, broken off or longer than `most` bytes and what is `around` them."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most + around:
        raise too_large(most)
    size, chunks = 0, request.stream().__aiter__()
    while True:
        try:
            chunk = await asyncio.wait_for(chunks.__anext__(), limits.upload_seconds)
        except StopAsyncIteration:
            return
        except (TimeoutError, asyncio.TimeoutError):
            raise ApiError(408, "too_slow", "the body stopped arriving: send it again") from None
        except ClientDisconnect:
            raise ApiError(400, "half_upload", "the upload was broken off: send it again") from None
        size += len(chunk)
        if size > most + around:
            raise too_large(most)
        yield chunk


class _Form:
    """Follows the parser through a form and writes the first file in the field `video`."""

    def __init__(self, out: IO[bytes]) -> None:
        self.out = out
        self.name = ""
        self.found = self.ended = False
        self._wanted = False
        self._header, self._value, self._headers = b"", b"", dict[bytes, bytes]()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_header_field": self._field,
            "on_header_value": self._text,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._wanted, self._headers = False, {}

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _text(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if options.get(b"name") == FIELD and not self.found:
            self._wanted = self.found = True
            self.name = options.get(b"filename", b"").decode("utf-8", "replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._wanted:
            self.out.write(data[start:end])

    def _end(self) -> None:
        self.ended = True
