"""Configuration: round trip and strictness."""

import dataclasses
import json

import pytest

from timerewarder.config import differing_keys, from_dict, to_dict
from timerewarder.errors import UserError
from timerewarder.rewards import METHODS, preset_config


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_survives_a_file(method):
    for preset in ("default", *METHODS[method].presets):
        config = preset_config(method, preset)
        assert from_dict(type(config), json.loads(json.dumps(to_dict(config)))) == config


def test_unknown_key_names_the_nearest():
    config = preset_config("timerewarder")
    with pytest.raises(UserError, match=r"clip_frame.*did you mean clip_frames"):
        from_dict(type(config), {"clip_frame": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bins": "many"}, "config.bins: expected int"),
        ({"bins": True}, "config.bins: expected int"),
        ({"pairing": "both"}, "not one of shared, independent"),
        ({"training": {"ema": None}}, "config.training.ema: expected float"),
        ({"training": 3}, "config.training: expected an object"),
        ({"clip_frames": 7}, "even number"),
        ({"negatives": False}, "--antisymmetric no"),
        ({"training": {"minutes": -1}}, "positive"),
        ({"training": {"ema": 1.0}}, "not including, 1"),
    ],
)
def test_bad_values_are_errors(values, message):
    with pytest.raises(UserError, match=message):
        from_dict(METHODS["timerewarder"].config, values)


def test_integers_become_floats():
    assert from_dict(METHODS["timerewarder"].config, {"training": {"minutes": 2}}).training.minutes == 2.0


def test_differing_keys_are_dotted():
    config = preset_config("timerewarder")
    other = dataclasses.replace(config, bins=5, training=dataclasses.replace(config.training, lr=1.0))
    assert differing_keys(to_dict(config), to_dict(other)) == ["bins", "training.lr"]
