import numpy as np
import pytest
import torch

from tests.envs.sliding import Slide, model
from timerewarder.rewards import from_init
from timerewarder.rewards.familiarity import thumbnails


@pytest.fixture(scope="module", params=["timerewarder", "with history", "from the first frame"])
def reward(request):
    if request.param == "from the first frame":
        return model(from_init.FromInit)
    return model(history=2 if request.param == "with history" else 0)


@pytest.fixture(scope="module")
def plain():
    return model()


@pytest.fixture
def encoded(plain):
    """How many frames each call of the encoder got."""
    calls = []
    handle = plain.encoder.register_forward_hook(lambda _module, inputs, _out: calls.append(len(inputs[0])))
    yield calls
    handle.remove()


@pytest.fixture
def knowing():
    """A model that knows the left part of the picture, and the beginning of its right part."""
    reward, env = model(), Slide()
    env.reset(seed=5)
    frames = []
    for env.place in np.linspace(0, 0.3, 10):
        frames.append(env.render())
    reward.familiarity.thumbnails = thumbnails(np.stack(frames)).byte()
    reward.familiarity.reach = torch.tensor(300.0)
    reward.record["shortest_video"] = 11
    return reward
