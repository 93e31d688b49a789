"""The stand-in has LeRobot's names, fields and signatures; compared where LeRobot is installed."""

import json
import subprocess
import sys

import pytest

from tests.lerobot_plugin.conftest import STANDIN

DESCRIBE = """
import dataclasses, inspect, json, sys
from importlib import import_module

places = {
    "lerobot.configs.rewards": [
        "RewardModelConfig.from_pretrained", "RewardModelConfig.save_pretrained",
        "RewardModelConfig._save_pretrained", "RewardModelConfig.register_subclass",
        "RewardModelConfig.get_choice_class", "RewardModelConfig.get_choice_name",
    ],
    "lerobot.configs.parser": ["load_plugin"],
    "lerobot.rewards": [
        "PreTrainedRewardModel.__init__", "PreTrainedRewardModel.from_pretrained",
        "PreTrainedRewardModel.save_pretrained", "PreTrainedRewardModel.compute_reward",
        "PreTrainedRewardModel.forward", "PreTrainedRewardModel.reset", "PreTrainedRewardModel.get_optim_params",
        "get_reward_model_class", "make_reward_model", "make_reward_model_config", "make_reward_pre_post_processors",
    ],
    "lerobot.processor": ["policy_action_to_transition", "transition_to_policy_action"],
}
found = {}
for module, names in places.items():
    for name in names:
        value = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        kinds = {n: p for n, p in inspect.signature(value).parameters.items() if p.kind is not p.VAR_KEYWORD}
        found[f"{module}.{name}"] = [(n, p.kind.name, repr(p.default)) for n, p in kinds.items()]

from lerobot.configs.rewards import RewardModelConfig
from lerobot.processor import AddBatchDimensionProcessorStep, PolicyProcessorPipeline
from lerobot.utils import constants

found["fields"] = [field.name for field in dataclasses.fields(RewardModelConfig)]
pipeline = getattr(PolicyProcessorPipeline, "__origin__", PolicyProcessorPipeline)  # of an alias, its class
found["pipeline"] = list(inspect.signature(pipeline).parameters)[:4]
found["constants"] = [constants.POLICY_PREPROCESSOR_DEFAULT_NAME, constants.POLICY_POSTPROCESSOR_DEFAULT_NAME]
print(json.dumps(found))
"""


def described(*path: str) -> dict:
    script = f"import sys; sys.path[:0] = {list(path)!r}\n{DESCRIBE}"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def test_is_like_the_real_one(real_lerobot):
    if not real_lerobot:
        pytest.skip("LeRobot is not installed (it needs Python 3.12)")
    assert described(str(STANDIN)) == described()
