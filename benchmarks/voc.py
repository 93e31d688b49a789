"""The paper's VOC figure with all its controls: ten tasks, 100 demonstrations each, 100 held out, 100 failures.

    python benchmarks/voc.py --out results/voc.csv

For each task: `timerewarder demos` three times, `fit --encoder small --minutes 1`, `evaluate`.
A second row a task, `full-length`, is for videos that go on after success to the end of the episode. The scripted hand
stops there, but may still drift or be pushed back: `value_after_success` is the share of the final value gained in all
steps after success, `value_standing_still` that of the steps in which the picture stands still, which must be near 0.
Rows that are already in the csv are kept, so an interrupted study goes on.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import timerewarder as tr
from record import commit, write_rows
from timerewarder.api import evaluate_model
from timerewarder.envs.demos import collect
from timerewarder.envs.tasks import TASKS

# Printed on the bars of the paper's figure.
PAPER = {
    "button-press-topdown": 1.00, "door-open": 0.98, "window-close": 1.00, "drawer-open": 0.89, "window-open": 1.00,
    "stick-push": 0.99, "disassemble": 0.99, "basketball": 1.00, "lever-pull": 0.98, "plate-slide": 1.00,
}  # fmt: skip
COMMIT = commit()  # of the code that is loaded now, not of what is checked out when a row is written
STILL = 0.25  # mean absolute change of a pixel, of 255: less is what the video's compression alone makes
SEEDS = {"train": 0, "heldout": 1, "failures": 2}


def measure(task: str, ends: str, data: Path, episodes: int, minutes: float) -> dict[str, Any]:
    """Record, fit and evaluate one task; returns a row of the csv."""
    full = ends == "full-length"
    folder = data / task
    train, heldout = folder / f"train-{ends}", folder / f"heldout-{ends}"
    collect(task, episodes, train, seed=SEEDS["train"], full_length=full)
    collect(task, episodes, heldout, seed=SEEDS["heldout"], full_length=full)
    collect(task, episodes, folder / "failures", seed=SEEDS["failures"], policy="noisy", keep="failure")
    model = folder / f"model-{ends}"
    reward = tr.fit(train, model, minutes=minutes)
    metrics = evaluate_model(model, heldout, folder / "failures")
    after, still = values_after_success(reward, heldout)
    return {
        "task": task,
        "ends": ends,
        "paper_voc": PAPER[task],
        **{name: round(value, 4) if isinstance(value, float) else value for name, value in metrics.items()},
        "value_after_success": after,
        "value_standing_still": still,
        "encoded_frames": reward.record["training"]["encoded_frames"],
        "seed": reward.config.training.seed,
        "commit": COMMIT,
        "command": f"python benchmarks/voc.py --tasks {task} --episodes {episodes} --minutes {minutes:g}",
    }


def values_after_success(reward: Any, folder: Path) -> tuple[float, float]:
    """Mean shares of the final value gained after the first successful frame: in all steps, and in still ones."""
    shares = []
    for row in json.loads((folder / "index.json").read_text())["episodes"]:
        frames = next(tr.read_videos(folder / row["file"])).frames
        rewards = reward.score(frames)
        after = np.arange(len(frames)) > np.argmax(load_file(folder / row["trajectory"])["success"])
        change = np.abs(np.diff(frames.astype(np.int16), axis=0, prepend=frames[:1])).mean((1, 2, 3))
        shares.append([rewards[steps].sum() / rewards.sum() for steps in (after, after & (change < STILL))])
    after_success, standing_still = np.mean(shares, axis=0)
    return round(float(after_success), 4), round(float(standing_still), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="TASK")
    parser.add_argument("--ends", nargs="+", default=["to-success", "full-length"])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--data", type=Path, default=Path("runs/voc"))
    parser.add_argument("--out", type=Path, default=Path("results/voc.csv"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = list(csv.DictReader(options.out.open())) if options.out.exists() else []
    for ends in options.ends:
        for task in options.tasks:
            if any(row["task"] == task and row["ends"] == ends for row in rows):
                continue
            rows.append(measure(task, ends, options.data, options.episodes, options.minutes))
            print({name: rows[-1][name] for name in ("task", "ends", "voc", "voc_from_first", "success_auroc")})
            rows.sort(key=lambda row: (row["ends"] != "to-success", list(TASKS).index(row["task"])))
            write_rows(options.out, rows)


if __name__ == "__main__":
    main()
