"""LeRobot datasets for the tests: two that the LeRobot library wrote, and small ones, cut where a test wants it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.data.sample_videos import encode

HERE = Path(__file__).parent / "lerobot"
SMALL, IMAGES = HERE / "lerobot_v3_small", HERE / "lerobot_v3_images"
TOP = "observation.images.top"
FPS = 10


def numbered_episode(episode: int, length: int) -> np.ndarray:
    """Grey frames that tell through any codec which they are, uint8 (length, 32, 32, 3)."""
    return np.repeat(8 * np.array(numbers_of(episode, length), np.uint8), 32 * 32 * 3).reshape(length, 32, 32, 3)


def numbers_of(episode: int, length: int) -> list[int]:
    """What `sample_videos.numbers` reads in `numbered_episode`."""
    return [(7 * episode + frame) % 30 for frame in range(length)]


def write_dataset(
    folder: Path,
    lengths: Sequence[int] = (4, 6, 5, 3),
    tasks: Sequence[Sequence[str]] = (("open the drawer",),),
    cameras: Sequence[str] = (TOP,),
    kind: str = "video",
    files: Sequence[int] = (),
    tables: Sequence[int] = (),
    options: dict[str, str] | None = None,
    **info: Any,
) -> Path:
    """A dataset of `numbered_episode`s; a file of pictures begins anew at the episodes `files`, a table at `tables`.

    Every second camera counts backwards. Tasks are taken in turn. `info` replaces keys of meta/info.json.
    """
    episodes = [numbered_episode(episode, length) for episode, length in enumerate(lengths)]
    rows: list[dict[str, Any]] = []
    for episode, length in enumerate(lengths):
        row = {"episode_index": episode, "tasks": list(tasks[episode % len(tasks)]), "length": length}
        first = sum(lengths[:episode])
        row |= {"dataset_from_index": first, "dataset_to_index": first + length}
        rows.append({**row, "data/chunk_index": 0, "data/file_index": 0, "stats/action/mean": [0.0]})
    for number, (begin, end) in enumerate(spans(files, len(lengths))):
        for place, camera in enumerate(cameras):
            shown = [frames[:: -1 if place % 2 else 1] for frames in episodes[begin:end]]
            if kind == "video":
                path = folder / f"videos/{camera}/chunk-000/file-{number:03d}.mp4"
                encode(path, np.concatenate(shown), FPS, options=options or {"bf": "2", "g": "7"})
            for episode in range(begin, end):
                start = sum(lengths[begin:episode]) / FPS
                place_of = {"chunk_index": 0, "file_index": number, "from_timestamp": start}
                rows[episode] |= {f"videos/{camera}/{name}": v for name, v in place_of.items()}
                rows[episode]["data/file_index"] = number if kind == "image" else 0
        if kind == "image":
            write_pictures(folder / f"data/chunk-000/file-{number:03d}.parquet", episodes, begin, end, cameras)
    for number, (begin, end) in enumerate(spans(tables, len(lengths))):
        write_table(folder / f"meta/episodes/chunk-000/file-{number:03d}.parquet", rows[begin:end])
    default = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {camera: {"dtype": kind} for camera in cameras} | {"action": {"dtype": "float32"}},
    }
    default |= {"video_path": None} if kind == "image" else {}
    (folder / "meta/info.json").write_text(json.dumps({**default, **info}))
    return folder


def spans(cuts: Sequence[int], length: int) -> list[tuple[int, int]]:
    ends = [0, *cuts, length]
    return list(itertools.pairwise(ends))


def write_pictures(path: Path, episodes: list[np.ndarray], begin: int, end: int, cameras: Sequence[str]) -> None:
    """Rows of frames in groups of 4, so that an episode begins and ends in the midst of one."""
    rows = []
    for episode in range(begin, end):
        for frame, picture in enumerate(episodes[episode]):
            row = {camera: {"bytes": png(picture), "path": "/etc/hostname"} for camera in cameras}
            rows.append({**row, "frame_index": frame, "episode_index": episode})
    write_table(path, rows, row_group_size=4)


def png(picture: np.ndarray) -> bytes:
    stream = BytesIO()
    Image.fromarray(picture).save(stream, "PNG")
    return stream.getvalue()


def write_table(path: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, **options)


def change_rows(path: Path, change: Any) -> None:
    """Write a table again, every row changed in place by `change`."""
    rows = pq.ParquetFile(path).read().to_pylist()
    for row in rows:
        change(row)
    write_table(path, rows)


def move_episodes(dataset: Path, seconds: float) -> None:
    """Have the episodes begin so much later in the one file of the top camera."""
    start = f"videos/{TOP}/from_timestamp"
    for path in dataset.glob("meta/episodes/*/*.parquet"):
        change_rows(path, lambda row: row.update({start: row["dataset_from_index"] / FPS + seconds}))


def change_info(folder: Path, **values: Any) -> None:
    path = folder / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
