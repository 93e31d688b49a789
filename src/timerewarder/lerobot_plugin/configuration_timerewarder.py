"""What LeRobot is told of a reward model: where it is, which camera it looks at, which frames it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lerobot.configs.rewards import RewardModelConfig

from timerewarder.models.checkpoint import LEROBOT_TYPE, load_description
from timerewarder.rewards import model_folder


@RewardModelConfig.register_subclass(LEROBOT_TYPE)
@dataclass
class TimeRewarderConfig(RewardModelConfig):
    """Configuration of a reward model of type `timerewarder`.

    model: folder or Hub id of a model, from `timerewarder fit` or saved by LeRobot.
    image_key: the camera, such as "observation.images.top"; default: the only one in the batch.
    fitted: what config.json of the timerewarder model says; filled in when the model is loaded.
    """

    model: str | None = None
    image_key: str | None = None
    fitted: dict[str, Any] = field(default_factory=dict)

    @property
    def observation_delta_indices(self) -> list[int]:
        """The frames that the reward of a step needs, the newest being 0: two, and as many more as the model's past."""
        if not self.fitted and self.model is not None:  # LeRobot asks before it makes the model
            self.fitted = describe(self.model)
        history = self.fitted.get("config", {}).get("history", 0)
        return list(range(-1 - history, 1))


def describe(model: str) -> dict[str, Any]:
    """config.json of a timerewarder model."""
    description = load_description(model_folder(model))
    return {name: value for name, value in description.items() if name != "weights"}
