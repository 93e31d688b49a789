"""The command line: one verb, one function call. `timerewarder VERB --help` explains every option with its default."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import tyro

from timerewarder.cli import verbs
from timerewarder.cli.methods import fit, train
from timerewarder.config import nearest
from timerewarder.errors import UserError
from timerewarder.progress import console

VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "demos": verbs.demos,
    "fit": fit,
    "evaluate": verbs.evaluate,
    "score": verbs.score,
    "compare": verbs.compare,
    "features": verbs.features,
    "label": verbs.label,
    "serve": verbs.serve,
    "push": verbs.push,
    "train": train,
    "report": verbs.report,
    "quickstart": verbs.quickstart,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; a mistake of the user is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_: _say(f"warning: {message}", "yellow")
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        _say(f"error: {error}", "red")
        sys.exit(2)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        path = error.filename2 or error.filename  # the second is the target of a rename
        _say(f"error: cannot use {path} ({error.strerror}): choose another path, or check its permissions", "red")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted; run the same command again to go on (`train`: with --resume)", "yellow")
        sys.exit(130)


def _say(text: str, style: str) -> None:
    """One line on stderr, however long."""
    console.print(" ".join(text.split()), style=style, highlight=False, soft_wrap=True, markup=False)


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return
    if arguments[0] == "--version":
        print(f"timerewarder {version('timerewarder')}")
        return
    verb, *rest = arguments
    if verb == "label":
        rest = _with_value(rest, "--ray", "local")
    if verb not in VERBS:
        raise UserError(f"unknown verb {verb!r}{nearest(verb, VERBS)}")
    result = (
        VERBS[verb](rest) if verb in ("fit", "train") else tyro.cli(VERBS[verb], prog=f"timerewarder {verb}", args=rest)
    )
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks
        _show(result, as_json="--json" in rest)


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(jsonlib.dumps(result))
        return
    for name, value in result.items():
        if not isinstance(value, dict | list):
            print(f"{name:<24}{value:.4f}" if isinstance(value, float) else f"{name:<24}{value}")


def _overview() -> str:
    lines = [f"  {verb:<12}{(function.__doc__ or '').splitlines()[0]}" for verb, function in VERBS.items()]
    head = ["Dense rewards from passive videos.", "", "usage: timerewarder VERB ...", ""]
    return "\n".join([*head, *lines, "", "timerewarder VERB --help explains a verb and its options."])


def _with_value(arguments: list[str], flag: str, value: str) -> list[str]:
    """`arguments` with `value` put after a `flag` that stands without one."""
    bare = [
        argument == flag and (position + 1 == len(arguments) or arguments[position + 1].startswith("-"))
        for position, argument in enumerate(arguments)
    ]
    return [part for argument, alone in zip(arguments, bare, strict=True) for part in [argument, value][: 1 + alone]]
