from .factory import (
    get_reward_model_class,
    make_reward_model,
    make_reward_model_config,
    make_reward_pre_post_processors,
)
from .pretrained import PreTrainedRewardModel

__all__ = [
    "PreTrainedRewardModel",
    "get_reward_model_class",
    "make_reward_model",
    "make_reward_model_config",
    "make_reward_pre_post_processors",
]
