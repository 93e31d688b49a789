"""The frame store: every video decoded once, at one size, read at random with flat memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from timerewarder.data.cache import HEADER_BYTES, Entry, Settings, build, cache_file, cache_folder, digest, lookup
from timerewarder.data.hands import Hand
from timerewarder.data.images import image_files
from timerewarder.data.resize import How
from timerewarder.data.search import Sources, find_sources
from timerewarder.data.source import AS_THEY_ARE, BadVideo, Opening, Source
from timerewarder.data.stillness import moving_length
from timerewarder.data.videos import warn_skipped
from timerewarder.errors import UserError
from timerewarder.progress import track

WORKERS = min(8, os.cpu_count() or 1)
QUIET_BYTES = 2**30  # hashing more than this takes long enough to show a bar
QUIET_VIDEOS = 300  # and looking for rest in more than these

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class FrameStore:
    """Videos of one frame size, in the order in which they were found. `frames` reads some frames of one of them."""

    names: tuple[str, ...]
    files: tuple[Path, ...]  # npy files in the cache
    lengths: np.ndarray  # int64 (N,), frames of each video
    fps: np.ndarray  # float64 (N,), frames per second
    size: int
    spans: np.ndarray  # int64 (N,), frames of each video until its clock stops: its length unless `stopped_at_rest`
    opening: Opening = AS_THEY_ARE
    tasks: tuple[str, ...] = ()  # of all the videos, those from LeRobot datasets
    hands: tuple[Hand, ...] = ()  # of each video, once they are found (data/hands.py)

    def __len__(self) -> int:
        """How many videos there are."""
        return len(self.names)

    def frames(self, video: int, indices: np.ndarray | Sequence[int]) -> np.ndarray:
        """Frames of a video, in the order of `indices`: uint8 (len(indices), size, size, 3), a copy.

        The file is mapped for this call only. Mapped pages count as the process's memory for as long as the map lives,
        and a thousand open files are more than many systems allow.
        """
        shape = (int(self.lengths[video]), self.size, self.size, 3)
        try:
            mapped = np.memmap(self.files[video], np.uint8, "r", HEADER_BYTES, shape)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.files[video]} is gone from the frame cache ({error}): run again") from error
        return np.array(mapped[np.asarray(indices, np.int64)])

    def subset(self, videos: Sequence[int] | np.ndarray) -> FrameStore:
        """A store of some of the videos, in the given order."""
        chosen = np.asarray(videos, np.int64)
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            files=tuple(self.files[i] for i in chosen),
            lengths=self.lengths[chosen],
            fps=self.fps[chosen],
            spans=self.spans[chosen],
            hands=tuple(self.hands[i] for i in chosen) if self.hands else (),
        )

    def times(self, videos: np.ndarray | int, indices: np.ndarray) -> np.ndarray:
        """The clock of the videos at these frames, in frames from the start."""
        return np.minimum(indices, self.spans[videos] - 1)

    def stopped_at_rest(self) -> FrameStore:
        """The same videos, their clocks stopping where the picture comes to rest for good (data/stillness.py)."""
        lengths = enumerate(track(self.lengths, "Looking for rest") if len(self) > QUIET_VIDEOS else self.lengths)
        spans = [moving_length(self.frames(video, np.arange(length))) for video, length in lengths]
        return replace(self, spans=np.array(spans, np.int64))

    @property
    def record(self) -> dict[str, Any]:
        """What a model that learns from these videos remembers of them."""
        return {
            "videos": len(self),
            "frames": int(self.lengths.sum()),
            "longest_video": int(self.spans.max()),
            "shortest_video": int(self.spans.min()),
            "data": self.fingerprint,
            "opening": asdict(self.opening),
            "tasks": list(self.tasks),
        }

    @property
    def fingerprint(self) -> str:
        """A hash of the frames and their order, whatever the videos are called."""
        return hashlib.sha256("".join(file.stem for file in self.files).encode()).hexdigest()[:16]


def open_store(
    sources: Sources,
    size: int,
    how: How = "squash",
    opening: Opening = AS_THEY_ARE,
    cache: Path | None = None,
) -> FrameStore:
    """The videos under `sources` as a frame store; only what the cache does not hold yet is decoded.

    A bad video is an error that names it and the other bad ones, or a warning with `skip_bad`.
    """
    found = find_sources(sources, opening)
    settings = Settings(size, how, opening.fps)
    places = _places(found, (cache or cache_folder()) / "frames", settings)
    videos = {place: source for source, place in zip(found, places, strict=True) if isinstance(place, Path)}
    entries: dict[Path, Entry | BadVideo] = {file: entry for file in videos if (entry := lookup(file, size))}
    missing = [file for file in videos if file not in entries]
    if missing:
        built = _in_threads(lambda file: build(videos[file], file, settings), missing, "decoding videos")
        entries.update(zip(missing, built, strict=True))
    results = [_result(source, place, entries) for source, place in zip(found, places, strict=True)]
    _speak_of_bad(results, opening.skip_bad)
    good = [(source.name, entry) for source, entry in zip(found, results, strict=True) if isinstance(entry, Entry)]
    lengths = np.array([entry.length for _, entry in good], np.int64)
    return FrameStore(
        names=tuple(name for name, _ in good),
        files=tuple(entry.file for _, entry in good),
        lengths=lengths,
        fps=np.array([entry.fps for _, entry in good], np.float64),
        size=size,
        spans=lengths,
        opening=opening,
        tasks=tuple(sorted({task for source in found if source.cut for task in source.cut.tasks})),
    )


def _places(found: list[Source], folder: Path, settings: Settings) -> list[Path | BadVideo]:
    """The cache file of each video, by the content of its files."""
    contents = [image_files(source.path) if source.kind == "images" else [source.path] for source in found]
    files = list(dict.fromkeys(file for content in contents for file in content))  # an npz may hold many videos
    large = sum(file.stat().st_size for file in files if file.exists()) > QUIET_BYTES
    digests = dict(zip(files, _in_threads(digest, files, "checking videos" if large else None), strict=True))
    places: list[Path | BadVideo] = []
    for source, content in zip(found, contents, strict=True):
        unreadable = [source.bad(d.reason) for file in content if isinstance(d := digests[file], BadVideo)]
        hashes = [str(digests[file]) for file in content]
        places.append(unreadable[0] if unreadable else cache_file(folder, source, hashes, settings))
    return places


def _result(source: Source, place: Path | BadVideo, entries: dict[Path, Entry | BadVideo]) -> Entry | BadVideo:
    """What became of a video. Bad copies share a place, but each is named."""
    result = entries[place] if isinstance(place, Path) else place
    return BadVideo(source.path, result.reason) if isinstance(result, BadVideo) else result


def _in_threads(work: Callable[[In], Out], items: Sequence[In], title: str | None) -> list[Out | BadVideo]:
    """work(item) for each item, with a bar if there is a title; BadVideo is a result, any other error ends it all."""

    def attempt(item: In) -> Out | BadVideo:
        try:
            return work(item)
        except BadVideo as error:
            return error

    pool = ThreadPoolExecutor(WORKERS)
    try:
        futures = [pool.submit(attempt, item) for item in items]
        done = as_completed(futures)
        for future in track(done, title, total=len(items)) if title else done:
            future.result()
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def _speak_of_bad(results: list[Entry | BadVideo], skip_bad: bool) -> None:
    bad = [result for result in results if isinstance(result, BadVideo)]
    if skip_bad and len(bad) < len(results):
        for error in bad:
            warn_skipped(error)
    elif bad:
        named = ", ".join(f"{error.path} ({error.reason})" for error in bad[:5]) + (", ..." if len(bad) > 5 else "")
        advice = "give at least one that can" if skip_bad else "mend or remove them, or pass --skip-bad"
        raise UserError(f"{len(bad)} of {len(results)} videos cannot be read: {named}: {advice}")
