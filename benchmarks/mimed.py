"""Does a model look at the object, or at the hand alone? Value-order correlation cannot tell; a mimed episode can.

    python benchmarks/mimed.py --tasks drawer-open door-open

A demonstration is acted once more with all contacts switched off: the hand goes the same way, through the object, which
stays where it is. A model that sees the task gives such an episode little; one that follows the hand gives it all.
The demonstrations are those of `python benchmarks/voc.py`; models are fitted to them here, without and with
`--composites 0.5 --erase 0.5`. For held-out demonstrations, the same ones mimed, and failures: the mean of the
running sum at the end (`sum`) and of the distance from the first frame to the last (`first`); `voc` is of the held-out
demonstrations.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

import timerewarder as tr
from record import commit, write_rows
from timerewarder.data.videos import read_videos
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.files import read_json
from timerewarder.rewards.fitting import order_correlation
from timerewarder.rewards.reward import FrameReward

TASKS = ("drawer-open", "button-press-topdown", "door-open", "window-open", "window-close")
SHARES = ((0.0, 0.0), (0.5, 0.5))  # of composites and of erased frames
COMMIT = commit()


def mimed(folder: Path, episodes: int) -> Iterator[np.ndarray]:
    """The first episodes of a folder of demonstrations acted without contacts: uint8 (T, S, S, 3) each."""
    index = read_json(folder / "index.json")
    env = MetaWorld(index["settings"]["task"], size=index["settings"]["size"])
    model = env.env.model
    contacts = model.geom_contype.copy(), model.geom_conaffinity.copy()
    for row in index["episodes"][:episodes]:
        model.geom_contype[:], model.geom_conaffinity[:] = contacts
        env.reset(seed=row["seed"])
        model.geom_contype[:], model.geom_conaffinity[:] = 0, 0
        frames = [env.render()]
        for action in load_file(folder / row["trajectory"])["actions"]:
            env.step(action)
            frames.append(env.render())
        yield np.stack(frames)
    env.close()


@torch.no_grad()
def values(reward: FrameReward, episodes: list[np.ndarray]) -> dict[str, float]:
    """Means over the episodes of the running sum at the end, and of the distance from first to last frame."""
    sums = [float(reward.score(frames).sum()) for frames in episodes]
    ends = (reward.encode(frames[[0, -1]]) for frames in episodes)
    first = [float(reward.compare(features)[-1]) for features in ends]
    return {"sum": round(float(np.mean(sums)), 3), "first": round(float(np.mean(first)), 3)}


def fitted(task: str, composites: float, erase: float, data: Path) -> FrameReward:
    """The model of a task, fitted with these shares unless it is there already."""
    model = data / task / f"model-composites-{composites:g}-erase-{erase:g}"
    if (model / "weights.safetensors").exists():
        return tr.load(model)
    return tr.fit(data / task / "train-to-success", model, composites=composites, erase=erase)


def measure(task: str, composites: float, erase: float, data: Path, episodes: int) -> dict[str, Any]:
    reward, folder = fitted(task, composites, erase, data), data / task
    demos, failures = (
        [video.frames for video in itertools.islice(read_videos([folder / name]), episodes)]
        for name in ("heldout-to-success", "failures")
    )
    kinds = {"demos": demos, "mimed": list(mimed(folder / "heldout-to-success", episodes)), "failures": failures}
    found = {f"{kind}_{name}": value for kind, of in kinds.items() for name, value in values(reward, of).items()}
    orders = [order_correlation(np.cumsum(reward.score(frames))) for frames in demos]
    return {**found, "voc": round(float(np.mean(orders)), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--episodes", type=int, default=30, help="of each kind (default 30)")
    parser.add_argument("--data", type=Path, default=Path("runs/voc"))
    parser.add_argument("--out", type=Path, default=Path("results/mimed.csv"))
    options = parser.parse_args()
    rows = []
    for task, (composites, erase) in itertools.product(options.tasks, SHARES):
        row = {"task": task, "composites": composites, "erase": erase, "episodes": options.episodes}
        row |= measure(task, composites, erase, options.data, options.episodes)
        rows.append({**row, "seed": 0, "commit": COMMIT, "command": f"python benchmarks/mimed.py --tasks {task}"})
        print(row, flush=True)
        write_rows(options.out, rows)


if __name__ == "__main__":
    main()
