"""Frames of one episode of a LeRobot dataset (`lerobot_meta` finds the episodes), cut out of a file that many share.

- In an mp4 (mostly AV1), frame i is the one nearest to from_timestamp + i / fps. Decoding begins at the last key frame
  before the episode, not at the beginning of the file. A frame that is more than half a step away is another one.
  Colours are converted as LeRobot's own reader does it.
- In a parquet file, a picture is struct<bytes, path>. The `path` may say anything and is never read.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from timerewarder.data import containers, images
from timerewarder.data.colours import TO_RGB_AS_LEROBOT
from timerewarder.data.lerobot_meta import parquet
from timerewarder.data.source import BadVideo, Cut, Source, TimedFrame

READ_ROWS = 16  # of a parquet file, at a time
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")  # of pictures in it

Picture = Callable[[], np.ndarray]


def rate(source: Source) -> float:
    """The rate of the dataset. Also checks that the file is there."""
    if not source.path.is_file():
        raise source.bad("the file does not exist (download the whole dataset)")
    return _cut(source).fps


def decode(source: Source) -> Iterator[TimedFrame]:
    """Every frame of the episode."""
    cut = _cut(source)
    pictures = _in_table(source.path, cut) if cut.start is None else _in_video(source.path, cut, cut.start)
    with _named(source):
        for number, picture in enumerate(pictures):
            yield number / cut.fps, partial(_shown, source, picture)


def _cut(source: Source) -> Cut:
    assert source.cut is not None, "an episode has a cut"
    return source.cut


def _in_video(path: Path, cut: Cut, start: float) -> Iterator[Picture]:
    number, length, half = 0, cut.episode.length, 0.5 / cut.fps
    reformatter = VideoReformatter()
    with containers.opened(path) as (container, stream):
        last: VideoFrame | None = None
        for frame in itertools.chain(_decoded_around(container, stream, start, half), [None]):
            while last is not None and number < length:
                due = start + number / cut.fps
                if frame is not None and due > (last.time + frame.time) / 2:
                    break  # the next is nearer
                if abs(due - last.time) > half * 1.001:  # a little more, for ticks of the file that are not exact
                    raise BadVideo(path, f"frame {number} of {length} is missing: there is none at {due:.3f} s")
                if last.is_corrupt:
                    raise BadVideo(path, f"frame {number} is damaged")
                yield partial(containers.picture, path, last, reformatter, TO_RGB_AS_LEROBOT)
                number += 1
            if number == length:
                return
            last = frame
    raise BadVideo(path, "there are no pictures in the file")


def _decoded_around(container: InputContainer, stream: VideoStream, start: float, slack: float) -> Iterator[VideoFrame]:
    """Frames from the last key frame before `start` on, or from the first frame; those without a time are left out."""
    tick = float(stream.time_base or 1)  # seconds
    for earliest in (max(0.0, start - slack), 0.0):
        container.seek(int(earliest / tick), stream=stream)
        frames = (frame for frame in container.decode(stream) if frame.time is not None)
        first = next(frames, None)
        if first is not None and first.time <= start + slack:  # else the file's index has led past the moment
            break
    return frames if first is None else itertools.chain([first], frames)


def _in_table(path: Path, cut: Cut) -> Iterator[Picture]:
    number, (index, length) = 0, (cut.episode.index, cut.episode.length)
    for row in _rows(path, cut):
        if row["frame_index"] != number:
            raise BadVideo(path, f"frame {number} of {length} is missing: frame {row['frame_index']} is in its place")
        data = row[cut.camera]["bytes"]
        if data is None:
            raise BadVideo(path, f"frame {number} holds no picture")
        yield partial(images.decoded, BytesIO(data), path, f"frame {number}", FORMATS)
        number += 1
        if number == length:
            return
    raise BadVideo(path, f"frame {number} of {length} is missing: there are no more rows of episode {index}")


def _rows(path: Path, cut: Cut) -> Iterator[dict[str, Any]]:
    """The rows of an episode: its number, that of the frame, and the picture."""
    columns = ["episode_index", "frame_index", f"{cut.camera}.bytes"]
    try:
        with parquet(path) as file:
            paths = [file.schema.column(number).path for number in range(len(file.schema))]
            missing = [name for name in columns if name not in paths]
            if missing:
                raise BadVideo(path, f"has no column {missing[0]}")
            groups = _groups(file.metadata, paths.index("episode_index"), cut.episode.index)
            for batch in file.iter_batches(READ_ROWS, groups, columns, use_threads=False):
                wanted = [number == cut.episode.index for number in batch["episode_index"].to_pylist()]
                yield from itertools.compress(batch.to_pylist() if any(wanted) else (), wanted)
    except (ValueError, OSError) as error:
        raise BadVideo(path, f"cannot be read as a parquet file ({error})") from error


def _groups(metadata: Any, column: int, episode: int) -> list[int]:
    """The row groups that may hold rows of an episode, by the range of its column that they declare."""
    groups = []
    for number in range(metadata.num_row_groups):
        known = metadata.row_group(number).column(column).statistics
        if known is None or not known.has_min_max or known.min <= episode <= known.max:
            groups.append(number)
    return groups


def _shown(source: Source, picture: Picture) -> np.ndarray:
    with _named(source):
        return picture()


@contextlib.contextmanager
def _named(source: Source) -> Iterator[None]:
    """Say which episode is bad: others in the same file may be good."""
    try:
        yield
    except BadVideo as error:
        raise source.bad(error.reason) from error
