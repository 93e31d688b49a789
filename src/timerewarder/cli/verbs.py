"""The verbs whose options are always the same: one verb, one function call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from timerewarder.cli.options import Camera, Fps, Json, Model, SkipBad, Task, Videos
from timerewarder.errors import UserError
from timerewarder.serve.limits import Limits


def demos(
    task: str,
    episodes: int,
    out: Path,
    seed: int = 0,
    size: int = 84,
    policy: Literal["expert", "noisy", "random"] = "expert",
    keep: Literal["success", "failure", "all"] = "success",
    camera: str | None = None,
    render: Literal["fast", "exact"] = "fast",
    full_length: bool = False,
    ranges: Literal["wide", "paper", "metaworld"] = "wide",
    action_repeat: int = 2,
    horizon: int | None = None,
    workers: int | None = None,
    json: Json = False,
) -> dict[str, Any]:
    """Record videos of a Meta-World task: one mp4 an episode, an index, and the actions and states beside them.

    Args:
        task: Meta-World task, such as drawer-open.
        episodes: Number of episodes to keep.
        out: Folder to write to; run again, an interrupted collection goes on.
        seed: First seed; other seeds give other starts and goals.
        size: Side of the picture in pixels, an even number.
        policy: expert: Meta-World's scripted policy; noisy: the same, disturbed so that it mostly fails; random.
        keep: Which episodes to keep.
        camera: Camera; default: the paper's for the task.
        render: fast: no shadows or reflections, lighter meshes; exact: as Meta-World draws.
        full_length: Go on after success to the end of the episode.
        ranges: Start ranges of hand and objects: wide, paper (wide, with basketball's goal narrowed), metaworld's own.
        action_repeat: Environment steps for each action, and so for each frame.
        horizon: Length of an episode in environment steps; default: the paper's for the task.
        workers: Processes; default: one for each core, at most 4.
    """
    from timerewarder.envs.demos import collect

    return collect(
        task, episodes, out, seed=seed, size=size, policy=policy, keep=keep, camera=camera, render=render,
        full_length=full_length, ranges=ranges, action_repeat=action_repeat, horizon=horizon, workers=workers,
    )  # fmt: skip


def evaluate(
    model: Positional[Model],
    videos: Positional[Videos],
    failures: tuple[str, ...] = (),
    camera: Camera = None,
    task: Task = None,
    fps: Fps = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> dict[str, Any]:
    """Measure a model on held-out videos: value-order correlation and the controls without which it means nothing.

    Args:
        failures: Videos of failed attempts; adds success_auroc.
    """
    from timerewarder import api

    return api.evaluate_model(model, videos, failures, fps=fps, skip_bad=skip_bad, camera=camera, task=task)


def score(
    model: Positional[Model],
    videos: Positional[Videos],
    out: Path,
    camera: Camera = None,
    task: Task = None,
    rerun: bool = False,
    fps: Fps = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> dict[str, Any]:
    """Score videos: for each a table (frame, reward, progress), a plot, an mp4 with the curve, the distance matrix.

    Args:
        out: Folder to write to.
        rerun: Also write NAME.rrd, with video, curves and matrix for the Rerun viewer.
    """
    from timerewarder.data.source import Opening
    from timerewarder.report.run import score_videos

    return score_videos(model, videos, out, Opening(fps, skip_bad, camera, task), rerun=rerun)


def compare(
    methods: str,
    train: tuple[str, ...],
    test: tuple[str, ...],
    out: Path,
    failures: tuple[str, ...] = (),
    minutes: float | None = None,
    encoder: Literal["small", "clip-vit-b16", "vit-b16", "resnet34"] = "small",
    encoder_weights: str | None = None,
    seed: int = 0,
    options: Path | None = None,
    camera: Camera = None,
    task: Task = None,
    fps: Fps = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> dict[str, Any]:
    """Fit and measure many reward methods on the same videos: one table and one page.

    Args:
        methods: Names with commas between, such as timerewarder,vip,ot; all: every method but gvl.
        train: Videos to learn from, files and folders.
        test: Held-out videos of success to measure on.
        out: Folder to write to; run again, an interrupted comparison goes on.
        failures: Videos of failed attempts; adds success_auroc and a second curve.
        minutes: Length of every fit in minutes of wall time; default: each method's own length.
        encoder: Network that turns a frame into features, for every method.
        encoder_weights: Hub id or folder of pretrained weights for clip-vit-b16 or resnet34.
        seed: Seed of every fit.
        options: JSON file with options of single methods, such as {"gvl": {"model": "gemini-2.5-pro"}}.
    """
    from timerewarder.data.source import Opening
    from timerewarder.evaluation.comparison import Data
    from timerewarder.report.comparison import compare_methods

    data = Data(train, test, failures, Opening(fps, skip_bad, camera, task))
    shared = {"encoder": encoder, "encoder_weights": encoder_weights, "minutes": minutes, "seed": seed}
    return compare_methods(methods, data, out, shared, options)


def features(
    models: Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODEL...")]],
    out: Path,
    train: tuple[str, ...] = (),
    heldout: tuple[str, ...] = (),
    failures: tuple[str, ...] = (),
    clips: int = 6,
    camera: Camera = None,
    task: Task = None,
    fps: Fps = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> dict[str, Any]:
    """Draw the features of models along videos, in their two main directions (PCA): a figure and a table.

    Args:
        models: Model folders or Hub ids, a row of the figure each; name at least one kind of videos below.
        out: Folder to write features.svg, features.png and features.csv to.
        train: Videos that the models learned from; the directions are theirs (else those of the next kind given).
        heldout: Held-out videos of success.
        failures: Videos of failed attempts, drawn beside the successes.
        clips: How many videos of each kind to draw.
    """
    from timerewarder.data.source import Opening
    from timerewarder.report.features import draw_features

    return draw_features(models, out, train, heldout, failures, clips, Opening(fps, skip_bad, camera, task))


def report(
    runs: Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN...")]],
    videos: tuple[str, ...] = (),
    failures: tuple[str, ...] = (),
    out: Path | None = None,
    clips: int = 6,
    camera: Camera = None,
    task: Task = None,
    fps: Fps = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> dict[str, Any]:
    """Write one self-contained HTML page: about a model, videos beside their curves; about policies, learning curves.

    Args:
        runs: A model folder, or a run folder that holds one; or any number of runs of `timerewarder train`, or folders
            that hold some.
        videos: Held-out videos to show; default: those of the last evaluation of the model.
        failures: Failed attempts to show; default: those of the last evaluation.
        out: The page; default: report.html in the run folder.
        clips: How many videos of each kind to show.
    """
    from timerewarder.data.source import Opening
    from timerewarder.report.curves import policy_runs_in, report_policies
    from timerewarder.report.run import report_run

    if len(runs) != 1 or policy_runs_in(runs[0]):
        if videos or failures:
            raise UserError("--videos and --failures are for the page of a model: runs of `train` have their own films")
        return report_policies(runs, out)
    return report_run(runs[0], videos, failures, out, clips, Opening(fps, skip_bad, camera, task))


def label(
    model: Positional[Model],
    videos: Positional[Videos],
    out: Path,
    camera: Camera = None,
    task: Task = None,
    shard: int = 8,
    ray: Annotated[str | None, tyro.conf.arg(metavar="[ADDRESS]")] = None,
    fps: Fps = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> dict[str, Any]:
    """Label every frame of a dataset with reward and progress: a parquet file, for LeRobot with the columns it reads.

    Args:
        out: Folder to write timerewarder_progress.parquet to; run again, an interrupted job goes on.
        shard: Videos that are labelled and written together; a kill loses at most that many.
        ray: Score on the Ray cluster at this address (such as auto, or host:6379); without an address, on one that is
            started here.
    """
    from timerewarder.data.source import Opening
    from timerewarder.label import label as write_labels

    return write_labels(model, videos, out, Opening(fps, skip_bad, camera, task), shard=shard, ray=ray)


def serve(
    models: Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODEL...")]],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: OmitArgPrefixes[Limits] = Limits(),  # noqa: B008  # frozen
    json: Json = False,
) -> dict[str, Any]:
    """Serve models: a page to look at videos beside their curves, and an API that scores videos and streams of frames.

    Args:
        models: Model folders or Hub ids; the page overlays them on each video.
        host: Address to listen at; one that others can reach, such as 0.0.0.0, needs a token.
        port: Port to listen at; 0: any that is free.
        token: What clients must send as `Authorization: Bearer TOKEN`; default: $TIMEREWARDER_TOKEN, or none.
    """
    from timerewarder.serve.run import serve as serve_models

    return serve_models(models, host, port, token, limits)


def push(
    model: Positional[Model],
    repo_id: Positional[Annotated[str, tyro.conf.arg(metavar="REPO")]],
    private: bool = False,
    license: str | None = None,
    json: Json = False,
) -> dict[str, Any]:
    """Upload a model to the Hugging Face Hub, with a card: metrics, training data, options, an example.

    Args:
        repo_id: Where to, as user/name; it is made if it does not exist. Log in first: `hf auth login`, or HF_TOKEN.
        private: Make it private, if it is new.
        license: Identifier that the card names, such as mit.
    """
    from timerewarder import api

    return {"model": model, "commit": api.load(model).push_to_hub(repo_id, private, license)}


def quickstart(
    out: Path = Path("runs/quickstart"), minutes: float = 1.0, episodes: int = 100, json: Json = False
) -> dict[str, Any]:
    """The whole way in a few minutes: record Meta-World drawer-open, fit, evaluate on held-out videos, write the page.

    Args:
        out: Run folder; what is already there is reused.
        minutes: Length of the fit.
        episodes: Demonstrations to learn from; three tenths as many held-out videos and failures to measure on.
    """
    from timerewarder.quickstart import run_quickstart

    return run_quickstart(out, minutes, episodes)
