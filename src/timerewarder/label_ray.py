"""The shards of a labelling job as a Ray Data pipeline: an actor for each core (or GPU) scores one after the other."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from timerewarder.errors import UserError

if TYPE_CHECKING:
    from timerewarder.label import Job, Scored


class Labeller:
    """An actor of the pipeline; a row names a shard, and comes back with the shard's parquet file in it."""

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(1)  # Ray gives an actor one core
        job.reward.to("cuda" if torch.cuda.is_available() else "cpu")
        self.job = job

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        done = self.job.score(int(row["shard"]))
        return {"shard": done.shard, "parquet": done.parquet, "bad": json.dumps(done.bad)}


def score_on_ray(job: Job, numbers: Sequence[int], address: str) -> Iterator[Scored]:
    """The shards of these numbers, as the cluster at `address` finishes them; `local` starts one on this machine."""
    from timerewarder.label import Scored

    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray: pip install 'timerewarder[ray]'") from None
    began = not ray.is_initialized()
    if began:
        try:
            _knock(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"there is no Ray cluster at {address} ({reason}): start one with `ray start --head`, "
                "or give --ray without an address"
            ) from error
    try:
        resources = ray.cluster_resources()
        gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        actors = max(1, min(len(numbers), gpus or cores))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False  # `label` has its own
        rows = ray.data.from_items([{"shard": number} for number in numbers], override_num_blocks=len(numbers))
        scored = rows.map(
            Labeller,  # type: ignore[arg-type]  # a class is an actor
            fn_constructor_args=(job,), num_gpus=1 if gpus else None, num_cpus=None if gpus else 1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
        )  # fmt: skip
        for row in scored.iter_rows():
            yield Scored(int(row["shard"]), row["parquet"], json.loads(row["bad"]))
    finally:
        if began:
            ray.shutdown()


def _knock(address: str) -> None:
    """OSError at once if nobody is there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=10).close()
