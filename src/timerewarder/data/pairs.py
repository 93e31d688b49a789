"""Which pairs of frames a model is trained on (paper, section 4.1), and how frames are shared between pairs.

The paper's law of a pair u < v in a video of T frames: draw the interval D with P(D) proportional to 1/D (or uniformly,
the ablation), then the start uniformly over what fits:

    p(u, v) = P(v - u) / (T - (v - u))

`independent` draws every pair from p and encodes two frames for each. `shared` draws m/2 pairs from p *in one video*,
encodes their m frames once, and trains on all pairs among them. A pair of frames from different draws has the law
2 q(u) q(v), where q is the marginal of p, so the collected pairs follow the mixture

    c(u, v) = (n_drawn p(u, v) + n_cross 2 q(u) q(v)) / n,    n_drawn = m/2,  n = m (m-1) / 2

and the weight w = p / c restores the paper's law exactly (the balance heuristic of multiple importance sampling). It is
at most m - 1, and for m = 2 it is 1: independent pairs are the special case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

Sampling = Literal["inverse", "uniform"]


class Law(NamedTuple):
    """The law of a pair in a video of T frames."""

    interval: np.ndarray  # (T,): P(interval); entry 0 is 0
    marginal: np.ndarray  # (T,): q(u), the probability that a frame of the pair is u


@lru_cache(maxsize=4096)
def pair_law(length: int, sampling: Sampling) -> Law:
    """The law for a video of `length` frames, O(length)."""
    gaps = np.arange(1, length)
    interval = np.zeros(length)
    interval[1:] = 1 / gaps if sampling == "inverse" else 1.0
    interval /= interval.sum()
    # u is the earlier frame of a pair for every interval <= T-1-u, the later one for every interval <= u.
    per_start = np.cumsum(interval / (length - np.arange(length)))
    return Law(interval, (per_start[::-1] + per_start) / 2)


def draw_pairs(rng: np.random.Generator, length: int, n: int, sampling: Sampling) -> np.ndarray:
    """n pairs (u, v), u < v, from the paper's law: int64 (n, 2)."""
    gaps = rng.choice(length, size=n, p=pair_law(length, sampling).interval)
    starts = rng.integers(0, length - gaps)
    return np.stack([starts, starts + gaps], axis=1)


def balance_weights(u: np.ndarray, v: np.ndarray, length: int, drawn: int, sampling: Sampling) -> np.ndarray:
    """w(u, v) of the module's docstring for `drawn` = m/2 pairs drawn; 0 where u = v, which is no pair."""
    law, gap = pair_law(length, sampling), np.abs(v - u)
    pairs = drawn * (2 * drawn - 1)
    direct = law.interval[gap] / (length - gap)
    mixture = (drawn * direct + (pairs - drawn) * 2 * law.marginal[u] * law.marginal[v]) / pairs
    return np.where(gap > 0, direct / mixture, 0.0)


@dataclass(frozen=True)
class PairBatch:
    """Frames to encode and the pairs to train on among them. `video[i]`, `index[i]` say where frame i comes from."""

    video: np.ndarray  # int64 (N,)
    index: np.ndarray  # int64 (N,)
    before: np.ndarray  # int64 (P,): rows of `video`/`index`
    after: np.ndarray  # int64 (P,)
    weight: np.ndarray  # float32 (P,): a mean over pairs weighted so follows the paper's law

    def gap(self, times: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Signed normalised distances d = (v-u)/(T-1), float32 (P,), at `times` (N,); `units` (videos,) are the T."""
        steps = times[self.after] - times[self.before]
        return (steps / (units[self.video[self.before]] - 1)).astype(np.float32)


def sample_independent(
    rng: np.random.Generator, lengths: np.ndarray, pairs: int, sampling: Sampling, negatives: bool
) -> PairBatch:
    """`pairs` pairs, each from a video drawn uniformly; with `negatives` the order is flipped with probability 1/2."""
    videos = rng.integers(0, len(lengths), size=pairs)
    drawn = np.concatenate([draw_pairs(rng, int(lengths[video]), 1, sampling) for video in videos])
    if negatives:
        flip = rng.random(pairs) < 0.5
        drawn[flip] = drawn[flip, ::-1]
    rows = np.arange(2 * pairs).reshape(pairs, 2)
    return PairBatch(np.repeat(videos, 2), drawn.ravel(), rows[:, 0], rows[:, 1], np.ones(pairs, np.float32))


def sample_shared(
    rng: np.random.Generator, lengths: np.ndarray, clips: int, frames: int, sampling: Sampling, negatives: bool
) -> PairBatch:
    """`frames` frames in each of `clips` videos and all pairs among them, in both orders with `negatives`."""
    videos = rng.integers(0, len(lengths), size=clips)
    first, second = np.triu_indices(frames, 1)
    index, before, after, weight = [], [], [], []
    for clip, video in enumerate(videos):
        length = int(lengths[video])
        drawn = draw_pairs(rng, length, frames // 2, sampling).ravel()
        swap = drawn[first] > drawn[second]
        early, late = np.where(swap, second, first), np.where(swap, first, second)
        weights = balance_weights(drawn[early], drawn[late], length, frames // 2, sampling)
        index.append(drawn)
        before.append(early + clip * frames)
        after.append(late + clip * frames)
        weight.append(weights)
    rows = [np.concatenate(before), np.concatenate(after)]
    weights = np.concatenate(weight).astype(np.float32)
    if negatives:
        rows, weights = [np.concatenate(rows), np.concatenate(rows[::-1])], np.tile(weights, 2)
    return PairBatch(np.repeat(videos, frames), np.concatenate(index), rows[0], rows[1], weights)
