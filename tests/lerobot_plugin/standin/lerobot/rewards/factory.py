"""How LeRobot finds the parts of a plug-in: by the names of its classes, modules and functions."""

import importlib

from lerobot.configs.rewards import RewardModelConfig


def get_reward_model_class(name):
    config_class = RewardModelConfig.get_choice_class(name)
    module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    return getattr(module, config_class.__name__.removesuffix("Config") + "RewardModel")


def make_reward_model_config(reward_type, **kwargs):
    return RewardModelConfig.get_choice_class(reward_type)(**kwargs)


def make_reward_model(cfg, **kwargs):
    reward_class = get_reward_model_class(cfg.type)
    kwargs["config"] = cfg
    if cfg.pretrained_path:
        kwargs["pretrained_name_or_path"] = cfg.pretrained_path
        kwargs["revision"] = cfg.pretrained_revision
        model = reward_class.from_pretrained(**kwargs)
    else:
        model = reward_class(**kwargs)
    return model.to(cfg.device)


def make_reward_pre_post_processors(reward_cfg, **kwargs):
    module = importlib.import_module(type(reward_cfg).__module__.replace("configuration_", "processor_"))
    make = getattr(module, f"make_{reward_cfg.type}_pre_post_processors")
    return make(reward_cfg, dataset_stats=kwargs.get("dataset_stats"))
