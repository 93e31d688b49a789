"""Reward methods: one method, one file; METHODS is the only table of names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from timerewarder.config import from_dict, nearest
from timerewarder.data import hub
from timerewarder.errors import UserError
from timerewarder.files import read_json
from timerewarder.models.checkpoint import EVALUATION, load_description
from timerewarder.rewards import (
    ads,
    from_init,
    gaifo,
    gvl,
    orca,
    order,
    ot,
    progressor,
    rank2reward,
    single_frame,
    temporal_ot,
    timerewarder,
    vip,
)
from timerewarder.rewards.reward import FrameReward


class Method(NamedTuple):
    """What a method's file offers: its options, `fit(videos, config, folder) -> reward`, its reward, named presets."""

    config: type[Any]
    fit: Callable[..., FrameReward]
    reward: type[FrameReward]
    presets: Mapping[str, Any] = {}


METHODS: dict[str, Method] = {
    "timerewarder": Method(timerewarder.Config, timerewarder.fit, timerewarder.TimeRewarder, timerewarder.PRESETS),
    "from-init": Method(from_init.Config, from_init.fit, from_init.FromInit),
    "single-frame": Method(single_frame.Config, single_frame.fit, single_frame.SingleFrame),
    "order": Method(order.Config, order.fit, order.OrderPrediction),
    "vip": Method(vip.Config, vip.fit, vip.VIP, vip.PRESETS),
    "progressor": Method(progressor.Config, progressor.fit, progressor.Progressor),
    "rank2reward": Method(rank2reward.Config, rank2reward.fit, rank2reward.Rank2Reward),
    "gaifo": Method(gaifo.Config, gaifo.fit, gaifo.GAIfO),
    "ot": Method(ot.Config, ot.fit, ot.OT),
    "ads": Method(ads.Config, ads.fit, ads.ADS),
    "temporal-ot": Method(temporal_ot.Config, temporal_ot.fit, temporal_ot.TemporalOT),
    "orca": Method(orca.Config, orca.fit, orca.ORCA),
    "gvl": Method(gvl.Config, gvl.fit, gvl.GVL),
}


def method_named(name: str) -> Method:
    if name not in METHODS:
        raise UserError(f"unknown method {name!r}{nearest(name, METHODS)}")
    return METHODS[name]


def preset_config(method: str, preset: str = "default") -> Any:
    """The configuration that a preset's name stands for."""
    entry = method_named(method)
    presets = {"default": entry.config(), **entry.presets}
    if preset not in presets:
        raise UserError(f"unknown preset {preset!r} of {method}{nearest(preset, presets)}")
    return presets[preset]


def load_local(folder: Path) -> FrameReward:
    """Read a model folder written by `save`, and the evaluation beside it."""
    description = load_description(folder)
    entry = method_named(description.get("method", ""))
    config = from_dict(entry.config, description["config"], f"{folder}/config.json")
    reward = entry.reward.from_checkpoint(config, description, folder)
    reward.evaluation = _last_evaluation(folder / EVALUATION)
    return reward


def load(model: str | Path) -> FrameReward:
    """Read a model from a folder, or from the Hub by its id (`user/model`)."""
    return load_local(model_folder(model))


def model_folder(model: str | Path, **options: Any) -> Path:
    """Where a model's files are; fetches those of a Hub id, with options of `huggingface_hub.snapshot_download`."""
    folder = Path(model)
    if not folder.exists() and isinstance(model, str) and model.count("/") == 1 and not model.startswith((".", "/")):
        return hub.download(model, "model", ["*.json", "*.safetensors"], **options)
    return folder


def _last_evaluation(path: Path) -> dict[str, Any] | None:
    """What `evaluate` wrote; a model can be used, and evaluated again, without it."""
    if not path.exists():
        return None
    try:
        evaluation: Any = read_json(path)
        if _is_evaluation(evaluation):
            return dict(evaluation)
        reason = f"{path} is not an evaluation"
    except UserError as error:
        reason = str(error)
    warnings.warn(f"{reason}: run `timerewarder evaluate` again", stacklevel=2)
    return None


def _is_evaluation(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    finals = value.get("final_values")
    return (
        isinstance(value.get("metrics"), dict)
        and isinstance(finals, dict)
        and all(isinstance(of_kind, dict) for of_kind in finals.values())
    )
