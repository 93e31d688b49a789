"""Checkpoints are data: safetensors for tensors, JSON for everything else, strict, versioned, atomic.

    MODEL/config.json           format, method, configuration, what the model was trained on
    MODEL/weights.safetensors   the network
    MODEL/evaluation.json       the last evaluation, if there was one

LeRobot's `save_pretrained` (lerobot_plugin) writes the same under its own names: `model.safetensors`, and a config.json
that holds ours as `fitted`.

The JSON is written last: a folder with config.json is complete. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from timerewarder.errors import UserError
from timerewarder.files import atomic, read_json, write_json

FORMAT = 1
WEIGHTS, CONFIG, EVALUATION = "weights.safetensors", "config.json", "evaluation.json"
LEROBOT_TYPE, LEROBOT_WEIGHTS = "timerewarder", "model.safetensors"


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    # Not save_file: it hides why a write failed, and makes files that only their owner may read.
    with atomic(path) as temporary:
        temporary.write_bytes(_bytes(tensors))


def fingerprint(tensors: dict[str, Tensor]) -> str:
    """A hash of the file that `save_tensors` would write."""
    return hashlib.sha256(_bytes(tensors)).hexdigest()[:16]


def _bytes(tensors: dict[str, Tensor]) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def load_tensors(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise UserError(
            f"{path} is missing: the checkpoint is incomplete; copy the whole folder again, or fit with --overwrite"
        )
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): copy it again, or fit again") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """What an optimiser has to remember, as `prefix.INDEX.SLOT`."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}.{index}.{slot}": value for index, slots in state.items() for slot, value in slots.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str) -> None:
    """The inverse of `optimizer_tensors`; other names are left alone."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(f"{prefix}."):
            index, slot = name.removeprefix(f"{prefix}.").split(".")
            like = parameters[int(index)]
            # A fused optimiser walks through memory: its averages must lie as the parameter does (channels_last).
            placed = torch.empty_like(like).copy_(tensor) if tensor.shape == like.shape else tensor.clone()
            slots.setdefault(int(index), {})[slot] = placed
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


def save_checkpoint(folder: Path, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a model folder; `description` holds format, method, config and whatever else describes the model."""
    save_tensors(folder / WEIGHTS, tensors)
    write_json(folder / CONFIG, description)


def load_description(folder: Path) -> dict[str, Any]:
    """The JSON of a model folder, checked to be of a format that this version reads; `weights` names the other file."""
    if not folder.exists():
        raise UserError(f"there is no model at {folder}: give the folder that `timerewarder fit --out` wrote")
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} is not a complete model: it has no {CONFIG}; run the same `timerewarder fit` again")
    description, weights = read_json(folder / CONFIG), WEIGHTS
    if isinstance(description, dict) and description.get("type") == LEROBOT_TYPE:
        description, weights = description.get("fitted"), LEROBOT_WEIGHTS
    if not isinstance(description, dict) or not isinstance(description.get("format"), int):
        raise UserError(f"{folder / CONFIG} is not a timerewarder model: it has no format number")
    if description["format"] > FORMAT:
        raise UserError(
            f"{folder} has checkpoint format {description['format']}, this version reads up to {FORMAT}: "
            "upgrade timerewarder (pip install -U timerewarder)"
        )
    if description.get("kind") == "policy":
        raise UserError(f"{folder} is a training run, not a reward model: give the model that it was trained on")
    missing = [key for key in ("method", "config", "encoder") if key not in description]
    if missing:
        raise UserError(f"{folder / CONFIG} lacks {', '.join(missing)}: copy the folder again, or fit with --overwrite")
    return {**description, "weights": weights}
