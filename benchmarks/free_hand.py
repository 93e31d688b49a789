"""Does a model see the object wherever the hand is?

    python benchmarks/free_hand.py --tasks drawer-open door-open

In demonstrations hand and object go together; a policy's hand is anywhere. Here the object is held at a share of the
way that demonstrations move it, while the hand goes to places drawn at random, in free space and around the object. The
models are those of `python benchmarks/mimed.py`. From an episode's first frame, the object untouched, to such frames:

    first_0 ... first_100   the mean of F(o_1, o) with the object moved by 0, 25, 50, 75 or 100 %
    closed_high             the 0.99 quantile of F(o_1, o) at 0 %: what a hand alone can be worth
    opened                  how well F tells 100 % from 0 %: area under the ROC curve
    order                   rank correlation of F with the share
    approach                at 0 %, rank correlation of F with how near the hand is: what leads it to the object
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from scipy.stats import mannwhitneyu, spearmanr

from mimed import SHARES, fitted
from record import commit, write_rows
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.files import read_json
from timerewarder.rewards.reward import FrameReward

TASKS = ("drawer-open", "door-open", "window-open", "window-close")
MOVED = (0.0, 0.25, 0.5, 0.75, 1.0)
ARM = 9  # joints of arm and gripper, which come first
HAND, OBJECT = slice(0, 3), slice(4, 7)  # in Meta-World's observations
SEED = 10_000  # demonstrations have others
PLACES, STEPS, EVERY, AROUND = 4, 15, 3, 0.06  # of an episode; of each place; frames are drawn; metres
COMMIT = commit()


@dataclass(frozen=True)
class Freely:
    """Frames of hands anywhere: N frames of E episodes."""

    first: np.ndarray  # uint8 (E, S, S, 3), as the episodes begin
    frames: np.ndarray  # uint8 (N, S, S, 3)
    episode: np.ndarray  # int (N,)
    moved: np.ndarray  # share of the way (N,)
    near: np.ndarray  # metres between hand and object, negative (N,)


def way(env: MetaWorld, demos: Path, episodes: int = 20) -> float:
    """How far demonstrations move the object's joint, on average."""
    ends = []
    for row in read_json(demos / "index.json")["episodes"][:episodes]:
        env.reset(seed=row["seed"])
        start = env.env.data.qpos[ARM]
        for action in load_file(demos / row["trajectory"])["actions"]:
            env.step(action)
        ends.append(env.env.data.qpos[ARM] - start)
    return float(np.mean(ends))


def hold(env: MetaWorld, place: float) -> np.ndarray:
    """Put the object's joint there, whatever the hand did to it; the observation of what is then."""
    env.env.data.qpos[ARM] = place
    env._refresh_positions()
    env._frame = None
    return env._observation.copy()


def act_freely(task: str, demos: Path, episodes: int) -> Freely:
    env, rng = MetaWorld(task), np.random.default_rng(0)
    whole = way(env, demos)
    first: list[np.ndarray] = []
    rows: list[tuple[np.ndarray, int, float, float]] = []
    for episode, moved in zip(range(episodes), itertools.cycle(MOVED), strict=False):
        observation, _ = env.reset(seed=SEED + episode)
        held = env.env.data.qpos[ARM] + moved * whole
        first.append(env.render())
        observation = hold(env, held)
        for place in range(PLACES):
            free = rng.uniform(env.env.mocap_low, env.env.mocap_high)
            target = observation[OBJECT] + rng.normal(0, AROUND, 3) if place % 2 else free
            grip = rng.choice([-1.0, 1.0])
            for step in range(1, STEPS + 1):
                ahead = np.clip(10 * (target - observation[HAND]), -1, 1) + rng.normal(0, 0.2, 3)
                env.step(np.clip([*ahead, grip], -1, 1).astype(np.float32))
                observation = hold(env, held)
                if step % EVERY == 0:
                    near = -float(np.linalg.norm(observation[HAND] - observation[OBJECT]))
                    rows.append((env.render(), episode, moved, near))
    frames, of, moves, nears = zip(*rows, strict=True)
    return Freely(np.stack(first), np.stack(frames), np.array(of), np.array(moves), np.array(nears))


@torch.no_grad()
def measure(reward: FrameReward, seen: Freely) -> dict[str, float]:
    first, features = reward.encode(seen.first), reward.encode(seen.frames)
    pairs = zip(seen.episode, features, strict=True)
    values = np.array([float(reward.compare(torch.stack([first[episode], one]))[-1]) for episode, one in pairs])
    closed, opened = values[seen.moved == 0], values[seen.moved == 1]
    told = {f"first_{100 * share:.0f}": float(values[seen.moved == share].mean()) for share in MOVED}
    told["closed_high"] = float(np.quantile(closed, 0.99))
    told["opened"] = float(mannwhitneyu(opened, closed).statistic / (len(opened) * len(closed)))
    told["order"] = float(spearmanr(values, seen.moved).statistic)
    told["approach"] = float(spearmanr(closed, seen.near[seen.moved == 0]).statistic)
    return {name: round(value, 3) for name, value in told.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--data", type=Path, default=Path("runs/voc"))
    parser.add_argument("--out", type=Path, default=Path("results/free_hand.csv"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for task in options.tasks:
        seen = act_freely(task, options.data / task / "train-to-success", options.episodes)
        for composites, erase in SHARES:
            found = measure(fitted(task, composites, erase, options.data), seen)
            row = {"task": task, "composites": composites, "erase": erase, "frames": len(seen.frames), **found}
            print(row, flush=True)
            command = f"python benchmarks/free_hand.py --tasks {task} --episodes {options.episodes}"
            rows.append({**row, "seed": 0, "commit": COMMIT, "command": command})
            write_rows(options.out, rows)


if __name__ == "__main__":
    main()
