"""Which episodes a LeRobot dataset (v3) holds, and where; pyarrow reads it, the lerobot library is not needed.

    meta/info.json                   frame rate, features (the cameras among them), templates of the paths below
    meta/episodes/*/*.parquet        a row an episode: length, tasks, and for each camera the file and where in it
    videos/KEY/chunk-C/file-F.mp4    what camera KEY shows, if its type is `video`: many episodes in a row
    data/chunk-C/file-F.parquet      a row a frame, with the pictures of cameras of type `image`

Files of data, of each camera and of the table end at different episodes, so each is looked up in the table. A dataset
may come from a stranger: a path that would leave its folder is refused.
"""

from __future__ import annotations

import contextlib
import math
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PureWindowsPath
from typing import Any

from timerewarder.config import nearest
from timerewarder.data.source import Cut, Episode, Source
from timerewarder.errors import UserError
from timerewarder.files import read_json

INFO = Path("meta", "info.json")
MAX_SECONDS = 1e7  # into a file; more is a mistake, and cannot be sought
READ_BYTES = 2**20  # of a column of a parquet file at a time, or one page if that is larger


@dataclass(frozen=True)
class Info:
    """What meta/info.json says: frames per second, camera -> `video` or `image`, templates of paths."""

    fps: float
    cameras: dict[str, str]
    data_path: str
    video_path: str


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a LeRobot dataset, of whatever version."""
    return (folder / INFO).is_file() and "codebase_version" in _object(folder / INFO)


def episodes(folder: Path, camera: str | None = None, called: Path | None = None) -> list[Source]:
    """All episodes of a dataset as one camera shows them, in order; `called` is its name, if not that of the folder."""
    called = called or folder
    info = _read_info(folder, called)
    camera = _choose_camera(called, info, camera)
    in_video = info.cameras[camera] == "video"
    place = f"videos/{camera}" if in_video else "data"
    columns = ["episode_index", "length", "dataset_from_index", f"{place}/chunk_index", f"{place}/file_index"]
    start_column = [f"{place}/from_timestamp"] if in_video else []

    @cache
    def file_at(chunk: int, number: int) -> Path:
        template = info.video_path if in_video else info.data_path
        return folder / _filled_in(template, chunk_index=chunk, file_index=number, video_key=camera)

    found: dict[int, Source] = {}
    for table, row in _rows(folder, [*columns, *start_column]):
        with explained(table):
            index, length, first, chunk, number = (_whole(row, name) for name in columns)
            start = _seconds(row, start_column[0]) if in_video else None
            cut = Cut(called, camera, Episode(index, first, length), info.fps, start, _tasks(row))
            if index in found:
                raise ValueError(f"episode {index} is there twice")
            found[index] = Source("", file_at(chunk, number), "lerobot", f"episode_{index:06d}", cut)
    if not found:
        raise UserError(f"{called} has no episodes: record some, or download the whole dataset")
    return [found[index] for index in sorted(found)]


# --- meta/info.json ---------------------------------------------------------------------------------------------------


def _object(file: Path) -> dict[str, Any]:
    """A JSON object; not checked any further."""
    try:
        values = read_json(file)
    except RecursionError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{file} is damaged (it holds no object): download or record the dataset again")
    return values


def _read_info(folder: Path, called: Path) -> Info:
    values = _object(folder / INFO)
    _check_version(called, str(values.get("codebase_version")))
    with explained(folder / INFO):
        fps, features = values["fps"], values["features"]
        if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps <= 1000:
            raise ValueError(f"fps must be a number above 0 and at most 1000, not {fps!r}")
        if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
            raise ValueError("features must be an object of objects")
        paths = [values.get(name) or "" for name in ("data_path", "video_path")]  # null without any
        if not all(isinstance(path, str) for path in paths):
            raise ValueError("data_path and video_path must be texts")
    kinds = {key: feature.get("dtype") for key, feature in features.items()}
    return Info(float(fps), {key: kind for key, kind in kinds.items() if kind in ("video", "image")}, *paths)


def _check_version(dataset: Path, version: str) -> None:
    major = re.match(r"v?(\d+)\b", version)
    if major is None or int(major[1]) != 3:
        remedy = "convert it with LeRobot"
        if major is not None and int(major[1]) == 2:
            remedy += "'s convert_dataset_v21_to_v30 (python -m lerobot.scripts.convert_dataset_v21_to_v30, or "
            remedy += "lerobot.datasets.v30.convert_dataset_v21_to_v30 in LeRobot 0.4)"
        raise UserError(f"{dataset} is a LeRobot dataset of version {version}, but only v3 is read: {remedy}")


def _choose_camera(dataset: Path, info: Info, camera: str | None) -> str:
    known = list(info.cameras)
    if not known:
        raise UserError(f"{dataset} has no cameras: give a dataset with features of type video or image")
    if camera is None and len(known) > 1:
        raise UserError(f"{dataset} has {len(known)} cameras: choose one with --camera ({', '.join(known)})")
    if camera is not None and camera not in known:
        raise UserError(f"{dataset} has no camera {camera!r}{nearest(camera, known)}")
    return camera or known[0]


def _filled_in(template: str, **values: Any) -> str:
    """The path that a template stands for; ValueError if it is none, or would lead out of the dataset."""
    for _, field, spec, conversion in string.Formatter().parse(template):
        # A stranger's template must not reach into objects, nor ask for a billion digits.
        if field is not None and (field not in values or conversion or not re.fullmatch(r"(0?\dd)?", spec or "")):
            raise ValueError(f"{template!r} is not a template of paths")
    name = template.format(**values)
    path = PureWindowsPath(name)  # it knows all that / and \ and C: can do, wherever this runs
    if not path.parts or path.drive or path.root or ".." in path.parts or "\0" in name:
        raise ValueError(f"the path {name!r} leads out of the dataset")
    return name


# --- meta/episodes ----------------------------------------------------------------------------------------------------


def _rows(folder: Path, columns: list[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The rows of all tables, with the table: these columns and, where there are any, tasks; most are statistics."""
    tables = sorted((folder / "meta" / "episodes").glob("*/*.parquet"))
    if not tables:
        raise UserError(f"{folder} has no meta/episodes/*/*.parquet: download the whole dataset")
    for table in tables:
        with explained(table), parquet(table) as file:
            there = file.schema_arrow.names
            missing = [name for name in columns if name not in there]
            if missing:
                raise ValueError(f"it has no column {missing[0]}")
            rows = file.read([*columns, "tasks"] if "tasks" in there else columns).to_pylist()
        yield from ((table, row) for row in rows)


def _whole(row: dict[str, Any], name: str) -> int:
    value, least = row[name], int(name == "length")
    if not isinstance(value, int | float) or not math.isfinite(value) or value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, not {value!r}")
    return int(value)


def _seconds(row: dict[str, Any], name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ValueError(f"{name} must be a time in seconds, not {value!r}")
    return float(value)


def _tasks(row: dict[str, Any]) -> tuple[str, ...]:
    value = row.get("tasks") or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"tasks must be texts, not {value!r}")
    return tuple(texts)


# --- files that may be damaged ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def explained(file: Path) -> Iterator[None]:
    """Whatever is wrong with a file of metadata is said on one line."""
    try:
        yield
    except (KeyError, ValueError, OSError) as error:
        reason = f"it has no {error.args[0]}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise UserError(f"{file} is damaged ({reason}): download or record the dataset again") from error


@contextlib.contextmanager
def parquet(path: Path) -> Iterator[Any]:
    """An open parquet file; ValueError or OSError if it is damaged."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UserError("a LeRobot dataset is read with pyarrow: pip install 'timerewarder[lerobot]'") from error
    try:
        # With a buffer, a column is read page by page; without one, a row group at once, which may be the whole file.
        with ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as file:
            yield file
    except ArrowException as error:
        raise ValueError(str(error)) from error
