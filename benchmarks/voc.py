"""The paper's VOC figure with all its controls: ten tasks, 100 demonstrations each, 100 held out, 100 failures.

    python benchmarks/voc.py --out results/voc.csv

For each task: `timerewarder demos` three times, `fit --encoder small --minutes 1`, `evaluate`.
A second row a task, `full-length`, is for videos that go on after success to the end of the episode, standing still;
`value_after_success` is the share of the final value that was gained there and must be near 0. Rows that are already in
the csv are kept, so an interrupted study goes on.
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
from record import commit
from timerewarder.api import evaluate_model
from timerewarder.envs.demos import collect
from timerewarder.envs.tasks import TASKS

# Printed on the bars of the paper's figure.
PAPER = {
    "button-press-topdown": 1.00, "door-open": 0.98, "window-close": 1.00, "drawer-open": 0.89, "window-open": 1.00,
    "stick-push": 0.99, "disassemble": 0.99, "basketball": 1.00, "lever-pull": 0.98, "plate-slide": 1.00,
}  # fmt: skip
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
    return {
        "task": task,
        "ends": ends,
        "paper_voc": PAPER[task],
        **{name: round(value, 4) if isinstance(value, float) else value for name, value in metrics.items()},
        "value_after_success": round(value_after_success(reward, heldout), 4),
        "encoded_frames": reward.record["training"]["encoded_frames"],
        "seed": reward.config.training.seed,
        "commit": commit(),
        "command": f"python benchmarks/voc.py --tasks {task} --episodes {episodes} --minutes {minutes:g}",
    }


def value_after_success(reward: Any, folder: Path) -> float:
    """Mean share of the final value that was gained after the first successful frame."""
    shares = []
    for row in json.loads((folder / "index.json").read_text())["episodes"]:
        success = load_file(folder / row["trajectory"])["success"]
        value = reward.score(next(tr.read_videos(folder / row["file"])).frames).cumsum()
        shares.append(1 - value[int(np.argmax(success))] / value[-1])
    return float(np.mean(shares))


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
            options.out.parent.mkdir(parents=True, exist_ok=True)
            with options.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print({name: rows[-1][name] for name in ("task", "ends", "voc", "voc_from_first", "success_auroc")})


if __name__ == "__main__":
    main()
