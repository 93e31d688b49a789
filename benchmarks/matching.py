"""How the cost of scoring an episode grows with the demonstrations, for the methods that match the two.

    python benchmarks/matching.py

An episode of 62 frames is matched with 1, 10 and 100 demonstrations of 25, 50 and 100 frames. Printed is the time of
the match, without encoding, as a multiple of the encoder's forward pass over the episode: 0.5 means that a match takes
half as long as encoding. The two alternate, and the median of the paired ratios is taken. An evaluation of ADS (10
episodes against all demonstrations, k growing five times) is measured in the same unit, with a fifth of the rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from score import ratio
from timerewarder.rewards import METHODS
from timerewarder.rewards.ads import ADS
from timerewarder.rewards.ads import Config as ADSConfig
from timerewarder.rewards.matching import MatchingReward

MATCHING = ("ot", "ads", "temporal-ot", "orca")


def walk(frames: int, dim: int, seed: int) -> Tensor:
    """Features (frames, dim) that drift as those of a video do."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(frames, dim, generator=generator).cumsum(0), dim=1)


def shown(reward: MatchingReward, count: int, length: int) -> MatchingReward:
    """The reward with `count` demonstrations of `length` frames each."""
    reward.demonstrations = torch.cat([walk(length, reward.encoder.dim, seed) for seed in range(count)])
    reward.lengths = torch.full((count,), length)
    return reward.eval()


def scored(reward: MatchingReward, features: Tensor) -> Callable[[], object]:
    return torch.no_grad()(lambda: reward.compare(features))


def evaluated(reward: ADS, episodes: list[Tensor]) -> Callable[[], object]:
    def run() -> None:
        reward.begin(len(episodes[0]))
        reward.evaluated(episodes)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="small", choices=["small", "vit-b16", "resnet34"])
    parser.add_argument("--frames", type=int, default=62, help="frames of the episode (default 62)")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100], help="numbers of demonstrations")
    parser.add_argument("--lengths", type=int, nargs="+", default=[25, 50, 100], help="frames of a demonstration")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    rewards = {name: METHODS[name].reward(METHODS[name].config(encoder=options.encoder)) for name in MATCHING}
    encoder = rewards["ot"].encoder.eval()
    size = encoder.preprocessing.size
    pixels = np.random.default_rng(0).integers(0, 256, (options.frames, size, size, 3), dtype=np.uint8)
    frames, episode = torch.from_numpy(pixels), walk(options.frames, encoder.dim, 1000)
    encode = torch.no_grad()(lambda: encoder(frames))
    rows = []
    for count in options.counts:
        for length in options.lengths:
            row: dict[str, float] = {"demonstrations": count, "length": length}
            for name, reward in rewards.items():
                assert isinstance(reward, MatchingReward)
                row[name] = 1 / ratio(encode, scored(shown(reward, count, length), episode), options.rounds)
            schedule = ADS(ADSConfig(encoder=options.encoder, k_threshold=0.0))  # always grows: the most it can cost
            episodes = [walk(options.frames, encoder.dim, 1000 + number) for number in range(10)]
            shown(schedule, count, length)
            row["ads_evaluation"] = 1 / ratio(encode, evaluated(schedule, episodes), max(1, options.rounds // 5))
            rows.append(row)
            print("  ".join(f"{name} {value:.3g}" for name, value in row.items()), flush=True)
    if options.json:
        print(json.dumps({"encoder": options.encoder, "frames": options.frames, "multiples_of_encoding": rows}))


if __name__ == "__main__":
    main()
