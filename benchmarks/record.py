"""Run benchmarks and keep what they measured, with the command and the commit, in results/NAME.json.

python benchmarks/record.py render score memory pairing
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from timerewarder.files import atomic

RESULTS = Path(__file__).parent.parent / "results"
COMMANDS = {
    "render": "python benchmarks/render.py --json",
    "score": "python benchmarks/score.py --json",
    "memory": "python benchmarks/memory.py --json",
    "agent": "python benchmarks/agent.py --json",
    "agent-fp32": "python benchmarks/agent.py --precision fp32 --rounds 3 --json",
    "matching": "python benchmarks/matching.py --json",
    "serve": "python benchmarks/serve.py --json",
    "pairing": "python benchmarks/pairing.py --seeds 3 --frames 12000 --out results/pairing.csv --json",
}


def commit() -> str:
    """The code that made a number: the commit, marked if the sources differ from it."""
    head, changed = (
        subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
        for arguments in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", "src", "benchmarks"])
    )
    return f"{head}-modified" if changed else head


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a csv whose columns are those of the first row."""
    with atomic(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    for name in sys.argv[1:]:
        command, at = COMMANDS[name], commit()  # before the run: the sources may move on during it
        print(command, flush=True)
        done = subprocess.run([sys.executable, *command.split()[1:]], stdout=subprocess.PIPE, text=True, check=True)
        result = {"command": command, "commit": at, **json.loads(done.stdout.splitlines()[-1])}
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
