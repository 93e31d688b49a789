"""Which videos lie under the paths that a user gives: any mix of files and folders.

Folders are searched to the bottom, in natural order. Hidden files are passed over, and so is whatever in a folder is no
video (json, csv, ...). A folder that holds pictures is one video, unless video files lie beside them: then the pictures
are thumbnails. A LeRobot dataset gives its episodes, as one camera shows them: a folder, or `user/name` on the Hub if
there is no such path. A video that is reached twice is kept once.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from timerewarder.config import nearest
from timerewarder.data import arrays, containers, hub, images, lerobot_meta
from timerewarder.data.source import AS_THEY_ARE, BadVideo, Kind, Opening, Source
from timerewarder.errors import UserError

Sources = str | Path | Sequence[str | Path]
TYPES = (
    f"{', '.join(suffix[1:] for suffix in (*containers.SUFFIXES, *arrays.SUFFIXES))} files, "
    f"folders of {'/'.join(suffix[1:] for suffix in images.SUFFIXES)} images, or LeRobot datasets"
)
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
LISTED = 20  # tasks in a message; some datasets have hundreds


def find_sources(sources: Sources, opening: Opening = AS_THEY_ARE) -> list[Source]:
    """All videos under the given paths; names are unique and as short as that allows."""
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    if not given:
        raise UserError(f"no videos given: name {TYPES}")
    found: dict[tuple[str, str | None], tuple[Source, Path]] = {}
    real = lru_cache(os.path.realpath)  # many episodes lie in one file
    for place in given:
        root = Path(place).expanduser()
        here = _on_hub(str(place), opening) if is_hub_id(place) else list(_search(root, opening))
        if not here:
            raise UserError(f"{root} holds no videos: put {TYPES} into it")
        for source in here:
            found.setdefault((real(source.path), source.member), (source, root))
    return _named(_wanted(list(found.values()), opening))


def is_hub_id(place: str | Path) -> bool:
    """Whether this can only be the id of a dataset on the Hub: no path here, and not like the name of a video file."""
    if not isinstance(place, str) or HUB_ID.fullmatch(place) is None or Path(place).exists():
        return False
    return Path(place).suffix.lower() not in (*containers.SUFFIXES, *arrays.SUFFIXES, *images.SUFFIXES)


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


def _on_hub(repo_id: str, opening: Opening) -> list[Source]:
    """The episodes of a dataset on the Hub. Of its large files, only those with wanted episodes are downloaded."""
    folder = hub.fetch(repo_id, ["meta/"])
    if not lerobot_meta.is_dataset(folder):
        raise UserError(f"{repo_id} on the Hub is not a LeRobot dataset: it has no {lerobot_meta.INFO.as_posix()}")
    episodes = lerobot_meta.episodes(folder, opening.camera, called=Path(repo_id))
    wanted = [source for source in episodes if _has_task(source, opening.task)]
    files = dict.fromkeys(source.path.relative_to(folder).as_posix() for source in wanted)
    if files:
        hub.fetch(repo_id, list(files), revision=folder.name)
    return episodes


def _wanted(found: list[tuple[Source, Path]], opening: Opening) -> list[tuple[Source, Path]]:
    """All but the episodes of other tasks."""
    if opening.camera is None and opening.task is None:
        return found
    episodes = [source for source, _ in found if source.cut]
    if not episodes:
        roots = ", ".join(dict.fromkeys(str(root) for _, root in found))
        warnings.warn(f"--camera and --task are not used: there is no LeRobot dataset in {roots}", stacklevel=3)
    elif not any(_has_task(source, opening.task) for source in episodes):
        raise UserError(f"no episode has the task {opening.task!r}{_known_tasks(str(opening.task), episodes)}")
    return [(source, root) for source, root in found if source.cut is None or _has_task(source, opening.task)]


def _known_tasks(text: str, episodes: Sequence[Source]) -> str:
    """The tasks that `text` may have meant, or some of those that there are."""
    known = sorted({task for source in episodes if source.cut for task in source.cut.tasks})
    if len(known) <= LISTED or difflib.get_close_matches(text, known):
        return nearest(text, known)
    return f"{nearest(text, known[:LISTED])}, and {len(known) - LISTED} more"


def _has_task(source: Source, task: str | None) -> bool:
    """Whether it is an episode of this task, by the whole text: "drawer" must not mix opening it with closing it."""
    return task is None or (source.cut is not None and _folded(task) in map(_folded, source.cut.tasks))


def _folded(text: str) -> str:
    """As people take two texts for the same."""
    return " ".join(text.split()).casefold()


def _search(root: Path, opening: Opening) -> Iterator[Source]:
    if not root.exists():
        raise UserError(f"{root} does not exist: check the path")
    try:
        if root.is_dir():
            yield from _in_folder(root, opening, seen=set())
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


def _in_folder(folder: Path, opening: Opening, seen: set[str]) -> Iterator[Source]:
    """`seen` ends the walk through links that lead in a circle."""
    if os.path.realpath(folder) in seen:
        return
    seen.add(os.path.realpath(folder))
    if lerobot_meta.is_dataset(folder):
        yield from lerobot_meta.episodes(folder, opening.camera)
        return
    if kind_of(folder) == "images":
        yield Source("", folder, "images")
    for path in sorted(folder.iterdir(), key=images.natural_order):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _in_folder(path, opening, seen)
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
    path = source.path if source.cut is None else source.cut.dataset
    member = [] if source.member is None or (alone and source.cut is None) else [source.member]
    choices = _paths(os.path.abspath(path), os.path.abspath(root), source.kind in ("container", "array"))
    return ["/".join([choice, *member]) for choice in choices]


@lru_cache
def _paths(absolute: str, given: str, has_suffix: bool) -> tuple[str, ...]:
    """Ever longer names of a path that was found under another."""
    path, root = Path(absolute), Path(given)
    base = root.parent if path == root else root
    stem = path.with_suffix("") if has_suffix else path
    choices = [file.relative_to(folder) for folder in (base, *base.parents) for file in (stem, path)]
    return tuple(choice.as_posix() for choice in (*choices, path))
