"""Reward methods: one method, one file; METHODS is the only table of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from timerewarder.config import from_dict, nearest
from timerewarder.errors import UserError
from timerewarder.models.checkpoint import load_description
from timerewarder.rewards import from_init, order, single_frame, timerewarder
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
    """Read a model folder written by `save`."""
    description = load_description(folder)
    entry = method_named(description.get("method", ""))
    config = from_dict(entry.config, description["config"], f"{folder}/config.json")
    return entry.reward.from_checkpoint(config, description, folder)
