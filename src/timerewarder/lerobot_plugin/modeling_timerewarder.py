"""A timerewarder model behind LeRobot's interface: windows of frames in, the reward of each window's last step out.

`save_pretrained` writes what LeRobot writes, config.json and model.safetensors. Such a folder is complete, and
`timerewarder.load` reads it like any model of its own; `from_pretrained` reads both kinds, from a folder or the Hub.

It is trained by `timerewarder fit`, which also takes LeRobot datasets; for `lerobot-train` it is a model that is not
trainable.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.rewards import RewardModelConfig
from lerobot.rewards.pretrained import PreTrainedRewardModel
from torch import Tensor

from timerewarder.errors import UserError
from timerewarder.files import read_json
from timerewarder.lerobot_plugin.configuration_timerewarder import TimeRewarderConfig
from timerewarder.models.checkpoint import CONFIG, LEROBOT_TYPE, LEROBOT_WEIGHTS, save_tensors
from timerewarder.rewards import load_local, model_folder
from timerewarder.rewards.reward import FrameReward

IMAGES = "observation.image"  # LeRobot's cameras are observation.image or observation.images.NAME
PADDED = "_is_pad"  # what LeRobot adds to the name of a window to say which of its frames are repetitions


class TimeRewarderRewardModel(PreTrainedRewardModel):
    """A reward model of LeRobot around a `FrameReward`."""

    name = LEROBOT_TYPE
    config_class = TimeRewarderConfig

    def __init__(
        self,
        config: TimeRewarderConfig,
        reward: FrameReward | None = None,
        dataset_stats: Any = None,
        dataset_meta: Any = None,
    ) -> None:
        """Around `reward`, or else the model that `config.model` names. The dataset's statistics are not needed."""
        super().__init__(config)
        if reward is None:
            if config.model is None:
                raise UserError(
                    "a reward model of type timerewarder needs its weights: set --reward_model.model to the folder or "
                    "Hub id of a model, from `timerewarder fit` or saved by LeRobot"
                )
            reward = load_local(model_folder(config.model))
        if not reward.streams:
            raise UserError(
                f"{reward.method} rewards whole episodes, not the last step of a window: "
                "label the dataset with `timerewarder label`, or choose another method"
            )
        self.reward = reward
        config.fitted = reward.description

    @torch.no_grad()
    def compute_reward(self, batch: dict[str, Tensor]) -> Tensor:
        """The reward for the step between the last two frames of each window, float32 (B,).

        The camera's windows are (B, T, C, H, W) with T >= 2, float in [0, 1] or uint8, oldest frame first, as LeRobot
        reads them with `observation_delta_indices`. Where the last frame begins its episode, the reward is 0.
        """
        key = self.config.image_key or _only_camera(batch)
        if key not in batch:
            raise UserError(f"the batch has no {key}: set image_key to one of {', '.join(_cameras(batch)) or 'none'}")
        images, padded = batch[key], batch.get(f"{key}{PADDED}")
        if padded is not None and padded.ndim == 1:  # an item of a dataset, not yet in a batch
            images, padded = images[None], padded[None]
        windows = self._needed(_to_frames(images, key))
        features = self.reward.encode(windows.reshape(-1, *windows.shape[2:])).unflatten(0, windows.shape[:2])
        rewards = torch.stack([self.reward.compare(window)[-1] for window in features]).float()
        if padded is not None:
            rewards[padded[:, -2].to(rewards.device)] = 0
        return rewards

    def _needed(self, windows: np.ndarray) -> np.ndarray:
        """Of windows (B, T, ...) the first frame, which some methods compare with, and as many last ones as matter."""
        recent = self.reward.history + 2
        if windows.shape[1] <= recent:
            return windows
        return np.concatenate([windows[:, :1], windows[:, -recent:]], axis=1)

    def _save_pretrained(self, save_directory: Path) -> None:
        save_tensors(save_directory / LEROBOT_WEIGHTS, self.reward.state_dict())
        dataclasses.replace(self.config, model=None, fitted=self.reward.description)._save_pretrained(save_directory)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path: str | Path,
        *,
        config: RewardModelConfig | None = None,
        force_download: bool = False,
        resume_download: bool | None = None,
        proxies: dict[str, str] | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        strict: bool = True,
        **kwargs: Any,
    ) -> TimeRewarderRewardModel:
        """Read a folder, or a Hub id, that LeRobot or timerewarder saved. Always strict: all weights, no others.

        `resume_download` and `proxies` are part of LeRobot's signature; huggingface_hub has no use for them any more.
        """
        folder = Path(pretrained_name_or_path)
        if not folder.is_dir():
            folder = model_folder(
                str(pretrained_name_or_path),
                force_download=force_download,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                revision=revision,
            )
        reward = load_local(folder)
        if config is None:
            saved_by_lerobot = read_json(folder / CONFIG).get("type") == LEROBOT_TYPE
            config = RewardModelConfig.from_pretrained(folder) if saved_by_lerobot else cls.config_class()
        if not isinstance(config, cls.config_class):
            raise UserError(f"{folder} is a timerewarder model, but the configuration is a {type(config).__name__}")
        model = cls(config, reward, **kwargs)
        return model.to(config.device).eval()


def _cameras(batch: dict[str, Any]) -> list[str]:
    return sorted(key for key in batch if key.startswith(IMAGES) and not key.endswith(PADDED))


def _only_camera(batch: dict[str, Any]) -> str:
    cameras = _cameras(batch)
    if len(cameras) != 1:
        found = f"several cameras ({', '.join(cameras)})" if cameras else f"no camera ({IMAGES}...)"
        raise UserError(f"the batch has {found}: set --reward_model.image_key to the one to look at")
    return cameras[0]


def _to_frames(images: Tensor, key: str) -> np.ndarray:
    """(B, T, C, H, W) or (B, T, H, W, C), float in [0, 1] or uint8 -> uint8 (B, T, H, W, 3)."""
    shape = tuple(images.shape)
    if images.ndim != 5 or shape[1] < 2:
        raise UserError(
            f"{key} must be windows (B, T, C, H, W) of at least 2 frames, not {shape}: read the dataset with the "
            "delta_timestamps that observation_delta_indices stands for"
        )
    if shape[2] == 3:
        images = images.movedim(2, -1)
    elif shape[-1] != 3:
        raise UserError(f"{key} must have 3 colours, (B, T, 3, H, W), not {shape}")
    if images.is_floating_point():
        low, high = images.min().item(), images.max().item()
        if not (low >= -1e-3 and high <= 1.001):  # also if not a number
            raise UserError(f"{key} must lie in [0, 1], not {low:.3g} to {high:.3g}: give frames without normalisation")
        images = images.float().mul(255).round().clamp(0, 255).to(torch.uint8)
    if images.dtype != torch.uint8:
        raise UserError(f"{key} must be float in [0, 1] or uint8, not {images.dtype}")
    return images.cpu().numpy()
