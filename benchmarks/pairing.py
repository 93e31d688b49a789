"""How many encoded frames shared and independent pairing need, at the same number of frames a step, on a hard view.

    python benchmarks/pairing.py --seeds 3 --out results/pairing.csv

Records drawer-open with Meta-World's own corner2 camera (100 videos to train on, 50 held out), trains both pairings
with the default options of the small encoder, and measures the held-out videos as it goes. Prints, as a mean over
seeds, the frames from which `voc_from_first` stays at 0.98 or above for the rest of the run, the frames from which the
running-sum `voc` does too, and the ratios of the two pairings.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from record import write_rows
from timerewarder.data.store import FrameStore, open_store
from timerewarder.envs.demos import collect
from timerewarder.evaluation.metrics import video_metrics
from timerewarder.rewards.timerewarder import Config, TimeRewarder, sample_pairs
from timerewarder.rewards.training import Training, train

GOAL = 0.98


def run(config: Config, training: FrameStore, heldout: FrameStore) -> list[dict[str, float]]:
    """Train and return one row of held-out metrics each `validate_every` frames."""
    torch.manual_seed(config.training.seed)
    reward = TimeRewarder(config)
    rows: list[dict[str, float]] = []

    def measure(network: TimeRewarder) -> dict[str, float]:
        with torch.no_grad():
            metrics = [
                video_metrics(network, network.encode(heldout.frames(video, np.arange(length))))
                for video, length in enumerate(heldout.lengths)
            ]
        names = ("voc", "voc_from_first", "pair_mae")
        row = {name: float(np.mean([getattr(m, name) for m in metrics])) for name in names}
        rows.append(row)
        return {"val_mae": row["pair_mae"]}

    progress = train(reward, lambda rng: sample_pairs(reward, training, rng), measure, config.training)
    return [{"frames": log["frames"], **row} for log, row in zip(progress.rows, rows, strict=True)]


def frames_to_goal(rows: list[dict[str, float]], names: tuple[str, ...]) -> float:
    """Frames from which all the named metrics stay at the goal to the end of the run."""
    start = len(rows)
    while start and all(rows[start - 1][name] >= GOAL for name in names):
        start -= 1
    return rows[start]["frames"] if start < len(rows) else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default 3)")
    parser.add_argument("--frames", type=int, default=20_000, help="encoded frames of a run (default 20000)")
    parser.add_argument("--every", type=int, default=500, help="encoded frames between measurements (default 500)")
    parser.add_argument("--data", type=Path, default=Path("runs/pairing"), help="where the videos are recorded")
    parser.add_argument("--out", type=Path, help="csv to write, one row a measurement")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    collect("drawer-open", 100, options.data / "train", camera="corner2")
    collect("drawer-open", 50, options.data / "heldout", seed=1, camera="corner2")
    training, heldout = (open_store(options.data / name, 84) for name in ("train", "heldout"))
    table, reached = [], {}
    for pairing in ("shared", "independent"):
        for seed in range(options.seeds):
            loop = Training(
                seed=seed, epochs=1.0, epoch_frames=options.frames, warmup_epochs=1000 / options.frames,
                validate_every=options.every, patience=0,
            )  # fmt: skip
            config = Config(pairing=pairing, pairs=8, clips=2, clip_frames=8, training=loop).resolved()
            rows = run(config, training, heldout)
            found = frames_to_goal(rows, ("voc_from_first",)), frames_to_goal(rows, ("voc_from_first", "voc"))
            reached.setdefault(pairing, []).append(found)
            table += [{"pairing": pairing, "seed": seed, **row} for row in rows]
            print(f"{pairing:<12} seed {seed}: {found[0]:.0f} frames to voc_from_first {GOAL}, {found[1]:.0f} to both")
    (shared, shared_both), (independent, independent_both) = (np.mean(reached[p], axis=0) for p in reached)
    summary = {
        "shared": {"voc_from_first": shared, "both": shared_both},
        "independent": {"voc_from_first": independent, "both": independent_both},
        "ratio": independent / shared,
        "ratio_both": independent_both / shared_both,
        "frames_a_step": 16,
        "lr": config.training.lr,
    }
    if options.out:
        write_rows(options.out, table)
    print(f"shared needs {summary['ratio']:.2f} times fewer frames, {summary['ratio_both']:.2f} for both metrics")
    if options.json:
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
