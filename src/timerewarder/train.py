"""`timerewarder train`: reinforcement learning of a Meta-World task on a learned reward, the task's own, or success."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from timerewarder import api
from timerewarder.agents import bc, bco
from timerewarder.agents.judge import Judge
from timerewarder.agents.online import Config, Loop, evaluate_policy
from timerewarder.agents.replay import bytes_needed
from timerewarder.agents.run_folder import RunFolder
from timerewarder.config import to_dict
from timerewarder.envs import tasks
from timerewarder.envs.worker import Worker
from timerewarder.errors import UserError
from timerewarder.evaluation.episodes import FILMED, Episode, evaluation_seed, mean_measures
from timerewarder.models.checkpoint import fingerprint
from timerewarder.models.memory import keep_freed_memory
from timerewarder.progress import console
from timerewarder.report.clip import Clip
from timerewarder.report.mosaic import write_mosaic
from timerewarder.report.overlay import write_overlay
from timerewarder.rewards.online import by_episode
from timerewarder.rewards.reward import FrameReward


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
    model = None if reward in ("env", "sparse") else api.load(reward)
    check_reward(reward, model, config)
    if model is None or by_episode(model) or not model.is_value:
        # These speak of the steps of a value.
        config = replace(config, familiar=None, anchored=False, reward_form="steps")
    elif model.history:
        config = replace(config, anchored=False)  # it compares single frames
    description = {
        "task": task,
        "reward": reward if reward in ("env", "sparse") else "learned",
        "reward_name": reward if model is None else model.method,
        "reward_model": None if model is None else reward,
        "reward_weights": None if model is None else fingerprint(model.state_dict()),
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
    keep_freed_memory()
    with Worker(config.setting(task, reward), config.beside) as worker:
        judge = Judge(model, config.reward_every) if model is not None and by_episode(model) else None
        kept = judge.features if judge else 0
        needed = bytes_needed(config.replay_capacity, worker.shape, worker.actions, kept)
        console.print(f"replay: {config.replay_capacity:,} frames, {needed / 1e9:.2f} GB when full", highlight=False)
        filmed = partial(film, out, model=model)
        loop = Loop(reward, config, folder, worker, judge, filmed)
        if folder.started:
            loop.resume()
            console.print(f"going on from {loop.env_frames:,} frames", highlight=False)
            if loop.env_frames > config.frames < folder.frames:
                raise UserError(f"{out} stands at {loop.env_frames:,} frames already: give --frames a larger number")
        _draw_once(worker)
        folder.begin()
        complete = loop.run()
        if complete:
            folder.finish(loop.agent.state_dict(), keep_replay)
        else:
            console.print("stopped and saved; the same command with --resume goes on", highlight=False)
    last = loop.now.eval_rows[-1] if loop.now.eval_rows else {}
    return {"run": str(out), "complete": complete, "alpha": loop.alpha.record, **last}


def _draw_once(worker: Worker) -> None:
    """Whatever is wrong with drawing is told before the folder is taken, and once, not by every process as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worker.reset(evaluation_seed(0))
        worker.frame()


def imitate_policy(task: str, demos: Path, out: Path, config: bco.Config, *, resume: bool = False) -> dict[str, Any]:
    """Behavioural cloning from observation: demonstrations without their actions, and interaction of its own."""
    task = tasks.task(task).name
    demonstrations = bco.read_demonstrations(demos, task, config)
    folder = RunFolder(out, _imitation("bco", task, demos, config), resume)
    torch.set_flush_denormal(True)
    with Worker(demonstrations.setting, beside=False) as worker:
        loop = bco.Loop(demonstrations, config, folder, worker, partial(film, out))
        if folder.started:
            loop.resume()
            console.print(f"going on from {loop.env_frames:,} frames", highlight=False)
        folder.begin()
        loop.run()
        folder.finish(loop.agent.state_dict(), keep_replay=False)
    return {"run": str(out), "demonstrations": len(demonstrations.observations), **loop.now.eval_rows[-1]}


def _imitation(method: str, task: str, demos: Path, config: Any) -> dict[str, Any]:
    """What a run folder says of a policy that was cloned."""
    return {
        "task": task,
        "reward": method,
        "reward_name": method,
        "demos": str(demos),
        "obs": config.obs,
        "preset": method,
        "seed": config.seed,
        "command": _command(),
        "config": to_dict(config),
    }


def clone_policy(task: str, demos: Path, out: Path, config: bc.Config) -> dict[str, Any]:
    """Behaviour cloning on the actions of `demos`, evaluated like every other policy."""
    task = tasks.task(task).name
    replay, setting = bc.read_demonstrations(demos, task, config)
    folder = RunFolder(out, _imitation("bc", task, demos, config))
    started = time.monotonic()
    agent, rows = bc.clone(replay, config)
    with Worker(setting, beside=False) as worker:
        episodes = evaluate_policy(agent, worker, config.eval_episodes)
    folder.begin()  # at the end: cloning is not resumed, and after a kill the same command begins anew
    folder.write_row("train", rows)
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


def check_reward(reward: str, model: FrameReward | None, config: Config) -> None:
    """A reward that does not fit the training is an error."""
    if model is None:
        if config.obs == "features":
            raise UserError(
                f"--obs features needs a reward model, not --reward {reward}: give a model, or --obs pixels"
            )
        return
    sees = model.preprocessing.size
    if getattr(model.config, "encoder", None) == "small" and sees != config.size:
        raise UserError(f"{reward} was fitted to pictures of {sees} px, not {config.size}: pass --size {sees}")
    if config.familiar is not None and model.is_value and not len(model.familiarity.thumbnails):
        warnings.warn(
            f"{reward} remembers no pictures, as of a fit to a single video, so --familiar guards nothing", stacklevel=2
        )


def film(run: Path, env_frames: int, episodes: Sequence[Episode], model: FrameReward | None = None) -> None:
    """Write the first episode of an evaluation as a video, the reward's running sum beside it, and all as another.

    The sum is progress where `model` has one; that of the task's own rewards is none.
    """
    first = episodes[0]
    assert first.frames is not None
    rewards = np.concatenate([[0.0], first.dense]).astype(np.float32)
    clip = Clip(
        name=f"{env_frames} frames", kind="held-out", frames=first.frames, fps=10.0,
        rewards=rewards, progress=rewards.cumsum(dtype=np.float32) if model is None else model.progress(rewards),
        distances=None, unit=len(rewards), is_value=model is not None and model.is_value,
    )  # fmt: skip
    write_overlay(clip, run / "videos" / f"frames_{env_frames:08d}.mp4")
    write_mosaic(episodes[:FILMED], run / "videos" / f"all_{env_frames:08d}.mp4")
