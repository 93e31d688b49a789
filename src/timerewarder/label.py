"""Reward and progress of every frame of a dataset, as a parquet file that other programs train on.

    OUT/timerewarder_progress.parquet   a row a frame
    OUT/labels.json                     what made it: model, data, options
    OUT/shards/                         finished parts, while the job is not complete

A LeRobot dataset gets the columns that LeRobot's sample weighting reads (`index`, `episode_index`, `frame_index`,
`progress_sparse`) and `reward`; other videos get `video`, `frame_index`, `time`, `progress` and `reward`.

Every frame passes the encoder once, a chunk at a time, so memory is flat. A shard is a few videos and is written whole:
a job that is killed goes on with the shards that are missing, and ends with the same file. With Ray the shards are
scored by the workers of a cluster, which must see the videos under the same paths; the rest is the same.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from timerewarder import api
from timerewarder.config import differing_keys
from timerewarder.data.search import Sources, find_sources
from timerewarder.data.source import AS_THEY_ARE, BadVideo, Opening, Source
from timerewarder.data.videos import Video
from timerewarder.errors import UserError
from timerewarder.files import atomic, read_json, write_json
from timerewarder.models.checkpoint import fingerprint
from timerewarder.progress import track
from timerewarder.rewards.reward import FrameReward

if TYPE_CHECKING:
    import pyarrow

FILE, PLAN, SHARDS = "timerewarder_progress.parquet", "labels.json", "shards"


@dataclass(frozen=True)
class Job:
    """What is to be labelled, cut into shards; sent to the workers of a cluster as it is."""

    reward: FrameReward
    model: str
    shards: tuple[tuple[Source, ...], ...]
    opening: Opening

    @cached_property
    def of_lerobot(self) -> bool:
        """Whether the videos are the episodes of one LeRobot dataset; a mix is refused, its rows would not fit."""
        datasets = {source.cut.dataset if source.cut else None for shard in self.shards for source in shard}
        if len(datasets) > 1:
            named = ", ".join(sorted(str(dataset) if dataset else "plain videos" for dataset in datasets))
            raise UserError(f"the labels of {named} do not fit into one table: label each in a call of its own")
        return None not in datasets

    @property
    def schema(self) -> pyarrow.Schema:
        import pyarrow as pa

        whole, number = pa.int64(), pa.float32()
        if self.of_lerobot:
            columns = {"index": whole, "episode_index": whole, "frame_index": whole, "progress_sparse": number}
        else:
            columns = {"video": pa.string(), "frame_index": whole, "time": pa.float64(), "progress": number}
        return pa.schema({**columns, "reward": number}, metadata={"reward_model_path": self.model})

    def score(self, number: int) -> Scored:
        """A shard as the bytes of a parquet file, and what is wrong with its bad videos."""
        import pyarrow as pa
        from pyarrow import parquet

        tables, bad = [self.schema.empty_table()], []
        for source in self.shards[number]:
            try:
                tables.append(pa.table(self._columns(Video(source, self.opening.fps)), self.schema))
            except BadVideo as error:
                bad.append((str(error.path), error.reason))
        file = io.BytesIO()
        parquet.write_table(pa.concat_tables(tables), file)
        return Scored(number, file.getvalue(), bad)

    @torch.no_grad()
    def _columns(self, video: Video) -> dict[str, Any]:
        features = torch.cat([self.reward.encode(chunk) for chunk in video.chunks()])
        rewards = self.reward.compare(features).cpu().numpy()
        frames = np.arange(len(rewards))
        progress = self.reward.progress(rewards)
        values = {"frame_index": frames, "reward": rewards}
        if video.episode is None:
            return {**values, "video": [video.name] * len(frames), "time": frames / video.fps, "progress": progress}
        episode = np.full(len(frames), video.episode.index)
        return {**values, "index": video.episode.first + frames, "episode_index": episode, "progress_sparse": progress}

    @property
    def description(self) -> dict[str, Any]:
        """What the labels depend on."""
        found = [source for shard in self.shards for source in shard]
        return {
            "model": self.model,
            "weights": fingerprint(self.reward.state_dict()),
            "videos": len(found),
            "data": hashlib.sha256("\n".join(map(_identity, found)).encode()).hexdigest()[:16],
            **asdict(self.opening),
            "shards": len(self.shards),
        }


@dataclass(frozen=True)
class Scored:
    """What became of a shard: a parquet file, and (path, reason) of its bad videos."""

    shard: int
    parquet: bytes
    bad: Sequence[tuple[str, str]]


def label(
    model: str,
    videos: Sources,
    out: Path,
    opening: Opening = AS_THEY_ARE,
    *,
    shard: int = 8,
    ray: str | None = None,
) -> dict[str, Any]:
    """Write `OUT/timerewarder_progress.parquet`. `ray`: address of a Ray cluster, `local` to start one here."""
    _need_pyarrow()
    if shard < 1:
        raise UserError(f"--shard {shard} must be at least 1 video")
    # Absolute, because the workers of a cluster are elsewhere.
    found = [replace(source, path=source.path.absolute()) for source in find_sources(videos, opening)]
    shards = tuple(tuple(found[start : start + shard]) for start in range(0, len(found), shard))
    job = Job(api.load(model), model, shards, opening)
    if job.of_lerobot and opening.fps is not None:
        raise UserError("--fps would give rows that the LeRobot dataset has no frames for: leave it out")
    if not job.reward.is_value:
        warnings.warn(
            f"{job.reward.method} has no progress: the column holds the running sum of its rewards", stacklevel=2
        )
    if not _begin(out, job):
        missing = [number for number in range(len(shards)) if not _shard_file(out, number).exists()]
        _keep(out, track(_scored(job, missing, ray), "Labelling", total=len(missing)), opening.skip_bad)
        _join(out, job)
    from pyarrow.parquet import read_metadata

    rows = read_metadata(out / FILE).num_rows
    return {"labels": str(out / FILE), "frames": rows, "videos": len(found), "lerobot": job.of_lerobot}


def _begin(out: Path, job: Job) -> bool:
    """Make or check the folder; whether the labels are there already."""
    there, wanted = out / PLAN, job.description
    if not there.exists():
        if out.exists() and (not out.is_dir() or (out / FILE).exists()):
            raise UserError(f"{out} is in use and was not written by `timerewarder label`: choose another --out")
        write_json(there, wanted)
    different = differing_keys(read_json(there), wanted)
    if different:
        raise UserError(f"{out} holds labels of something else ({', '.join(different)}): choose another --out")
    return (out / FILE).exists()


def _scored(job: Job, numbers: Sequence[int], ray: str | None) -> Iterator[Scored]:
    if ray is None or not numbers:
        return map(job.score, numbers)
    from timerewarder.label_ray import score_on_ray

    return score_on_ray(job, numbers, ray)


def _keep(out: Path, scored: Iterable[Scored], skip_bad: bool) -> None:
    for done in scored:
        if done.bad and not skip_bad:
            named = ", ".join(f"{path} ({reason})" for path, reason in done.bad[:5])
            raise UserError(f"{named}: mend or remove, or pass --skip-bad")
        for path, reason in done.bad:
            warnings.warn(f"skipped {path}: {reason}", stacklevel=2)
        with atomic(_shard_file(out, done.shard)) as temporary:
            temporary.write_bytes(done.parquet)


def _join(out: Path, job: Job) -> None:
    """All shards as one file, in order; then they go."""
    from pyarrow import parquet

    rows = 0
    with atomic(out / FILE) as temporary:
        with parquet.ParquetWriter(temporary, job.schema) as writer:
            for number in range(len(job.shards)):
                table = parquet.read_table(_shard_file(out, number))
                rows += len(table)
                writer.write_table(table)
        if rows == 0:
            raise UserError(f"no video is left of {job.description['videos']}: give at least one that can be read")
    shutil.rmtree(out / SHARDS)


def _shard_file(out: Path, number: int) -> Path:
    return out / SHARDS / f"{number:06d}.parquet"


def _identity(source: Source) -> str:
    """What tells a video from another, without reading it."""
    state = source.path.stat()
    return f"{source.name} {source.member} {source.cut} {state.st_size} {state.st_mtime_ns}"


def _need_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UserError("labels are parquet files, which need pyarrow: pip install 'timerewarder[lerobot]'") from None
