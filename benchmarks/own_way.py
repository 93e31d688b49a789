r"""What do models see where a policy goes its own way, unlike the demonstrations?

    python benchmarks/own_way.py --models runs/voc/door-open/model-composites-* \
        --runs runs/learning/door-open-timerewarder-state-0

Episodes of trainings (`--obs state --keep-replay`) are acted once more, from their seeds and recorded actions.

    moved    the object was moved `--least` metres or more. By how far it has been: the mean of F(o_1, o_t), and the
             mean reward of a step that moves it on. A reward that leads to the goal is positive all the way.
    unmoved  it stayed where it was: the mean over episodes of the largest F(o_1, o_t). It had better be small.

`rough` is the mean over episodes of the sum of all changes of F(o_1, o_t), up and down; in a demonstration about 1.
Rows of other tasks stay in the csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import timerewarder as tr
from record import commit, write_rows
from timerewarder.agents.replay import Replay
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.evaluation.episodes import training_seed
from timerewarder.files import read_json

OBJECT = slice(4, 7)  # where Meta-World's observations have the object's position
STAYS, MOVES_ON = 0.02, 0.002  # metres in an episode, in a step
RANDOM = 80  # episodes at the start, in which a policy knows nothing yet
COMMIT = commit()


@dataclass(frozen=True)
class Acted:
    """An episode of T frames."""

    frames: np.ndarray  # uint8 (T, S, S, 3)
    moved: np.ndarray  # metres (T,)


def acted_again(run: Path, episodes: int, least: float) -> Iterator[Acted]:
    """So many episodes of a training that moved the object `least` metres, and so many later ones that did not."""
    told = read_json(run / "config.json")
    config = told["config"]
    env = MetaWorld(told["task"], config["camera"], config["size"], config["action_repeat"], config["ranges"])
    replay = Replay(config["replay_capacity"], (39,), 4, stack=1, n_step=config["agent"]["n_step"])
    replay.load(run / "checkpoint" / "replay")
    starts = np.unique(replay._start[: replay.frames])
    left = {"moved": episodes, "unmoved": episodes}
    for number, (start, end) in enumerate(itertools.pairwise([*starts.tolist(), replay.frames])):
        states = replay._frames[start:end]
        moved = np.linalg.norm(states[:, OBJECT] - states[0, OBJECT], axis=1)
        kind = "moved" if moved.max() >= least else "unmoved" if moved.max() < STAYS and number > RANDOM else None
        if kind is None or not left[kind]:
            continue
        left[kind] -= 1
        env.reset(seed=training_seed(config["seed"], number))
        frames = [env.render()]
        for action in replay._action[start + 1 : end]:
            observation, *_ = env.step(action)
            frames.append(env.render())
        assert np.allclose(observation, states[-1], atol=1e-3), f"episode {number} did not go as it did"
        yield Acted(np.stack(frames), moved)


@torch.no_grad()
def measure(model: Path, acted: list[Acted], width: float) -> Iterator[dict[str, Any]]:
    """A row for episodes that did not move the object, and one for every `width` metres."""
    reward = tr.load(model)
    described = read_json(model / "config.json")["config"]
    known = {"composites": described["composites"], "erase": described.get("erase", 0.0)}
    known["epochs"] = described["training"]["epochs"]
    first = [reward.distances(reward.encode(episode.frames))[0].numpy() for episode in acted]
    still = [seen.max() for seen, episode in zip(first, acted, strict=True) if episode.moved.max() < STAYS]
    if still:
        rough = _mean([_rough(f) for f, episode in zip(first, acted, strict=True) if episode.moved.max() < STAYS])
        told = {"kind": "unmoved", "moved_from": "", "count": len(still), "first": _mean(still), "step": ""}
        yield {**known, **told, "rough": rough}
    going = [(seen, episode) for seen, episode in zip(first, acted, strict=True) if episode.moved.max() >= STAYS]
    seen = np.concatenate([seen for seen, _ in going])
    moved = np.concatenate([episode.moved for _, episode in going])
    on = np.concatenate([np.diff(episode.moved, prepend=episode.moved[0]) > MOVES_ON for _, episode in going])
    steps = np.concatenate([reward.score(episode.frames) for _, episode in going])
    rough = _mean([_rough(seen) for seen, _ in going])
    for low in np.arange(0.0, moved.max(), width):
        here = (moved > low) & (moved <= low + width)
        if (here & on).sum() > 20:
            place = {"kind": "moved", "moved_from": round(float(low), 3), "count": int(here.sum())}
            yield {**known, **place, "first": _mean(seen[here]), "step": _mean(steps[here & on]), "rough": rough}


def _rough(seen: np.ndarray) -> float:
    return float(np.abs(np.diff(seen)).sum())


def _mean(values: Any) -> float:
    return round(float(np.mean(values)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--models", type=Path, nargs="+", required=True)
    parser.add_argument("--episodes", type=int, default=40, help="of each kind and run (default 40)")
    parser.add_argument("--least", type=float, default=0.25, help="metres the object has to be moved (default 0.25)")
    parser.add_argument("--width", type=float, default=0.06, help="metres of a row (default 0.06)")
    parser.add_argument("--out", type=Path, default=Path("results/own_way.csv"))
    options = parser.parse_args()
    acted = [episode for run in options.runs for episode in acted_again(run, options.episodes, options.least)]
    told = {"commit": COMMIT, "command": f"python benchmarks/own_way.py {' '.join(sys.argv[1:])}"}
    rows = []
    task = read_json(options.runs[0] / "config.json")["task"]
    for model in options.models:
        for row in measure(model, acted, options.width):
            print(row, flush=True)
            rows.append({"task": task, **row, **told})
    others = csv.DictReader(options.out.open()) if options.out.exists() else []
    write_rows(options.out, [*(row for row in others if row["task"] != task), *rows])


if __name__ == "__main__":
    main()
