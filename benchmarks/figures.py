"""Draw the figures of the documentation: learning curves from results/learning.csv, and, if asked for, hands.

python benchmarks/figures.py            docs/learning-pixels.svg, docs/learning-state.svg
python benchmarks/figures.py hands      docs/hands.png, from the demonstrations of `python benchmarks/voc.py`
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from timerewarder.data.composites import composite, scene
from timerewarder.data.hands import find_hands
from timerewarder.data.store import open_store
from timerewarder.report.curves import plot_learning_curves

ROOT = Path(__file__).parent.parent
REWARDS = ("timerewarder", "env", "sparse")  # all others are in the README's table


def learning(rows: list[dict[str, Any]], obs: str, path: Path) -> None:
    """The curves of policies that see pixels or the state, a chart a task."""
    shown = [row for row in rows if row["reward"] in REWARDS and row["obs"] == obs]
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


def hands(demos: Sequence[Path], path: Path, columns: int = 9) -> None:
    """Of each task: frames of a demonstration, the hand found in them, both scenes without it, and composites."""
    rows, rng = [], np.random.default_rng(0)
    for folder in demos:
        store = find_hands(open_store(folder, 84))
        moments = np.linspace(0, store.lengths[0] - 1, columns).astype(int)
        frames, found = store.frames(0, moments), store.hands[0].mask(moments)
        rows += [frames, np.where(found[..., None], frames, 255 - (255 - frames) // 4)]
        rows += [np.stack([scene(store, 0, int(moment), remember) for moment in moments]) for remember in (True, False)]
        rows += [np.concatenate([composite(store, 0, np.array([moment]), rng)[0] for moment in moments])]
    pictures = np.pad(np.stack(rows), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
    count, _, height, width, _ = pictures.shape
    Image.fromarray(pictures.transpose(0, 2, 1, 3, 4).reshape(count * height, columns * width, 3)).save(path)


if __name__ == "__main__":
    if "hands" in sys.argv:
        tasks = ("drawer-open", "window-open")
        hands([Path("runs/voc") / task / "train-to-success" for task in tasks], ROOT / "docs" / "hands.png")
    else:
        evaluations = list(csv.DictReader((ROOT / "results" / "learning.csv").open()))
        for obs in ("pixels", "state"):
            learning(evaluations, obs, ROOT / "docs" / f"learning-{obs}.svg")
