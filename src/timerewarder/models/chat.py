"""Questions to a model behind an endpoint that speaks the OpenAI chat API (extra `gvl`).

- A usable answer is kept in a file named by the hash of address, model and whole request: nothing is asked twice.
- The calls of a process are counted and limited. The `openai` package repeats what fails in passing, with back-off.
- An answer that `read` refuses is asked for again, with the reason; at last it is an error, never a guess.
- The key is read from the environment for each call. It is not kept, and is cut out of what an endpoint says.
- A model's folder may come from anywhere, so its address alone is not trusted with frames and a key: it must have been
  given to `fit` on this machine, or be the one in OPENAI_BASE_URL.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import urlsplit

from timerewarder.data.cache import cache_folder
from timerewarder.errors import UserError
from timerewarder.files import write_json

T = TypeVar("T")
Message = dict[str, Any]

OPENAI = "https://api.openai.com/v1"
ADDRESS = "OPENAI_BASE_URL"  # the variable that the `openai` package reads too
LONGEST = 300  # characters of an answer or of an endpoint's words in a message


class BadAnswer(Exception):
    """What is wrong with an answer, in words for the model and for the user."""


class Reply(NamedTuple):
    """What came back, why it ended there, and what it cost in tokens."""

    text: str
    ended: str
    usage: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Chat:
    """One model at one endpoint."""

    model: str
    base_url: str | None  # None: that of the environment, or OpenAI's own
    key_variable: str
    cache: Path  # folder
    timeout: float  # seconds
    retries: int
    attempts: int
    max_calls: int
    temperature: float | None = None
    calls: ClassVar[int] = 0  # made by this process

    def __post_init__(self) -> None:
        if self.base_url is not None:
            check_address(self.base_url, "--base-url")
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.key_variable):  # not repeated: it may be the key itself
            raise UserError(
                "--key-variable is not the name of an environment variable (capitals, digits, _): "
                "give the name, for instance OPENAI_API_KEY, and put the key into that variable"
            )
        for name, least in {"retries": 0, "attempts": 1, "max_calls": 0}.items():
            if getattr(self, name) < least:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small: give at least {least}")
        if not 0 < self.timeout < math.inf:
            raise UserError(f"--timeout {self.timeout} is not a time: give a positive number of seconds")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise UserError(f"--temperature {self.temperature} is out of range: give 0 to 2, or leave it to the model")

    @property
    def address(self) -> str:
        """Where questions go."""
        given = self.base_url or os.environ.get(ADDRESS)
        if not given:
            return OPENAI
        check_address(given, "--base-url" if self.base_url else ADDRESS)
        return given.rstrip("/")

    def ask(self, messages: list[Message], read: Callable[[str], T]) -> T:
        """What `read` makes of the answer, be it kept or new; it raises BadAnswer for one that cannot be used."""
        request: dict[str, Any] = {"model": self.model, "messages": messages}
        if self.temperature is not None:
            request["temperature"] = self.temperature
        address = self.address
        file = self.cache / f"{hashlib.sha256(json.dumps([address, request]).encode()).hexdigest()}.json"
        kept = _kept(file)
        if kept is not None:
            with contextlib.suppress(BadAnswer):  # another version kept it
                return read(kept)
        check_named(address)
        self._make_cache()
        return self._converse(address, request, read, file)

    def _make_cache(self) -> None:
        """An answer that is paid for must have a place."""
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.cache} cannot keep answers ({error.strerror}): choose another --cache") from error

    def _converse(self, address: str, request: dict[str, Any], read: Callable[[str], T], file: Path) -> T:
        """Ask until an answer can be used, at most `attempts` times."""
        messages, wrong, reply = request["messages"], "", Reply("", "", {})
        for _ in range(self.attempts):
            reply = self._call(address, {**request, "messages": messages})
            try:
                value = read(reply.text)
            except BadAnswer as error:
                wrong = f"{error}, and the answer was cut off" if reply.ended == "length" else str(error)
                messages = [*request["messages"], *_complaint(reply.text, wrong)]
            else:
                kept = {"address": address, "model": self.model, "answer": reply.text, "usage": reply.usage}
                write_json(file, kept)
                return value
        words = f"the last begins {_short(reply.text)!r}" if reply.text else "the last is empty"
        remedy = "allow longer answers at the endpoint, or give" if reply.ended == "length" else "take another --model,"
        raise UserError(
            f"{self.model} at {address} gave no usable answer in {self.attempts} attempts: {wrong} ({words}): "
            f"{remedy} fewer --frames, or more --attempts"
        )

    def _call(self, address: str, request: dict[str, Any]) -> Reply:
        """One paid call; what fails in passing is repeated by the package."""
        if Chat.calls >= self.max_calls:
            raise UserError(
                f"{Chat.calls} calls were made in this run, and --max-calls is {self.max_calls}: run again to go on, "
                "since answers are kept, or fit again with a larger --max-calls and --overwrite, which asks nothing"
            )
        openai = _openai()
        key = self._key(address)
        Chat.calls += 1
        try:
            with openai.OpenAI(
                api_key=key or "none", base_url=address, timeout=self.timeout, max_retries=self.retries
            ) as client:
                completion = client.chat.completions.create(**request)
        except (openai.OpenAIError, ValueError) as error:  # ValueError: what came back is not JSON
            # Not chained: an endpoint's own words, which may repeat the key, would be printed as well.
            raise UserError(self._explained(openai, error, address, key)) from None
        return _reply(completion, address)

    def _key(self, address: str) -> str:
        """The key, or nothing for an endpoint that needs none."""
        key = os.environ.get(self.key_variable, "").strip()
        if not key and address == OPENAI:
            raise UserError(
                f"there is no key for {OPENAI}: put it into the environment variable {self.key_variable}, "
                "or name another endpoint with --base-url"
            )
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"the environment variable {self.key_variable} holds no key: it has unprintable characters")
        return key

    def _explained(self, openai: Any, error: Exception, address: str, key: str) -> str:
        """What went wrong, in one line with the remedy and without the key."""
        said = _short(_words(error).replace(key, "***") if key else _words(error))
        status = getattr(error, "status_code", None)
        if isinstance(error, openai.APITimeoutError):
            return f"{address} did not answer within {self.timeout:g} s: raise --timeout, or give fewer --frames"
        if isinstance(error, openai.APIConnectionError):
            return f"{address} cannot be reached ({said}): start the server there, or check --base-url"
        if status in (401, 403):
            key_state = "refuses the key in" if key else "wants a key, and there is none in"
            return (
                f"{address} {key_state} the environment variable {self.key_variable} ({status}: {said}): "
                "put a valid key there, or name another variable with --key-variable"
            )
        if status == 404:
            return f"{address} has no model {self.model!r} (404: {said}): check --model, and --base-url, often .../v1"
        if status == 429:
            return f"{address} is at its limit (429: {said}) after {self.retries} retries: wait, or check the account"
        if status is not None and status >= 500:
            return f"{address} fails ({status}: {said}) after {self.retries} retries: see the server's log"
        if status is not None:
            return (
                f"{address} refuses the question ({status}: {said}): if it is too large, give fewer --frames or "
                "--examples or a smaller --image-size, or let the server take more images"
            )
        return f"{address} does not answer as a chat endpoint ({said}): check --base-url, often .../v1"


def check_address(address: str, source: str) -> None:
    """A user's mistake, or a secret in an address, which would be saved with the model."""
    try:
        parts = urlsplit(address)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        plain = False
    if not plain or parts.username is not None or parts.query or parts.fragment:  # not repeated: it may hold a key
        raise UserError(
            f"{source} is not the plain address of an endpoint: give one like http://localhost:8000/v1, "
            "and a key in the environment"
        )


def name_address(address: str) -> None:
    """Note that the user of this machine named an endpoint, so that models may ask it."""
    write_json(_named(address), {"address": address.rstrip("/")})


def check_named(address: str) -> None:
    """Frames and keys go to no endpoint that only a model's file names."""
    if address in (OPENAI, os.environ.get(ADDRESS, "").rstrip("/")) or _named(address).exists():
        return
    raise UserError(
        f"the model asks {address}, which was never named on this machine: if frames and your key may go there, "
        f"export {ADDRESS}={address}"
    )


def _named(address: str) -> Path:
    return cache_folder() / "endpoints" / f"{hashlib.sha256(address.rstrip('/').encode()).hexdigest()[:16]}.json"


def _kept(file: Path) -> str | None:
    """The answer in a file of the cache, if there is one."""
    try:
        answer = json.loads(file.read_text(encoding="utf-8"))["answer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return answer if isinstance(answer, str) else None


def _openai() -> Any:
    try:
        import openai
    except ImportError:
        raise UserError("asking a model needs the package openai: pip install 'timerewarder[gvl]'") from None
    return openai


def _reply(completion: Any, address: str) -> Reply:
    """The answer in what the package returns, which is plain text if the address is that of a web page."""
    choices = getattr(completion, "choices", None)
    if not choices:
        raise UserError(f"{address} does not answer as a chat endpoint: check --base-url, which often ends in /v1")
    message, usage = choices[0].message, completion.usage
    tokens = {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens} if usage is not None else {}
    text = message.content or getattr(message, "refusal", None) or ""
    return Reply(text, choices[0].finish_reason or "", tokens)


def _complaint(text: str, wrong: str) -> list[Message]:
    """The conversation after an answer that cannot be used."""
    given = [{"role": "assistant", "content": text}] if text.strip() else []
    again = f"That answer cannot be used: {wrong}. Answer the question again, completely and in the form asked for."
    return [*given, {"role": "user", "content": again}]


def _words(error: Exception) -> str:
    """What an endpoint or the network said."""
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return str(error.__cause__ or error)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
