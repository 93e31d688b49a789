"""Progress bars: everything that takes more than two seconds shows one, on stderr, so that stdout stays for results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")
console = Console(file=sys.stderr)


def bar() -> Progress:
    """A progress display; use as a context manager. `task.fields["note"]` is shown at the end of the line."""
    return Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items and show how many are done."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar() as progress:
        task = progress.add_task(description, total=total, note="")
        for item in items:
            yield item
            progress.advance(task)
