"""The command line: one verb, one function call. `timerewarder VERB --help` explains every option with its default."""

from __future__ import annotations

import dataclasses
import json as jsonlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from timerewarder.config import nearest
from timerewarder.errors import UserError
from timerewarder.progress import console
from timerewarder.serve.limits import Limits

Json = Annotated[bool, tyro.conf.arg(help="Print one JSON object as the last line of the output.")]
Fps = Annotated[float | None, tyro.conf.arg(help="Resample every video to this rate; default: its own frames.")]
SkipBad = Annotated[
    bool, tyro.conf.arg(help="Leave out videos that cannot be read, with a warning, instead of stopping.")
]
Camera = Annotated[
    str | None, tyro.conf.arg(metavar="KEY", help="Of LeRobot datasets: camera to look at; default: the only one.")
]
Task = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="TEXT", help="Of LeRobot datasets: only episodes of this task (its whole text); default: all."
    ),
]
Model = Annotated[str, tyro.conf.arg(metavar="MODEL", help="Model folder, or a Hub id.")]
Videos = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="VIDEO...",
        help="Files and folders, mixed at will: mp4, mov, webm, mkv, avi, gif, npz, npy, folders of images, "
        "LeRobot datasets (v3; folders or Hub ids).",
    ),
]


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


def fit(arguments: Sequence[str]) -> dict[str, Any]:
    """Learn a reward from videos, without actions or labels."""
    # The options depend on --method and their defaults on --preset and --config, so these are read first.
    from timerewarder import api
    from timerewarder.config import from_dict
    from timerewarder.files import read_json
    from timerewarder.rewards import METHODS, method_named, preset_config

    method = _peek(arguments, "--method", "timerewarder")
    default = preset_config(method, _peek(arguments, "--preset", "default"))
    config_file = _peek(arguments, "--config", "")
    if config_file:
        values = read_json(config_file)
        if isinstance(values, dict) and {"format", "config"} <= values.keys():  # a model's own file
            values = values["config"]
        default = from_dict(type(default), values, config_file)
    name = method.replace("-", "_")
    presets = ("default", *(preset for preset in method_named(method).presets if preset != "default"))
    fields: list[Any] = [
        ("videos", Positional[Videos]),
        ("out", _help(Path, "Model folder to write; run again, an interrupted training goes on.")),
        ("method", _help(Literal[tuple(METHODS)], "Reward method; --method M --help shows its options."), method),
        ("preset", _help(Literal[presets], "default measures best on a CPU, paper is the published table."), "default"),
        (
            "config",
            _help(Path | None, "JSON file with the method's options, such as a model's config.json."),
            None,
        ),
        ("camera", Camera, None),
        ("task", Task, None),
        ("fps", Fps, None),
        ("skip_bad", SkipBad, False),
        ("overwrite", _help(bool, "Replace the model in --out if there is one."), False),
        ("json", Json, False),
        (name, OmitArgPrefixes[type(default)], dataclasses.field(default=default)),  # type: ignore[misc]
    ]
    command = dataclasses.make_dataclass("Fit", fields)
    command.__doc__ = fit.__doc__
    given: Any = tyro.cli(command, prog="timerewarder fit", args=arguments)
    reward = api.fit(
        given.videos,
        given.out,
        method=method,
        config=getattr(given, name),
        fps=given.fps,
        skip_bad=given.skip_bad,
        camera=given.camera,
        task=given.task,
        overwrite=given.overwrite,
    )
    return {"model": str(given.out), "method": method, **reward.record}


def train(arguments: Sequence[str]) -> dict[str, Any]:
    """Train a policy on a Meta-World task: DrQ-v2 on a learned reward, its own or success; or cloning."""
    # The options depend on --method and their defaults on --preset and --obs, so these are read first.
    from timerewarder import api
    from timerewarder.agents import bc, bco
    from timerewarder.agents.presets import PRESETS, preset_named
    from timerewarder.agents.run_folder import REWARD, check_place
    from timerewarder.envs import tasks
    from timerewarder.rewards import METHODS
    from timerewarder.train import clone_policy, imitate_policy, train_policy

    method, preset, obs = (
        _peek(arguments, f"--{n}", d) for n, d in (("method", "drqv2"), ("preset", "cpu"), ("obs", "pixels"))
    )
    names = ("drqv2", *METHODS, "bc", "bco")
    if method not in names:
        raise UserError(f"unknown method {method!r}{nearest(method, names)}")
    sources: dict[str, Any] = {
        "reward": _help(str, "Reward model (folder or Hub id), env (the task's dense one) or sparse (success)."),
        "demos": _help(
            Path, "Demonstrations, from `timerewarder demos`; all but bc look at their videos or states only."
        ),
    }
    source = "reward" if method == "drqv2" else "demos"
    chosen = "DrQ-v2 on --reward; or, from --demos: a reward method to fit first, bc or bco to clone them."
    fields: list[Any] = [
        ("task", _help(str, "Meta-World task, such as drawer-open.")),
        (source, sources[source]),
        ("out", _help(Path, "Run folder to write.")),
        ("method", _help(Literal[names], chosen), method),
        ("json", Json, False),
    ]
    default: Any = {"bc": bc.Config, "bco": bco.Config}.get(method, lambda: preset_named(preset, obs))()
    if method != "bc":
        fields.append(("resume", _help(bool, "Go on with the run in --out from its last checkpoint."), False))
    if method not in ("bc", "bco"):
        presets = "paper is the published table, cpu is for two cores; see docs/training.md."
        keep = "Keep the checkpoint at the end, to prolong the run later with more --frames."
        fields += [
            ("preset", _help(Literal[PRESETS], presets), preset),
            ("keep_replay", _help(bool, keep), False),
        ]
    if method in METHODS:
        minutes = "Length of the fit in minutes; default: the method's own. For its options, run fit first."
        fields.append(("fit_minutes", _help(float | None, minutes), None))
    fields.append(("options", OmitArgPrefixes[type(default)], dataclasses.field(default=default)))  # type: ignore[misc]
    command = dataclasses.make_dataclass("Train", fields)
    command.__doc__ = train.__doc__
    given: Any = tyro.cli(command, prog="timerewarder train", args=arguments)
    if method == "bc":
        return clone_policy(given.task, given.demos, given.out, given.options)
    if method == "bco":
        return imitate_policy(given.task, given.demos, given.out, given.options, resume=given.resume)
    reward = given.reward if method == "drqv2" else str(given.out / REWARD)
    if method in METHODS:
        tasks.task(given.task)  # mistakes are told before the fit
        check_place(given.out, given.resume)
        length = {} if given.fit_minutes is None else {"minutes": given.fit_minutes}
        size = {} if given.options.size == default.size else {"image_size": given.options.size}
        api.fit(given.demos, reward, method=method, **length, **size)
    return train_policy(
        given.task, reward, given.out, given.options,
        preset=preset, resume=given.resume, keep_replay=given.keep_replay,
    )  # fmt: skip


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "demos": demos,
    "fit": fit,
    "evaluate": evaluate,
    "score": score,
    "compare": compare,
    "features": features,
    "label": label,
    "serve": serve,
    "push": push,
    "train": train,
    "report": report,
    "quickstart": quickstart,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; a mistake of the user is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_: _say(f"warning: {message}", "yellow")
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        _say(f"error: {error}", "red")
        sys.exit(2)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        path = error.filename2 or error.filename  # the second is the target of a rename
        _say(f"error: cannot use {path} ({error.strerror}): choose another path, or check its permissions", "red")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted; run the same command again to go on (`train`: with --resume)", "yellow")
        sys.exit(130)


def _say(text: str, style: str) -> None:
    """One line on stderr, however long."""
    console.print(" ".join(text.split()), style=style, highlight=False, soft_wrap=True, markup=False)


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return
    if arguments[0] == "--version":
        print(f"timerewarder {version('timerewarder')}")
        return
    verb, *rest = arguments
    if verb == "label":
        rest = _with_value(rest, "--ray", "local")
    if verb not in VERBS:
        raise UserError(f"unknown verb {verb!r}{nearest(verb, VERBS)}")
    result = (
        VERBS[verb](rest) if verb in ("fit", "train") else tyro.cli(VERBS[verb], prog=f"timerewarder {verb}", args=rest)
    )
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks
        _show(result, as_json="--json" in rest)


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(jsonlib.dumps(result))
        return
    for name, value in result.items():
        if not isinstance(value, dict | list):
            print(f"{name:<24}{value:.4f}" if isinstance(value, float) else f"{name:<24}{value}")


def _overview() -> str:
    verbs = [f"  {verb:<12}{(function.__doc__ or '').splitlines()[0]}" for verb, function in VERBS.items()]
    head = ["Dense rewards from passive videos.", "", "usage: timerewarder VERB ...", ""]
    return "\n".join([*head, *verbs, "", "timerewarder VERB --help explains a verb and its options."])


def _help(kind: Any, text: str) -> Any:
    return Annotated[kind, tyro.conf.arg(help=text)]


def _with_value(arguments: list[str], flag: str, value: str) -> list[str]:
    """`arguments` with `value` put after a `flag` that stands without one."""
    bare = [
        argument == flag and (position + 1 == len(arguments) or arguments[position + 1].startswith("-"))
        for position, argument in enumerate(arguments)
    ]
    return [part for argument, alone in zip(arguments, bare, strict=True) for part in [argument, value][: 1 + alone]]


def _peek(arguments: Sequence[str], flag: str, default: str) -> str:
    """The last value of `--flag value` or `--flag=value`, before the full command line can be parsed."""
    value = default
    for position, argument in enumerate(arguments):
        if argument == flag and position + 1 < len(arguments):
            value = arguments[position + 1]
        if argument.startswith(f"{flag}="):
            value = argument.split("=", 1)[1]
    return value
