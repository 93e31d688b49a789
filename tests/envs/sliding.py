"""A square that slides: an environment whose frames tell how far it is, and models that tell its frames apart."""

import gymnasium
import numpy as np
import torch

from tests.conftest import SIZE
from timerewarder.envs.learned import FinalFrame
from timerewarder.rewards import from_init, timerewarder


class Slide(gymnasium.Env):
    """A square to be pushed to the right edge, in steps of up to 0.15 of the way; success from a quarter on."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, steps=6, size=SIZE, tells="success", render_mode="rgb_array"):
        self.steps, self.size, self.tells, self.render_mode = steps, size, tells, render_mode

    def observe(self):
        return np.array([self.place, self.height], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.height, self.done = 0.0, self.np_random.uniform(), 0
        return self.observe(), {"height": self.height}

    def step(self, action):
        self.place = min(max(self.place + 0.15 * float(action[0]), 0.0), 1.0)
        self.done += 1
        success = self.place > 0.25
        info = {"height": self.height, **({self.tells: success} if self.tells else {})}
        return self.observe(), -self.place, False, self.done >= self.steps, info

    def render(self):
        picture = np.full((self.size, self.size, 3), 30, np.uint8)
        left, top = (round(share * self.size * 0.8) for share in (self.place, self.height))
        side = self.size // 5
        picture[top : top + side, left : left + side] = (240, 200, 60)
        return picture


gymnasium.register("test/Slide-v0", entry_point=Slide)


def model(method=timerewarder.TimeRewarder, **options):
    """Not fitted, but told apart: rewards of different frames differ by much more than rounding."""
    config = {timerewarder.TimeRewarder: timerewarder.Config, from_init.FromInit: from_init.Config}[method]
    torch.manual_seed(0)
    reward = method(config(image_size=SIZE, **options)).eval()
    with torch.no_grad():
        for layer in (module for module in reward.head.modules() if isinstance(module, torch.nn.Linear)):
            layer.weight.mul_(5)
    return reward


def rightwards(steps, count=1):
    """Actions (steps, count, 1) that push to the right."""
    return np.random.default_rng(0).uniform(0.3, 1, (steps, count, 1)).astype(np.float32)


def makers(final_frames, count=3):
    """Sub-environments whose episodes end at different times."""

    def make(steps):
        return FinalFrame(Slide(steps=steps)) if final_frames else Slide(steps=steps)

    return [lambda steps=steps: make(steps) for steps in range(3, 3 + count)]
