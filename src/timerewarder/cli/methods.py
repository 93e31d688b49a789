"""`fit` and `train`, whose options depend on the method: they read their arguments themselves.

Which options there are follows from --method, their defaults from --preset, --config and --obs. So these are read
first, and the whole command line is made from the dataclass that they name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from timerewarder.cli.options import Camera, Fps, Json, SkipBad, Task, Videos
from timerewarder.config import nearest
from timerewarder.errors import UserError


def fit(arguments: Sequence[str]) -> dict[str, Any]:
    """Learn a reward from videos, without actions or labels."""
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
    from timerewarder.rewards import METHODS
    from timerewarder.train import clone_policy, imitate_policy, train_policy

    method = _peek(arguments, "--method", "drqv2")
    names = ("drqv2", *METHODS, "bc", "bco")
    if method not in names:
        raise UserError(f"unknown method {method!r}{nearest(method, names)}")
    command = dataclasses.make_dataclass("Train", _train_fields(arguments, method, names))
    command.__doc__ = train.__doc__
    given: Any = tyro.cli(command, prog="timerewarder train", args=arguments)
    if method == "bc":
        return clone_policy(given.task, given.demos, given.out, given.training)
    if method == "bco":
        return imitate_policy(given.task, given.demos, given.out, given.training, resume=given.resume)
    reward = given.reward if method == "drqv2" else _fit_first(given)
    return train_policy(
        given.task, reward, given.out, given.training,
        preset=given.preset, resume=given.resume, keep_replay=given.keep_replay,
    )  # fmt: skip


def _train_fields(arguments: Sequence[str], method: str, names: tuple[str, ...]) -> list[Any]:
    """The options of `train --method METHOD`, as fields of a dataclass."""
    from timerewarder.agents import bc, bco
    from timerewarder.agents.presets import PRESETS, preset_named

    learns = method not in ("bc", "bco")
    preset, obs = _peek(arguments, "--preset", "cpu"), _peek(arguments, "--obs", "pixels")
    default: Any = preset_named(preset, obs) if learns else {"bc": bc.Config, "bco": bco.Config}[method]()
    rewarded = "Reward model (folder or Hub id), env (the task's dense one) or sparse (success)."
    shown = "Demonstrations, from `timerewarder demos`; all but bc look at their videos or states only."
    chosen = "DrQ-v2 on --reward; or, from --demos: a reward method to fit first, bc or bco to clone them."
    fields: list[Any] = [
        ("task", _help(str, "Meta-World task, such as drawer-open.")),
        ("reward", _help(str, rewarded)) if method == "drqv2" else ("demos", _help(Path, shown)),
        ("out", _help(Path, "Run folder to write.")),
        ("method", _help(Literal[names], chosen), method),
        ("json", Json, False),
    ]
    if method != "bc":
        fields.append(("resume", _help(bool, "Go on with the run in --out from its last checkpoint."), False))
    if learns:
        presets = "paper is the published table, cpu is for two cores; see docs/training.md."
        keep = "Keep the checkpoint at the end, to prolong the run later with more --frames."
        fields += [
            ("preset", _help(Literal[PRESETS], presets), preset),
            ("keep_replay", _help(bool, keep), False),
        ]
    if learns and method != "drqv2":
        minutes = "Length of the fit in minutes; default: the method's own. For its options, run fit first."
        fields.append(("fit_minutes", _help(float | None, minutes), None))
    fields.append(("training", OmitArgPrefixes[type(default)], dataclasses.field(default=default)))  # type: ignore[misc]
    return fields


def _fit_first(given: Any) -> str:
    """Fit the reward of `train --method METHOD` to its demonstrations, within the run's folder; returns where it is."""
    from timerewarder import api
    from timerewarder.agents.online import Config
    from timerewarder.agents.run_folder import REWARD, check_place
    from timerewarder.envs import tasks

    tasks.task(given.task)  # mistakes are told before the fit
    check_place(given.out, given.resume)
    length = {} if given.fit_minutes is None else {"minutes": given.fit_minutes}
    size = {} if given.training.size == Config.size else {"image_size": given.training.size}
    api.fit(given.demos, given.out / REWARD, method=given.method, **length, **size)
    return str(given.out / REWARD)


def _help(kind: Any, text: str) -> Any:
    return Annotated[kind, tyro.conf.arg(help=text)]


def _peek(arguments: Sequence[str], flag: str, default: str) -> str:
    """The last value of `--flag value` or `--flag=value`, before the full command line can be parsed."""
    value = default
    for position, argument in enumerate(arguments):
        if argument == flag and position + 1 < len(arguments):
            value = arguments[position + 1]
        if argument.startswith(f"{flag}="):
            value = argument.split("=", 1)[1]
    return value
