"""What an update and a training step cost, as ratios in one run.

    python benchmarks/agent.py --json
    python benchmarks/agent.py --precision fp32 --json      as on a machine without native bf16

- `update_ratio`: an update of the agent (batch 256, 84 px, stack 3) against a plain one of the same networks: fp32,
  contiguous, shifts by `grid_sample`, Adam one tensor at a time, as in public DrQ-v2, and the allocator as it is by
  default (models/memory.py).
- `kept_memory_gain`: the agent's update with that allocator against the same one with freed memory kept.
- `update_bound`: what that ratio would be if an update took no longer than matrix products of as many operations: more
  cannot be had at this precision on this machine.
- `compile_gain`: passes of the encoder forward and back against the same ones through `torch.compile`.
- `sampling_share`: drawing and shifting a batch, against an update.
- `bytes_a_transition`: of the replay, with episodes of 62 steps.
- `reward_adds`: a training step (simulate, draw, remember, update) with a learned reward of the small encoder and its
  guards against one without, with the preset `cpu` from pixels.
- `cpu_over_paper`: environment frames a second of `cpu` over those of `paper`.
- `deviations`: how much longer a training step of the preset `cpu` takes with one option set back to the paper's.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from timerewarder.agents.drqv2 import Config, DrQv2
from timerewarder.agents.online import Config as Training
from timerewarder.agents.online import Stack
from timerewarder.agents.presets import preset_named
from timerewarder.agents.replay import Replay, Transitions, bytes_needed
from timerewarder.envs.learned import LearnedReward
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.envs.worker import View
from timerewarder.models.memory import keep_freed_memory
from timerewarder.rewards.familiarity import MOST, SIDE
from timerewarder.rewards.timerewarder import Config as RewardConfig
from timerewarder.rewards.timerewarder import TimeRewarder

SIZE, ACTIONS, EPISODE = 84, 4, 62
Precision = Literal["auto", "fp32"]


class Plain:
    """The same networks, updated without care for speed."""

    def __init__(self, agent: DrQv2) -> None:
        self.config = agent.config
        self.conv = copy.deepcopy(agent.encoder.network).to(memory_format=torch.contiguous_format)
        self.actor, self.critic, self.target = (copy.deepcopy(n) for n in (agent.actor, agent.critic, agent.target))
        parts = {"encoder": self.conv, "critic": self.critic, "actor": self.actor}
        self.optimizers = {name: torch.optim.Adam(part.parameters(), foreach=False) for name, part in parts.items()}

    def shift(self, images: Tensor) -> Tensor:
        pad, (count, _, side, _) = self.config.shift, images.shape
        padded = F.pad(images, (pad, pad, pad, pad), "replicate")
        step = 1.0 / (side + 2 * pad)
        line = torch.linspace(-1 + step, 1 - step, side + 2 * pad)[:side]
        grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).expand(count, -1, -1, -1)
        moves = torch.randint(0, 2 * pad + 1, (count, 1, 1, 2)) * 2.0 * step
        return F.grid_sample(padded, grid + moves, padding_mode="zeros", align_corners=False)

    def encode(self, images: np.ndarray) -> Tensor:
        stacked = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float()
        return self.conv(self.shift(stacked) / 255.0 - 0.5)

    def noisy(self, mean: Tensor) -> Tensor:
        return (mean + (0.1 * torch.randn_like(mean)).clamp(-0.3, 0.3)).clamp(-1, 1)

    def update(self, batch: Transitions) -> None:
        action, reward, discount = (torch.from_numpy(a) for a in (batch.action, batch.reward, batch.discount))
        features = self.encode(batch.observation)
        with torch.no_grad():
            following = self.encode(batch.next_observation)
            goal = reward + discount * torch.min(*self.target(following, self.noisy(self.actor(following))))
        q1, q2 = self.critic(features, action)
        self._descend(F.mse_loss(q1, goal) + F.mse_loss(q2, goal), "encoder", "critic")
        features = features.detach()
        self._descend(-torch.min(*self.critic(features, self.noisy(self.actor(features)))).mean(), "actor")
        for target, source in zip(self.target.parameters(), self.critic.parameters(), strict=True):
            target.data.copy_(0.005 * source.data + 0.995 * target.data)

    def _descend(self, loss: Tensor, *names: str) -> None:
        for name in names:
            self.optimizers[name].zero_grad()
        loss.backward()
        for name in names:
            self.optimizers[name].step()


def fill(config: Config, shape: tuple[int, ...] = (SIZE, SIZE, 3), episodes: int = 8) -> Replay:
    rng, kind = np.random.default_rng(0), np.uint8 if len(shape) == 3 else np.float32
    replay = Replay(episodes * (EPISODE + 1), shape, ACTIONS, stack=config.stack, n_step=config.n_step)
    for _ in range(episodes):
        replay.begin(rng.integers(0, 256, shape).astype(kind))
        for _ in range(EPISODE):
            replay.add(rng.uniform(-1, 1, ACTIONS), rng.integers(0, 256, shape).astype(kind), 0.1, False)
    return replay


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The median over some rounds, after one that warms up."""
    work()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def preset(name: str, obs: str, precision: Precision) -> Training:
    config = preset_named(name, obs)
    return replace(config, agent=replace(config.agent, precision=precision))


@functools.cache
def updates(precision: Precision) -> dict[str, Callable[[], object]]:
    """An update of the agent, and a plain one."""
    config = Config(batch=256, precision=precision)
    agent, replay, rng = DrQv2((SIZE, SIZE, 3), ACTIONS, config), fill(config), np.random.default_rng(0)
    plain = Plain(agent)
    unshifted = replay.sample(rng, config.batch, 0.99, 1.0)
    batch = replay.sample(rng, config.batch, 0.99, 1.0, config.shift)
    return {"agent": lambda: agent.update(batch, rng), "plain": lambda: plain.update(unshifted)}


def update_seconds(name: str, precision: Precision) -> float:
    return seconds(updates(precision)[name], 1)


def measure_update(rounds: int, precision: Precision) -> dict[str, float]:
    config = Config(batch=256, precision=precision)
    agent, replay, rng = DrQv2((SIZE, SIZE, 3), ACTIONS, config), fill(config), np.random.default_rng(0)
    times: dict[str, list[float]] = {"agent": [], "sampling": [], "plain": [], "agent, default memory": []}
    # The default allocator is that of a process in which `keep_freed_memory` is not called.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as by_default:
        for _ in range(rounds):  # in turns, so that another program's load meets all
            times["sampling"].append(seconds(lambda: replay.sample(rng, config.batch, 0.99, 1.0, config.shift), 1))
            batch = replay.sample(rng, config.batch, 0.99, 1.0, config.shift)
            times["agent"].append(seconds(lambda batch=batch: agent.update(batch, rng), 1))
            times["plain"].append(by_default.submit(update_seconds, "plain", precision).result())
            times["agent, default memory"].append(by_default.submit(update_seconds, "agent", precision).result())
    update, sample, plain, by_default_memory = (float(np.median(taken)) for taken in times.values())
    with FlopCounterMode(display=False) as counter:
        agent.update(batch, rng)
    return {
        "update_ratio": plain / (update + sample),  # a sample holds the shift, as the plain update does
        "update_bound": plain / (counter.get_total_flops() / product_rate(rounds, agent.bf16)),
        "kept_memory_gain": by_default_memory / update,
        "compile_gain": measure_compiled(agent, batch, rounds),
        "sampling_share": sample / update,
    }


def product_rate(rounds: int, bf16: bool, side: int = 2048) -> float:
    """Operations a second of large matrix products."""
    matrix = torch.rand(side, side, dtype=torch.bfloat16 if bf16 else torch.float32)
    return 2 * side**3 / seconds(lambda: matrix @ matrix, rounds)


def measure_compiled(agent: DrQv2, batch: Transitions, rounds: int) -> float:
    images = torch.from_numpy(batch.observation)
    compiled = torch.compile(agent.encoder)
    times: dict[str, list[float]] = {"plain": [], "compiled": []}
    for _ in range(rounds):
        for name, encoder in (("plain", agent.encoder), ("compiled", compiled)):
            times[name].append(seconds(lambda encoder=encoder: encoder(images).sum().backward(), 1))
    return float(np.median(times["plain"]) / np.median(times["compiled"]))


class TrainingStep:
    """One agent step as the loop takes it, without the worker beside it."""

    def __init__(self, config: Training, reward: TimeRewarder | None) -> None:
        side = config.policy_size or config.size
        agent = config.agent if config.obs == "pixels" else replace(config.agent, stack=1, shift=0)
        self.config = replace(config, agent=agent)
        env: Any = MetaWorld("drawer-open")
        if reward is not None:
            env = LearnedReward(env, reward, 0.0, familiar=config.familiar, anchored=config.anchored)
        self.env, self.steps = View(env, config.obs, side), 0
        shape = self.env.observation_space.shape
        assert shape is not None
        self.replay, self.rng = fill(agent, shape), np.random.default_rng(0)
        self.agent = DrQv2(shape, ACTIONS, agent)
        self.reset()

    def reset(self) -> None:
        observation, _ = self.env.reset(seed=0)
        self.stack = Stack(self.config.agent.stack)
        self.stacked = self.stack(observation)
        self.replay.begin(observation)

    def __call__(self) -> None:
        agent = self.config.agent
        action = self.agent.act(self.stacked, self.rng.normal(size=(1, ACTIONS)))[0]
        observation, reward, _, truncated, info = self.env.step(action)
        self.stacked = self.stack(observation)
        self.replay.add(action, observation, float(reward), info["success"])
        if self.steps % self.config.update_every == 0:
            batch = self.replay.sample(self.rng, agent.batch, agent.discount, 1.0, agent.shift)
            self.agent.update(batch, self.rng)
        self.steps += 1
        if truncated:
            self.reset()


def episode_seconds(step: TrainingStep, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - started


def reward_model() -> TimeRewarder:
    """One of the small encoder, with as many remembered frames as it ever has: what it says does not matter here."""
    torch.manual_seed(0)
    reward = TimeRewarder(RewardConfig()).eval()
    reward.record["shortest_video"] = EPISODE
    reward.familiarity.thumbnails = torch.randint(0, 256, (MOST, 3 * SIDE * SIDE), dtype=torch.uint8)
    return reward


def measure_steps(rounds: int, precision: Precision) -> dict[str, float]:
    cpu, paper = (preset(name, "pixels", precision) for name in ("cpu", "paper"))
    reward = reward_model()
    steps = {
        "with": TrainingStep(cpu, reward),
        "without": TrainingStep(cpu, None),
        "paper": TrainingStep(paper, reward),
    }
    median = step_seconds(steps, rounds)
    return {
        "reward_adds": median["with"] / median["without"] - 1,
        "cpu_over_paper": median["paper"] / median["with"],
    }


def step_seconds(steps: dict[str, TrainingStep], rounds: int) -> dict[str, float]:
    """The median time of a step of each, in turns; of slow ones two at a time are enough."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    counts = {name: 20 if episode_seconds(step, 2) < 1 else 2 for name, step in steps.items()}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(episode_seconds(step, counts[name]) / counts[name])
    return {name: float(np.median(values)) for name, values in times.items()}


def measure_deviations(rounds: int, precision: Precision) -> dict[str, dict[str, float]]:
    """For policies that see pixels and states: what each option that `cpu` changes for time's sake is worth."""
    reward = reward_model()
    found = {}
    for obs, names in (("pixels", ("batch", "hidden", "encoder")), ("state", ("batch", "hidden"))):
        cpu, paper = (preset(name, obs, precision) for name in ("cpu", "paper"))
        settings = {
            name: replace(cpu, agent=replace(cpu.agent, **{name: getattr(paper.agent, name)})) for name in names
        }
        if obs == "pixels":
            settings["policy_size"] = replace(cpu, policy_size=None)
        settings |= {"update_every": replace(cpu, update_every=paper.update_every), "cpu": cpu}
        median = step_seconds({name: TrainingStep(setting, reward) for name, setting in settings.items()}, rounds)
        found[obs] = {name: round(time / median["cpu"], 2) for name, time in median.items() if name != "cpu"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each measurement (default 7)")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32"], help="of the agent (default auto)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    keep_freed_memory()  # as `timerewarder train` does
    frames = 10_000
    result = {
        **measure_update(options.rounds, options.precision),
        "bytes_a_transition": bytes_needed(frames, (SIZE, SIZE, 3), ACTIONS) / frames * (EPISODE + 1) / EPISODE,
        **measure_steps(options.rounds, options.precision),
        "deviations": measure_deviations(options.rounds, options.precision),
        "precision": "bf16" if DrQv2((5,), 1, Config(stack=1, precision=options.precision)).bf16 else "fp32",
        "threads": torch.get_num_threads(),
    }
    for name, value in result.items():
        print(f"{name:<22}{value:.3f}" if isinstance(value, float) else f"{name:<22}{value}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
