"""Learning curves of policies: tasks x rewards x seeds, several runs at a time, each on one core.

    python benchmarks/learning.py --obs state --frames 60000
    python benchmarks/learning.py --obs pixels --tasks drawer-open --frames 60000 --seeds 0 1 2

The models of `timerewarder` are those of `python benchmarks/mimed.py` that look at the object (100 demonstrations, `fit
--composites 0.5 --erase 0.5`); `plain` takes those that are fitted without either. Those of rivals (`vip`, `gaifo`) are
of `python benchmarks/compare.py`. `unguarded` is the learned reward without the guards of the preset, `unanchored` and
`unfamiliar` each without one of them, `narrow` with a narrower one; `steps`, `adaptive-alpha`, `white-noise`,
`saturating`, `unbounded`, `slow-rates`, `fewer-updates`, `late-start` and `long-horizon` have the paper's options in
one respect instead of those of the preset `cpu`. `bc` clones the actions of the same demonstrations, `bco` clones
without reading them.

Every run is a `timerewarder train --preset cpu` that resumes if it was interrupted, and goes on if it is asked for more
frames than it had; its evaluations go into the csv, with command and commit, as soon as it ends. Runs that are in the
csv already are skipped. Several of these commands may write to the same csv at a time.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import itertools
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import commit, write_rows
from timerewarder.files import read_json

TASKS = ("drawer-open", "button-press-topdown", "door-open", "window-open", "window-close")
VARIANTS = {
    "timerewarder": "",
    "plain": "",
    "unguarded": " --familiar None --no-anchored",
    "unanchored": " --no-anchored",
    "unfamiliar": " --familiar None",
    "narrow": " --familiar 1.6",
    "steps": " --reward-form steps",
    "adaptive-alpha": " --alpha adaptive",
    "white-noise": " --exploration-colour 0",
    "saturating": " --saturation 0",
    "unbounded": " --no-bounded",
    "slow-rates": " --lr 1e-4 --tau 0.005",
    "fewer-updates": " --update-every 2",
    "late-start": " --random-steps 2000 --seed-frames 12000",
    "long-horizon": " --discount 0.99",
}
COMMIT = commit()


@dataclass(frozen=True)
class Run:
    """One training."""

    task: str
    reward: str
    obs: str
    seed: int
    frames: int
    data: Path
    rivals: Path
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / f"{self.task}-{self.reward}-{self.obs}-{self.seed}"

    @property
    def log(self) -> Path:
        return self.out / f"{self.folder.name}.log"

    @property
    def key(self) -> tuple[str, ...]:
        return (self.task, self.reward, self.obs, str(self.seed))

    @property
    def arguments(self) -> list[str]:
        given = f"--task {self.task} --obs {self.obs} --seed {self.seed} --out {self.folder}"
        if self.reward in ("bc", "bco"):
            frames = f" --frames {self.frames}" if self.reward == "bco" else ""
            demos = self.data / self.task / "train-to-success"
            return f"train --method {self.reward} --demos {demos}{frames} {given}".split()
        variant = VARIANTS.get(self.reward, "")
        return (
            f"train --reward {self.model} --preset cpu{variant} --frames {self.frames} --no-beside --threads 1 "
            f"--keep-replay {given}"
        ).split()

    @property
    def model(self) -> str:
        if self.reward in ("env", "sparse"):
            return self.reward
        if self.reward in VARIANTS:
            share = "0" if self.reward == "plain" else "0.5"
            return str(self.data / self.task / f"model-composites-{share}-erase-{share}")
        return str(self.rivals / self.task / "models" / self.reward)

    def start(self) -> subprocess.Popen[bytes]:
        resume = ["--resume"] if (self.folder / "config.json").exists() and self.reward != "bc" else []
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "timerewarder", *self.arguments, *resume]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def rows(self) -> list[dict[str, Any]]:
        """The evaluations of the run, as rows of the csv."""
        described = read_json(self.folder / "config.json")
        known = {"task": self.task, "reward": self.reward, "obs": self.obs, "seed": self.seed}
        told = {"preset": described["preset"], "commit": COMMIT, "command": f"timerewarder {' '.join(self.arguments)}"}
        with (self.folder / "eval.csv").open(newline="") as file:
            return [{**known, **row, **told} for row in csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--rewards", nargs="+", default=["timerewarder", "env", "sparse"])
    parser.add_argument("--obs", default="pixels", choices=["pixels", "state", "features"])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--data", type=Path, default=Path("runs/voc"))
    parser.add_argument("--rivals", type=Path, default=Path("runs/compare"))
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--out", type=Path, default=Path("results/learning.csv"))
    options = parser.parse_args()
    waiting = [
        Run(task, reward, options.obs, seed, options.frames, options.data, options.rivals, options.runs)
        for seed, task, reward in itertools.product(options.seeds, options.tasks, options.rewards)
    ]
    running: list[tuple[Run, subprocess.Popen[bytes]]] = []
    while waiting or running:
        for run, process in list(running):
            if process.poll() is not None:
                running.remove((run, process))
                finish(run, process, options.out)
        while waiting and len(running) < options.at_once:
            run = waiting.pop(0)
            if done(run, read(options.out)):
                continue
            print("starting", *run.key, flush=True)
            running.append((run, run.start()))
        time.sleep(1)


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["task"], row["reward"], row["obs"], row["seed"])


def done(run: Run, rows: list[dict[str, Any]]) -> bool:
    """Whether the csv has the run, and as long as it is asked for; cloning takes no frames."""
    reached = [int(row["env_frames"]) for row in rows if key(row) == run.key]
    return bool(reached) and (run.reward == "bc" or max(reached) >= run.frames)


def finish(run: Run, process: subprocess.Popen[bytes], out: Path) -> None:
    if process.returncode != 0 or not (run.folder / "policy.safetensors").exists():  # a run that is stopped ends well
        print(f"not complete ({process.returncode}), see {run.log}:", *run.key, flush=True)
        return
    rows = run.rows()
    with out.with_suffix(".lock").open("w") as lock:  # others read and write only after this one
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_rows(out, [*(row for row in read(out) if key(row) != run.key), *rows])
    print("finished", *run.key, "success_gt3", [row["success_gt3"] for row in rows], flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


if __name__ == "__main__":
    main()
