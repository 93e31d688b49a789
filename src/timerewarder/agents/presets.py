"""Named settings of a training. docs/training.md lists where `cpu` departs from `paper`, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timerewarder.agents import drqv2
from timerewarder.agents.online import Config
from timerewarder.config import from_dict, nearest, to_dict
from timerewarder.errors import UserError

PRESETS = ("cpu", "paper")


def preset_named(name: str, obs: str) -> Config:
    """The options that a preset's name stands for, for a policy that sees `obs`."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}{nearest(name, PRESETS)}")
    paper: Config = from_dict(Config, {**to_dict(Config()), "obs": obs}, "--obs")
    if name == "paper":
        return paper
    pixels = obs == "pixels"
    reward = {"familiar": 2.5, "anchored": True, "reward_form": "progress", "alpha": 0.1}
    quick: dict[str, Any] = {"random_steps": 500, "seed_frames": 2_000, "update_every": 1, **reward}
    agent = drqv2.Config(
        batch=128 if pixels else 256, lr=3e-4, hidden=256, tau=0.01, discount=0.97,
        exploration_colour=1.0, saturation=0.1, bounded=True, encoder="compact", shift=2,
    )  # fmt: skip
    return replace(paper, **quick, policy_size=42 if pixels else None, agent=agent)
