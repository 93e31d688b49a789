"""Draw the figures of the documentation from results/: docs/learning.svg from results/learning.csv.

python benchmarks/figures.py
"""

from __future__ import annotations

import csv
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

from timerewarder.report.curves import plot_learning_curves

ROOT = Path(__file__).parent.parent
REWARDS = ("timerewarder", "env", "sparse")  # all others are in the README's table


def learning(rows: list[dict[str, Any]], path: Path) -> None:
    """The curves of policies that see the state, a chart a task."""
    shown = [row for row in rows if row["reward"] in REWARDS and row["obs"] == "state"]
    with tempfile.TemporaryDirectory() as temporary:
        folders = []
        for (task, reward, seed), evaluations in itertools.groupby(
            shown, lambda row: (row["task"], row["reward"], row["seed"])
        ):
            folders.append(folder := Path(temporary) / f"{task}-{reward}-{seed}")
            folder.mkdir()
            write_run(folder, list(evaluations))
        plot_learning_curves(folders, path)


def write_run(folder: Path, evaluations: list[dict[str, Any]]) -> None:
    """A run as `timerewarder train` leaves it, as far as a figure needs it."""
    first = evaluations[0]
    told = {"kind": "policy", "task": first["task"], "reward_name": first["reward"], "obs": first["obs"]}
    told |= {"preset": first["preset"], "seed": int(first["seed"]), "config": {}}
    (folder / "config.json").write_text(json.dumps(told))
    lines = [f"{row['env_frames']},{row['success_gt3']}\n" for row in evaluations]
    (folder / "eval.csv").write_text("env_frames,success_gt3\n" + "".join(lines))


if __name__ == "__main__":
    learning(list(csv.DictReader((ROOT / "results" / "learning.csv").open())), ROOT / "docs" / "learning.svg")
