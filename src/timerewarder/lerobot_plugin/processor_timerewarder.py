"""What LeRobot does with a batch before and after the reward model: next to nothing.

Frames must come as they are, so no statistics are applied to them. They are not moved to the model's device either: the
model resizes them on the CPU and then moves the small ones.
"""

from __future__ import annotations

from typing import Any

from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    PolicyProcessorPipeline,
    policy_action_to_transition,
    transition_to_policy_action,
)
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME

from timerewarder.lerobot_plugin.configuration_timerewarder import TimeRewarderConfig


def make_timerewarder_pre_post_processors(
    config: TimeRewarderConfig, dataset_stats: dict[str, dict[str, Any]] | None = None
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """Pipelines for a batch (dict) before `compute_reward` and for a tensor after it."""
    before = PolicyProcessorPipeline(steps=[AddBatchDimensionProcessorStep()], name=POLICY_PREPROCESSOR_DEFAULT_NAME)
    after = PolicyProcessorPipeline(
        steps=[],
        name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after
