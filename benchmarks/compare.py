"""All methods but gvl on the same videos, for two tasks: `timerewarder compare`, gathered into one csv.

    python benchmarks/compare.py

The videos are those of `python benchmarks/voc.py` (100 demonstrations, 100 held-out videos and 100 failures a task).
The pages and the models stay in runs/compare/TASK, where `python benchmarks/learning.py --rewards vip ...` finds them.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

from learning import write
from record import commit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["drawer-open", "basketball"])
    parser.add_argument("--methods", default="all")
    parser.add_argument("--minutes", type=float, default=1.0, help="length of every fit (default 1)")
    parser.add_argument("--data", type=Path, default=Path("runs/voc"))
    parser.add_argument("--runs", type=Path, default=Path("runs/compare"))
    parser.add_argument("--out", type=Path, default=Path("results/compare.csv"))
    options = parser.parse_args()
    table = []
    for task in options.tasks:
        videos, at = options.data / task, commit()
        command = (
            f"compare --methods {options.methods} --minutes {options.minutes:g} --train {videos / 'train-to-success'} "
            f"--test {videos / 'heldout-to-success'} --failures {videos / 'failures'} --out {options.runs / task}"
        )
        subprocess.run([sys.executable, "-m", "timerewarder", *command.split()], check=True)
        with (options.runs / task / "compare.csv").open(newline="") as file:
            table += [{"task": task, **row, "commit": at} for row in csv.DictReader(file)]
        write(options.out, table)


if __name__ == "__main__":
    main()
