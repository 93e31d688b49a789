"""Behaviour cloning, the paper's privileged reference: it alone sees the experts' actions.

L = |pi(o_t) - a_t|^2    over the demonstrations of `timerewarder demos`, with the networks of the DrQ-v2 actor
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file

from timerewarder.agents import drqv2
from timerewarder.agents.drqv2 import DrQv2
from timerewarder.agents.replay import Replay
from timerewarder.data.store import open_store
from timerewarder.envs.demos import read_index
from timerewarder.envs.worker import Seen, Setting
from timerewarder.errors import UserError
from timerewarder.progress import track


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of behaviour cloning."""

    obs: Seen = "pixels"
    """What the policy sees: pixels, or the simulator's state."""
    updates: int = 5_000
    """Steps of gradient descent."""
    seed: int = 0
    """Seed of the networks and the batches."""
    eval_episodes: int = 10
    """Episodes of the evaluation."""
    size: int = 84
    """Side of the picture in pixels."""
    agent: drqv2.Config = field(default_factory=lambda: drqv2.Config(batch=128, lr=3e-4, hidden=512, encoder="compact"))

    def __post_init__(self) -> None:
        if self.obs == "features":
            raise UserError("behaviour cloning has no reward model to take features from: use --obs pixels or state")
        if self.updates < 1 or self.eval_episodes < 1 or self.seed < 0:
            raise UserError("--updates and --eval-episodes must be at least 1, --seed at least 0")


def read_demonstrations(folder: Path, task: str, config: Config) -> tuple[Replay, Setting]:
    """The demonstrations that `timerewarder demos` wrote, to draw from, and the setting they were made in."""
    made, episodes = read_index(folder, task)
    setting = Setting(
        task=task, reward="env", obs=config.obs, size=config.size, camera=made["camera"],
        action_repeat=made["action_repeat"], ranges=made["ranges"], render=made["render"], horizon=made["horizon"],
    )  # fmt: skip
    trajectories = [load_file(folder / row["trajectory"]) for row in episodes]
    pixels = config.obs == "pixels"
    shape = (config.size, config.size, 3) if pixels else trajectories[0]["observations"].shape[1:]
    stack = config.agent.stack if pixels else 1
    replay = Replay(sum(len(t["observations"]) for t in trajectories) + 8, shape, 4, stack=stack, n_step=1)
    for row, trajectory in zip(track(episodes, "Reading demonstrations"), trajectories, strict=True):
        observations = trajectory["observations"].astype(np.float32)
        if pixels:
            store = open_store(folder / row["file"], config.size)
            observations = store.frames(0, np.arange(store.lengths[0]))
        replay.begin(observations[0])
        for action, observation in zip(trajectory["actions"], observations[1:], strict=True):
            replay.add(action, observation, 0.0, False)
    return replay, setting


def clone(replay: Replay, config: Config) -> tuple[DrQv2, list[dict[str, float]]]:
    """Fit the actor to the demonstrations' actions; returns the agent and a log of its loss."""
    agent_config = config.agent if len(replay.shape) == 3 else replace(config.agent, stack=1, shift=0)
    agent = DrQv2(replay.shape, replay.actions, agent_config, config.seed)
    optimizer = torch.optim.Adam([*agent.encoder.parameters(), *agent.actor.parameters()], agent_config.lr, fused=True)
    rows: list[dict[str, float]] = []
    losses: list[torch.Tensor] = []
    for update in track(range(config.updates), "Cloning"):
        rng = np.random.default_rng([config.seed, update])
        batch = replay.sample(rng, agent_config.batch, 1.0, 0.0, agent_config.shift)
        with torch.autocast(agent.device.type, torch.bfloat16, enabled=agent.bf16):
            observation = torch.from_numpy(batch.observation).to(agent.device)
            predicted = agent.actor(agent.encoder(observation)).float()
        loss = F.mse_loss(predicted, torch.from_numpy(batch.action).to(agent.device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if len(losses) == 100 or update == config.updates - 1:
            rows.append({"env_frames": 0, "updates": update + 1, "action_error": float(torch.stack(losses).mean())})
            losses = []
    return agent, rows
