"""`timerewarder train`: reinforcement learning of a Meta-World task on a learned reward, the task's own, or success."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from timerewarder import api
from timerewarder.agents import bc
from timerewarder.agents.online import Config, Loop, evaluate_policy
from timerewarder.agents.replay import bytes_needed
from timerewarder.agents.run_folder import RunFolder
from timerewarder.config import to_dict
from timerewarder.envs import tasks
from timerewarder.envs.worker import Worker
from timerewarder.errors import UserError
from timerewarder.evaluation.episodes import Episode, mean_measures
from timerewarder.models.checkpoint import WEIGHTS
from timerewarder.progress import console
from timerewarder.report.clip import Clip
from timerewarder.report.overlay import write_overlay


def train_policy(
    task: str,
    reward: str,
    out: Path,
    config: Config,
    *,
    preset: str = "paper",
    resume: bool = False,
    keep_replay: bool = False,
) -> dict[str, Any]:
    """Train DrQ-v2; returns where it is and its last evaluation."""
    task = tasks.task(task).name
    name, weights = check_reward(reward, config)
    description = {
        "task": task,
        "reward": reward if reward in ("env", "sparse") else "learned",
        "reward_name": name,
        "reward_model": None if weights is None else reward,
        "reward_weights": weights,
        "obs": config.obs,
        "preset": preset,
        "seed": config.seed,
        "command": _command(),
        "config": to_dict(config),
    }
    folder = RunFolder(out, description, resume)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    torch.set_num_threads(config.threads or max(1, cores - config.beside))
    torch.set_flush_denormal(True)  # gradients that have all but vanished make a CPU slow
    with Worker(config.setting(task, reward), config.beside) as worker:
        needed = bytes_needed(config.replay_capacity, worker.shape, worker.actions)
        console.print(f"replay: {config.replay_capacity:,} frames, {needed / 1e9:.2f} GB when full", highlight=False)
        loop = Loop(reward, config, folder, worker, lambda *seen: film(out, *seen))
        if folder.started:
            loop.resume()
            console.print(f"going on from {loop.env_frames:,} frames", highlight=False)
        if loop.env_frames > config.frames:
            raise UserError(f"{out} stands at {loop.env_frames:,} frames already: give --frames a larger number")
        folder.begin()
        complete = loop.run()
        if complete:
            folder.finish(loop.agent.state_dict(), keep_replay)
        else:
            console.print("stopped and saved; the same command with --resume goes on", highlight=False)
    last = loop.now.eval_rows[-1] if loop.now.eval_rows else {}
    return {"run": str(out), "complete": complete, "alpha": loop.alpha.record, **last}


def clone_policy(task: str, demos: Path, out: Path, config: bc.Config) -> dict[str, Any]:
    """Behaviour cloning on the actions of `demos`, evaluated like every other policy."""
    task = tasks.task(task).name
    replay, setting = bc.read_demonstrations(demos, task, config)
    description = {
        "task": task,
        "reward": "bc",
        "reward_name": "bc",
        "demos": str(demos),
        "obs": config.obs,
        "preset": "bc",
        "seed": config.seed,
        "command": _command(),
        "config": to_dict(config),
    }
    folder = RunFolder(out, description)
    started = time.monotonic()
    agent, rows = bc.clone(replay, config)
    folder.begin()
    folder.write_row("train", rows)
    with Worker(setting, beside=False) as worker:
        episodes = evaluate_policy(agent, worker, config.eval_episodes)
    row = {
        "env_frames": 0,
        "agent_steps": 0,
        "seconds": round(time.monotonic() - started, 2),
        "episodes": len(episodes),
    }
    row |= mean_measures(episodes)
    folder.write_row("eval", [row])
    film(out, 0, episodes)
    folder.finish(agent.state_dict(), keep_replay=False)
    return {"run": str(out), "demonstrations": len(replay), **row}


def _command() -> str:
    return " ".join(["timerewarder", *sys.argv[1:]])


def check_reward(reward: str, config: Config) -> tuple[str, str | None]:
    """The name of a reward and, if it is a model, a hash of its weights; a model that does not fit is an error."""
    if reward in ("env", "sparse"):
        if config.obs == "features":
            raise UserError(
                f"--obs features needs a reward model, not --reward {reward}: give a model, or --obs pixels"
            )
        return reward, None
    model = api.load(reward)
    sees = model.preprocessing.size
    if model.config.encoder == "small" and sees != config.size:
        raise UserError(f"{reward} was fitted to pictures of {sees} px, not {config.size}: pass --size {sees}")
    folder = Path(reward)
    weights = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()[:16] if folder.is_dir() else None
    return model.method, weights or reward


def film(run: Path, env_frames: int, episodes: Sequence[Episode]) -> None:
    """Write the first episode of an evaluation as a video, the reward's running sum beside it."""
    for episode in episodes[:1]:
        assert episode.frames is not None
        rewards = np.concatenate([[0.0], episode.dense]).astype(np.float32)
        clip = Clip(
            name=f"{env_frames} frames", kind="held-out", frames=episode.frames, fps=10.0,
            rewards=rewards, progress=rewards.cumsum(dtype=np.float32), distances=None, unit=len(rewards),
        )  # fmt: skip
        write_overlay(clip, run / "videos" / f"frames_{env_frames:08d}.mp4")
