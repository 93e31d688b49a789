"""Which videos lie under the paths that a user gives: any mix of files and folders.

Folders are searched to the bottom, in natural order. Hidden files are passed over, and so is whatever in a folder is no
video (json, csv, ...). A folder that holds pictures is one video, unless video files lie beside them: then the pictures
are thumbnails. A video that is reached twice is kept once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from timerewarder.data import arrays, containers, images
from timerewarder.data.source import BadVideo, Kind, Source
from timerewarder.errors import UserError

Sources = str | Path | Sequence[str | Path]
TYPES = (
    f"{', '.join(suffix[1:] for suffix in (*containers.SUFFIXES, *arrays.SUFFIXES))} files, "
    f"or folders of {'/'.join(suffix[1:] for suffix in images.SUFFIXES)} images"
)


def find_sources(sources: Sources) -> list[Source]:
    """All videos under the given paths; names are unique and as short as that allows."""
    given = [Path(s).expanduser() for s in ([sources] if isinstance(sources, str | Path) else sources)]
    if not given:
        raise UserError(f"no videos given: name {TYPES}")
    found: dict[tuple[str, str | None], tuple[Source, Path]] = {}
    for root in given:
        here = list(_search(root))
        if not here:
            raise UserError(f"{root} holds no videos: put {TYPES} into it")
        for source in here:
            found.setdefault((os.path.realpath(source.path), source.member), (source, root))
    return _named(list(found.values()))


def kind_of(path: Path) -> Kind | Literal["folder"] | None:
    """What lies at a path: a kind of video, a folder to search, or nothing of interest."""
    if path.is_dir():
        files = [f for f in path.iterdir() if not f.name.startswith(".") and f.is_file()]
        if any(f.suffix.lower() in containers.SUFFIXES for f in files):
            return "folder"
        return "images" if any(f.suffix.lower() in images.SUFFIXES for f in files) else "folder"
    if path.suffix.lower() in containers.SUFFIXES:
        return "container"
    return "array" if path.suffix.lower() in arrays.SUFFIXES else None


def _search(root: Path) -> Iterator[Source]:
    if not root.exists():
        raise UserError(f"{root} does not exist: check the path")
    try:
        if root.is_dir():
            yield from _in_folder(root, seen=set())
            return
        kind = kind_of(root)
    except OSError as error:
        raise UserError(f"{error.filename or root} cannot be read ({error.strerror}): check its permissions") from error
    if kind == "container":
        yield Source("", root, kind)
    elif kind == "array":
        yield from _in_array_file(root) or [Source("", root, kind)]  # a file that was asked for must explain itself
    else:
        raise UserError(f"{root} is not a video: give {TYPES}")


def _in_folder(folder: Path, seen: set[str]) -> Iterator[Source]:
    """`seen` ends the walk through links that lead in a circle."""
    if os.path.realpath(folder) in seen:
        return
    seen.add(os.path.realpath(folder))
    if kind_of(folder) == "images":
        yield Source("", folder, "images")
    for path in sorted(folder.iterdir(), key=images.natural_order):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _in_folder(path, seen)
        elif kind_of(path) == "container":
            yield Source("", path, "container")
        elif kind_of(path) == "array":
            yield from _in_array_file(path)


def _in_array_file(path: Path) -> list[Source]:
    """The arrays that look like videos; a damaged file is one, so that its reader can say what is wrong."""
    try:
        members = [key for key, header in arrays.headers(path).items() if len(header.shape) == 4]
    except BadVideo:
        members = [None]
    return [Source("", path, "array", member) for member in members]


def _named(found: list[tuple[Source, Path]]) -> list[Source]:
    """Give each video the shortest of its names that no other video has."""
    videos_in = Counter(source.path for source, _ in found)
    names = [_names(source, root, alone=videos_in[source.path] == 1) for source, root in found]
    while True:
        taken = Counter(choices[0] for choices in names)
        clashing = [choices for choices in names if taken[choices[0]] > 1 and len(choices) > 1]
        if not clashing:
            return [replace(source, name=choices[0]) for (source, _), choices in zip(found, names, strict=True)]
        for choices in clashing:
            choices.pop(0)


def _names(source: Source, root: Path, alone: bool) -> list[str]:
    """Names for a video, from the shortest to the full path: without and with its suffix, with ever more folders."""
    path, root = Path(os.path.abspath(source.path)), Path(os.path.abspath(root))
    base = root.parent if path == root else root
    stem = path if source.kind == "images" else path.with_suffix("")
    member = [] if alone or source.member is None else [source.member]
    choices = [file.relative_to(folder) for folder in (base, *base.parents) for file in (stem, path)]
    return ["/".join([choice.as_posix(), *member]) for choice in (*choices, path)]
