"""How much `score` and `stream` cost beside the encoder alone, as ratios in one run.

    python benchmarks/score.py

`score` takes uint8 frames and returns rewards; the reference is the encoder's forward pass alone on the same frames in
the same batches. The two alternate, and the median of the paired ratios is printed, so that a busy machine slows both
alike. A step of `stream` is compared with the encoder's forward pass on one frame.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch

from timerewarder.rewards.reward import ENCODE_BATCH
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

    result = {
        "encoder": options.encoder,
        "frames": options.frames,
        "score_rate_of_encoder_rate": ratio(encode_all, lambda: reward.score(frames), options.rounds),
        "step_rate_of_encoder_rate": ratio(encode_one, lambda: stream.step(frames[2]), 20 * options.rounds),
        "encodes_per_scored_frame": score_encodes / options.frames,
        "encodes_per_step": step_encodes,
    }
    for name, value in result.items():
        print(f"{name:<28}{value:.3f}" if isinstance(value, float) else f"{name:<28}{value}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
