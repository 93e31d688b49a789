"""The Python API: videos in, reward out."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

from accelerate import PartialState

from timerewarder.config import differing_keys, from_dict, to_dict
from timerewarder.data.search import Sources, is_hub_id
from timerewarder.data.source import Opening
from timerewarder.data.store import open_store
from timerewarder.errors import UserError
from timerewarder.evaluation import metrics
from timerewarder.files import write_json
from timerewarder.models.checkpoint import CONFIG, EVALUATION, WEIGHTS
from timerewarder.rewards import load, load_local, method_named, preset_config
from timerewarder.rewards.reward import FrameReward


def fit(
    videos: Sources,
    out: str | Path | None = None,
    *,
    method: str = "timerewarder",
    preset: str = "default",
    config: Any = None,
    fps: float | None = None,
    skip_bad: bool = False,
    camera: str | None = None,
    task: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> FrameReward:
    """Learn a reward from videos (files, folders and LeRobot datasets, mixed at will).

    `options` are fields of the method's Config or of its training (`encoder="small"`, `minutes=1`, ...), on top of
    `preset` or of a whole `config`. With `out` the model is saved there, and a training that was interrupted goes on;
    if the same model is already there, it is loaded. `fps`, `skip_bad`, `camera` and `task` are those of `read_videos`.
    """
    opening = Opening(fps, skip_bad, camera, task)
    config = with_options(config if config is not None else preset_config(method, preset), options).resolved()
    if out is None:
        return method_named(method).fit(videos, config, None, opening=opening)
    out = Path(out)
    _check_writable(out)
    if overwrite and out.exists() and any(out.iterdir()):
        pre = method_named(method).reward(config).preprocessing
        open_store(videos, pre.size, pre.how, opening)  # a mistake in the videos must not cost the old model
        _remove_model(out)
    elif (out / CONFIG).exists():
        return _reuse(out, method, config, videos, opening)
    elif out.exists() and any(out.iterdir()) and not (out / "training").exists():
        raise UserError(f"{out} exists and is not a model: choose another --out")
    reward = method_named(method).fit(videos, config, out / "training", opening=opening)
    if PartialState().is_main_process:
        reward.save(out)
        for tensors in (out / "training").glob("*.safetensors"):  # only a resume needs them
            tensors.unlink()
    return reward


def evaluate(
    reward: FrameReward,
    videos: Sources,
    failures: Sources | None = None,
    *,
    fps: float | None = None,
    skip_bad: bool = False,
    camera: str | None = None,
    task: str | None = None,
) -> dict[str, float | None]:
    """VOC and its controls on held-out videos; with `failures` also how well final values tell them apart."""
    evaluation = _evaluation(reward, videos, failures, Opening(fps, skip_bad, camera, task))
    reward.evaluation = {"videos": [], "failures": [], **dataclasses.asdict(evaluation)}
    return evaluation.metrics


def evaluate_model(
    model: str | Path,
    videos: Sources,
    failures: Sources | None = None,
    *,
    fps: float | None = None,
    skip_bad: bool = False,
    camera: str | None = None,
    task: str | None = None,
) -> dict[str, float | None]:
    """`evaluate`, kept as evaluation.json in the model's folder, where `report` finds it."""
    opening = Opening(fps, skip_bad, camera, task)
    evaluation = _evaluation(load(model), videos, failures, opening)
    if Path(model).is_dir():
        places = {"videos": absolute(videos), "failures": absolute(failures or ()), **dataclasses.asdict(opening)}
        write_json(Path(model) / EVALUATION, {**places, **dataclasses.asdict(evaluation)})
    return evaluation.metrics


def _evaluation(reward: FrameReward, videos: Sources, failures: Sources | None, opening: Opening) -> metrics.Evaluation:
    pre = reward.preprocessing
    success_store = open_store(videos, pre.size, pre.how, opening)
    failure_store = open_store(failures, pre.size, pre.how, opening) if failures else None
    return metrics.evaluate(reward, success_store, failure_store)


def absolute(sources: Sources) -> list[str]:
    """Names that hold in every folder; an id of the Hub does as it is."""
    given = [sources] if isinstance(sources, str | Path) else sources
    return [str(source) if is_hub_id(source) else str(Path(source).resolve()) for source in given]


def with_options(config: Any, options: dict[str, Any]) -> Any:
    """`config` with some fields replaced, those of its training included; an unknown name is an error."""
    values = to_dict(config)
    training = {field.name for field in dataclasses.fields(config.training)} if "training" in values else set()
    for name, value in options.items():
        (values["training"] if name in training else values)[name] = value
    return from_dict(type(config), values, "option")


def _reuse(out: Path, method: str, config: Any, videos: Sources, opening: Opening) -> FrameReward:
    """The model in `out`, if it is the one that the same `fit` would make."""
    saved = load_local(out)
    pre = saved.preprocessing
    data = open_store(videos, pre.size, pre.how, opening).fingerprint
    different = differing_keys(
        {"method": saved.method, "videos": saved.record.get("data"), **to_dict(saved.config)},
        {"method": method, "videos": data, **to_dict(config)},
    )
    if different:
        raise UserError(
            f"{out} holds a model with other settings ({', '.join(different)}): "
            "choose another --out, or add --overwrite"
        )
    return saved


def _check_writable(out: Path) -> None:
    """A folder that cannot be made or written to is an error before the training, not after it."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UserError(f"{out} cannot be a model folder because {there} is a file: choose another --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there} cannot be written to: choose another --out, or change its permissions")


def _remove_model(out: Path) -> None:
    """Delete what `fit` wrote, nothing else."""
    if not (out / CONFIG).exists() and not (out / "training").exists():
        raise UserError(f"{out} is not a model, so --overwrite does not touch it: choose another --out")
    shutil.rmtree(out / "training", ignore_errors=True)
    (out / "training").mkdir(exist_ok=True)  # the mark of a model's folder, should the next fit be interrupted at once
    for name in (CONFIG, WEIGHTS, EVALUATION, "log.csv"):
        (out / name).unlink(missing_ok=True)
