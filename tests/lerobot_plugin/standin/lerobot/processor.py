"""Pipelines that hand a batch through; LeRobot's also sort it into a transition and back, and can be saved."""

from dataclasses import dataclass, field
from typing import Any


class AddBatchDimensionProcessorStep:
    """Of single pictures (C, H, W); windows are left alone."""

    def __call__(self, batch):
        return {key: value[None] if _is_picture(key, value) else value for key, value in batch.items()}


def _is_picture(key: str, value: Any) -> bool:
    return key.startswith("observation.image") and getattr(value, "ndim", 0) == 3


def policy_action_to_transition(action):
    return {"action": action}


def transition_to_policy_action(transition):
    return transition["action"]


def _same(value):
    return value


@dataclass
class PolicyProcessorPipeline:
    steps: list = field(default_factory=list)
    name: str = "DataProcessorPipeline"
    to_transition: Any = _same
    to_output: Any = _same

    def __call__(self, data):
        data = self.to_transition(data)
        for step in self.steps:
            data = step(data)
        return self.to_output(data)
