"""From a model and videos to what a person looks at: the files of `score` and the page of `report`."""

from __future__ import annotations

import csv
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from timerewarder import api
from timerewarder.config import to_dict
from timerewarder.data.source import AS_THEY_ARE, Opening
from timerewarder.data.videos import Video, read_videos
from timerewarder.errors import UserError
from timerewarder.files import read_json
from timerewarder.models.checkpoint import CONFIG, EVALUATION
from timerewarder.progress import track
from timerewarder.report.clip import Clip
from timerewarder.report.overlay import write_scores
from timerewarder.report.page import write_page
from timerewarder.report.rerun import import_rerun
from timerewarder.rewards.reward import FrameReward


def score_videos(
    model: str, videos: Sequence[str], out: Path, opening: Opening = AS_THEY_ARE, rerun: bool = False
) -> dict[str, Any]:
    """Write a table, a plot, an overlay video and the distance matrix for each video; returns the final values."""
    if rerun:
        import_rerun()  # what is missing must be known before the work
    reward = api.load(model)
    found = deque(read_videos(videos, **vars(opening)))
    if not opening.skip_bad:  # damage in the last video must show before anything is written for the first
        for video in track(found, "Checking videos"):
            deque(video.chunks(), maxlen=0)
    finals = {}
    # A video keeps its frames once they are decoded, so each is let go when it is done.
    for video in track((found.popleft() for _ in range(len(found))), "Scoring", total=len(found)):
        clip = make_clip(reward, video)
        write_scores(clip, out, rerun)
        finals[video.name] = float(clip.progress[-1])
    return {"out": str(out), "videos": len(finals), "final_progress": finals}


def report_run(
    run: Path,
    videos: Sequence[str] = (),
    failures: Sequence[str] = (),
    out: Path | None = None,
    clips: int = 6,
    opening: Opening = AS_THEY_ARE,
) -> dict[str, Any]:
    """Write the page of a model, or of the model in a run folder, evaluating it first if new videos are named."""
    if clips < 0:
        raise UserError(f"--clips {clips} is negative: give how many videos of each kind to show")
    model = find_model(run)
    evaluated = model / EVALUATION
    if not videos and not evaluated.exists():
        raise UserError(f"{model} has not been evaluated: name held-out videos with --videos DIR (and --failures DIR)")
    if videos or failures or opening != AS_THEY_ARE:
        last: dict[str, Any] = {"videos": (), "failures": ()}
        last |= read_json(evaluated) if evaluated.exists() else {}
        given = {name: value for name, value in vars(opening).items() if value not in (None, False)}
        api.evaluate_model(
            model, videos or last["videos"], failures or last["failures"], **{**vars(_opening(last)), **given}
        )
    evaluation, reward = read_json(evaluated), api.load(model)
    shown = list(track(_clips(reward, evaluation, clips), "Drawing the page", total=_clip_count(evaluation, clips)))
    page = out or run / "report.html"
    write_page(
        page,
        title=f"{run.resolve().name}: learned reward",
        subtitle=f"{reward.method} on {reward.record['videos']} videos, {reward.looks_through}",
        model=str(model),
        command=f"timerewarder report {run}",
        metrics=evaluation["metrics"],
        final_values=evaluation["final_values"],
        clips=shown,
        config={"method": reward.method, **to_dict(reward.config), "record": reward.record},
        log=read_log(model / "log.csv"),
    )
    return {"page": str(page), "model": str(model), "clips": len(shown), **evaluation["metrics"]}


def find_model(run: Path) -> Path:
    """`run` itself if it is a model folder, or the `model` folder in it."""
    for folder in (run, run / "model"):
        if (folder / CONFIG).exists():
            return folder
    raise UserError(f"there is no model in {run}: give a folder that `timerewarder fit` or `quickstart` wrote")


@torch.no_grad()
def make_clip(reward: FrameReward, video: Video, kind: str = "held-out") -> Clip:
    """A video with all that the reward says of it; kind `reversed` plays it backwards."""
    frames = video.frames[::-1] if kind == "reversed" else video.frames
    features = reward.encode(frames)
    rewards = reward.compare(features).cpu().numpy()
    distances = reward.distances(features)
    return Clip(
        name=video.name,
        kind=kind,
        frames=frames,
        fps=video.fps,
        rewards=rewards,
        progress=reward.progress(rewards),
        distances=None if distances is None else distances.cpu().numpy(),
        unit=reward.unit(len(frames)),
        is_value=reward.is_value,
    )


def read_log(path: Path) -> list[dict[str, float]]:
    """The rows of a training log; empty without one."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def _clips(reward: FrameReward, evaluation: dict[str, Any], count: int) -> Iterator[Clip]:
    """The first `count` held-out videos, failures, and held-out videos reversed."""
    for kind, places in (("held-out", "videos"), ("failure", "failures"), ("reversed", "videos")):
        if evaluation[places]:
            for video in itertools.islice(read_videos(evaluation[places], **vars(_opening(evaluation))), count):
                yield make_clip(reward, video, kind)


def _opening(evaluation: dict[str, Any]) -> Opening:
    """How the videos of an evaluation were opened; what an old record does not tell is the default."""
    return Opening(**{name: evaluation[name] for name in vars(AS_THEY_ARE) if name in evaluation})


def _clip_count(evaluation: dict[str, Any], count: int) -> int:
    """How many clips `_clips` gives."""
    kinds = {"held-out": 2, "failure": 1}  # held-out videos are shown twice, the second time reversed
    return sum(kinds[kind] * min(count, len(values)) for kind, values in evaluation["final_values"].items())
