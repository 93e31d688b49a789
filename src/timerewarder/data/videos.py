"""The one reader of videos: any mix of files and folders in, frames uint8 (T, H, W, 3) out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from types import ModuleType
from typing import TypeVar

import numpy as np

from timerewarder.data import arrays, containers, images, lerobot
from timerewarder.data.frames import check_frames
from timerewarder.data.search import Sources, find_sources
from timerewarder.data.source import BadVideo, Episode, Kind, Opening, Source
from timerewarder.data.writer import write_video
from timerewarder.errors import UserError

__all__ = ["BadVideo", "Video", "check_frames", "read_videos", "resample_indices", "write_video"]

T = TypeVar("T")

READERS: dict[Kind, ModuleType] = {"container": containers, "images": images, "array": arrays, "lerobot": lerobot}

CHUNK_BYTES = 32 * 2**20  # of a chunk, unless one frame is larger
MAX_FRAMES = 1_000_000  # after resampling: a day at 10 frames a second; broken timestamps ask for more


def read_videos(
    sources: Sources,
    fps: float | None = None,
    skip_bad: bool = False,
    camera: str | None = None,
    task: str | None = None,
) -> Iterator[Video]:
    """The videos under `sources`, one after the other, resampled to `fps` frames a second if it is given.

    Of LeRobot datasets, every episode is a video: what `camera` shows (not needed if there is only one), of all
    episodes or of those with this `task`.

    Paths are checked at once. A file is opened when its turn comes and decoded when its frames are asked for; damage in
    the middle of it raises then. With `skip_bad` each video is first decoded once to see that it is sound (in chunks,
    which takes time but no memory); a bad one gives a warning and is left out.
    """
    found = find_sources(sources, Opening(fps, skip_bad, camera, task))
    return _sound_videos(found, fps) if skip_bad else (Video(source, fps) for source in found)


def _sound_videos(found: list[Source], fps: float | None) -> Iterator[Video]:
    bad = 0
    for source in found:
        try:
            video = Video(source, fps)
            for _ in video.chunks():
                pass
        except BadVideo as error:
            warn_skipped(error)
            bad += 1
        else:
            yield video
    if bad == len(found):
        raise UserError(f"no video is left of {bad}: give at least one that can be read")


def warn_skipped(error: BadVideo) -> None:
    warnings.warn(f"skipped {error.path}: {error.reason}", stacklevel=3)


class Video:
    """One video: `name` is unique among those read together, `path` is for messages, `fps` is frames per second.

    A video from a LeRobot dataset also has a `task`, the text of what was to be done (several are joined with "; "),
    and an `episode`, its place in the dataset; for others they are None.
    """

    def __init__(self, source: Source, fps: float | None = None) -> None:
        """Open it; `fps` resamples it."""
        self.name, self.path, self._source = source.name, source.path, source
        native = READERS[source.kind].rate(source)
        self.fps: float = native if fps is None else fps
        self._resampled = fps is not None
        self.task: str | None = "; ".join(source.cut.tasks) or None if source.cut else None
        self.episode: Episode | None = source.cut.episode if source.cut else None

    def __repr__(self) -> str:
        return f"Video({self.name!r}, {self.path}, {self.fps:g} fps)"

    @cached_property
    def frames(self) -> np.ndarray:
        """All frames, uint8 (T, H, W, 3); decoded on first use, then kept."""
        data, shape = bytearray(), ()  # grows in place, so that the frames are never in memory twice
        for chunk in self.chunks():
            data.extend(chunk.data)
            shape = chunk.shape[1:]
        return np.frombuffer(data, np.uint8).reshape(-1, *shape)

    def chunks(self, n: int = 64) -> Iterator[np.ndarray]:
        """The frames as a stream of uint8 (t, H, W, 3) with t <= n, fewer if frames are large: flat memory."""
        filled, chunk = 0, np.empty(0, np.uint8)
        for picture in self._pictures():
            if filled == 0:
                length = max(1, min(n, CHUNK_BYTES // picture.nbytes))
                chunk = np.empty((length, *picture.shape), np.uint8)
            chunk[filled] = picture
            filled += 1
            if filled == len(chunk):
                yield chunk
                filled = 0
        if filled:
            yield chunk[:filled]

    def _pictures(self) -> Iterator[np.ndarray]:
        """Frame after frame, uint8 (H, W, 3); at least two, all of one size."""
        timed = READERS[self._source.kind].decode(self._source)
        pictures = resample(timed, self.fps) if self._resampled else (picture for _, picture in timed)
        count, shape = 0, None
        for count, picture in enumerate(pictures, start=1):
            frame = picture()
            shape = shape or frame.shape
            if frame.shape != shape:
                sizes = f"{shape[1]}x{shape[0]} to {frame.shape[1]}x{frame.shape[0]}"
                raise self._source.bad(f"changes its size from {sizes} at frame {count - 1}")
            if self._resampled and count > MAX_FRAMES:
                raise self._source.bad(f"would have more than {MAX_FRAMES} frames: its timestamps are broken")
            yield frame
        if count < 2:
            raise self._source.bad(f"has {'one frame' if count else 'no frames'}; at least 2 are needed")


def resample(timed: Iterable[tuple[float, T]], fps: float) -> Iterator[T]:
    """Of items with their times in seconds, show at each tick 0, 1/fps, 2/fps, ... the one that is nearest in time.

    Ticks count from the first item and run until the end of the last one, which is taken to last as long as the others
    on average. Two items or more give at least two. Looks one item ahead, so memory is flat.
    """
    ticks = count = 0
    start = last = 0.0
    shown: list[T] = []
    for time, item in timed:
        if count == 0:
            start = time
        while shown and start + ticks / fps <= (last + time) / 2:
            yield shown[0]
            ticks += 1
        last, shown, count = time, [item], count + 1
    if count == 1:
        yield shown[0]
    if count > 1:
        duration = (last - start) * count / (count - 1)
        total = max(2, math.ceil(duration * fps - 1e-6))
        for _ in range(ticks, total):
            yield shown[0]


def resample_indices(times: Iterable[float], fps: float) -> np.ndarray:
    """Which frames `resample` shows of a video with frames at `times` (seconds, ascending): int64, ascending."""
    return np.fromiter(resample(((time, index) for index, time in enumerate(times)), fps), np.int64)
