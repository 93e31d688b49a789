"""How much `score` and `stream` cost beside the encoder alone, as ratios in one run.

    python benchmarks/score.py

`score` takes uint8 frames and returns rewards; the reference is the encoder's forward pass alone on the same frames in
the same batches. The two alternate, and the median of the paired ratios is printed, so that a busy machine slows both
alike. A step of `stream` is compared with the encoder's forward pass on one frame.

Then `score` of every method but gvl, which asks an endpoint, on an episode of 62 frames, each fitted briefly on 100
videos of 50 frames, against the encoder's forward pass on the same episode.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import timerewarder as tr
from timerewarder.rewards import METHODS
from timerewarder.rewards.reward import ENCODE_BATCH, FrameReward
from timerewarder.rewards.timerewarder import Config, TimeRewarder


def ratio(reference: Callable[[], object], measured: Callable[[], object], rounds: int) -> float:
    """Median over rounds of the time of `reference` divided by the time of `measured`: its share of the speed."""
    shares = []
    for _ in range(rounds + 2):
        marks = [time.perf_counter()]
        for work in (reference, measured, reference):
            work()
            marks.append(time.perf_counter())
        first, own, second = np.diff(marks)
        shares.append((first + second) / 2 / own)
    return float(np.median(shares[2:]))


def method_ratios(rounds: int) -> dict[str, float]:
    """The rate of `score` of each method, as a share of its encoder's."""
    rng = np.random.default_rng(0)
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(100):
            np.save(Path(folder) / f"{number}.npy", rng.integers(0, 256, (50, 84, 84, 3), dtype=np.uint8))
        for name in METHODS:
            if name != "gvl":
                reward = tr.fit(folder, method=name, epochs=0.01, validate_every=10**6, device="cpu")
                shares[name] = score_share(reward, rng.integers(0, 256, (62, 84, 84, 3), dtype=np.uint8), rounds)
                print(f"{name:<28}{shares[name]:.3f}", flush=True)
    return shares


def score_share(reward: FrameReward, frames: np.ndarray, rounds: int) -> float:
    batch = torch.from_numpy(frames)
    return ratio(torch.no_grad()(lambda: reward.encoder(batch)), lambda: reward.score(frames), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="small", choices=["small", "vit-b16", "resnet34"])
    parser.add_argument("--frames", type=int, default=10 * ENCODE_BATCH)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    reward = TimeRewarder(Config(encoder=options.encoder)).eval()
    size = reward.encoder.preprocessing.size
    frames = np.random.default_rng(0).integers(0, 256, (options.frames, size, size, 3), dtype=np.uint8)
    batches = torch.from_numpy(frames).split(ENCODE_BATCH)
    stream = reward.stream()
    stream.reset(frames[0])
    encoded: list[int] = []
    hook = reward.encoder.register_forward_hook(lambda _module, inputs, _output: encoded.append(len(inputs[0])))
    reward.score(frames)
    score_encodes, encoded[:] = sum(encoded), []
    stream.step(frames[1])
    step_encodes = sum(encoded)
    hook.remove()

    @torch.no_grad()
    def encode_all() -> None:
        for batch in batches:
            reward.encoder(batch)

    @torch.no_grad()
    def encode_one() -> None:
        reward.encoder(batches[0][:1])

    result: dict[str, Any] = {
        "encoder": options.encoder,
        "frames": options.frames,
        "score_rate_of_encoder_rate": ratio(encode_all, lambda: reward.score(frames), options.rounds),
        "step_rate_of_encoder_rate": ratio(encode_one, lambda: stream.step(frames[2]), 20 * options.rounds),
        "encodes_per_scored_frame": score_encodes / options.frames,
        "encodes_per_step": step_encodes,
    }
    for name, value in result.items():
        print(f"{name:<28}{value:.3f}" if isinstance(value, float) else f"{name:<28}{value}")
    result["score_rate_of_methods"] = method_ratios(options.rounds)
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
