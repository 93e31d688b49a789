r"""What do models see where a policy moves the object in its own way, unlike the demonstrations?

    python benchmarks/own_way.py --run runs/learning/door-open-composites-0.5-state-0 \
        --models runs/voc/door-open/model-composites-*

Episodes of a training (`--obs state --keep-replay`) in which the object was moved far enough are acted once more, from
their seeds and recorded actions. For frames in which it has been moved so far: the mean of F(o_1, o_t), and the mean
reward of a step that moves it further. A reward that leads to the goal is positive all the way.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import timerewarder as tr
from record import commit
from timerewarder.agents.replay import Replay
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.evaluation.episodes import training_seed
from timerewarder.files import atomic, read_json

OBJECT = slice(4, 7)  # where Meta-World's observations have the object's position
MOVES_ON = 0.002  # metres in a step
COMMIT = commit()


def acted_again(run: Path, episodes: int, least: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Frames uint8 (T, S, S, 3) and how far the object was moved (T,), of episodes that moved it `least` metres."""
    told = read_json(run / "config.json")
    config = told["config"]
    env = MetaWorld(told["task"], config["camera"], config["size"], config["action_repeat"], config["ranges"])
    shape, actions = env.observation_space.shape, env.action_space.shape
    assert shape is not None
    assert actions is not None
    replay = Replay(config["replay_capacity"], shape, actions[0], stack=1, n_step=config["agent"]["n_step"])
    replay.load(run / "checkpoint" / "replay")
    starts = np.unique(replay._start[: replay.frames])
    found = 0
    for number, (start, end) in enumerate(itertools.pairwise([*starts.tolist(), replay.frames])):
        states = replay._frames[start:end]
        moved = np.linalg.norm(states[:, OBJECT] - states[0, OBJECT], axis=1)
        if moved.max() < least:
            continue
        env.reset(seed=training_seed(config["seed"], number))
        frames = [env.render()]
        for action in replay._action[start + 1 : end]:
            observation, *_ = env.step(action)
            frames.append(env.render())
        assert np.allclose(observation, states[-1], atol=1e-3), f"episode {number} did not go as it did"
        yield np.stack(frames), moved
        found += 1
        if found == episodes:
            return


@torch.no_grad()
def measure(model: Path, acted: list[tuple[np.ndarray, np.ndarray]], width: float) -> Iterator[dict[str, Any]]:
    """A row for every `width` metres."""
    reward = tr.load(model)
    moved = np.concatenate([moved for _, moved in acted])
    on = np.concatenate([np.diff(moved, prepend=moved[0]) > MOVES_ON for _, moved in acted])
    first = np.concatenate([reward.distances(reward.encode(frames))[0].numpy() for frames, _ in acted])
    steps = np.concatenate([reward.score(frames) for frames, _ in acted])
    for low in np.arange(0.0, moved.max(), width):
        here = (moved > low) & (moved <= low + width)
        if (here & on).any():
            yield {
                "model": model.name, "moved_from": round(float(low), 3), "frames": int(here.sum()),
                "first": round(float(first[here].mean()), 3), "step": round(float(steps[here & on].mean()), 4),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--models", type=Path, nargs="+", required=True)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--least", type=float, default=0.25, help="metres the object has to be moved (default 0.25)")
    parser.add_argument("--width", type=float, default=0.06, help="metres of a row (default 0.06)")
    parser.add_argument("--out", type=Path, default=Path("results/own_way.csv"))
    options = parser.parse_args()
    acted = list(acted_again(options.run, options.episodes, options.least))
    command = f"python benchmarks/own_way.py --run {options.run} --models {' '.join(map(str, options.models))}"
    told = {"run": options.run.name, "episodes": len(acted), "commit": COMMIT, "command": command}
    rows = [{**row, **told} for model in options.models for row in measure(model, acted, options.width)]
    for row in rows:
        print(row)
    with atomic(options.out) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
