"""Metrics of a reward on held-out videos, each beside the control that exposes a trivial winner.

The value of a frame is the running sum of step rewards up to it. VOC, its rank correlation with time, is 1 for any
predictor of a positive constant, so it never stands alone:

    voc                     value against time                                          constant predictor: 1
    voc_from_first          F(o_1, o_t) against time                                    constant predictor: 0
    voc_reversed            VOC of the video played backwards; must be -1               constant predictor: 1
    frozen_sum              |sum of rewards| of one frame (first, middle, last) repeated as long as the video
    pair_mae                mean |predicted - true distance| over all pairs
    adjacent_sign_accuracy  share of adjacent pairs, in both orders, with the right sign   constant predictor: 0.5
    success_auroc           area under the ROC curve of the final value, success against failure

A metric that means nothing for a method is None: those of order for rewards that are not the steps of a value (their
sum rises or falls whatever they say), those of distances for methods that know none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from timerewarder.data.store import FrameStore
from timerewarder.progress import track
from timerewarder.rewards.fitting import order_correlation
from timerewarder.rewards.reward import FrameReward


@dataclass(frozen=True)
class VideoMetrics:
    """The metrics of one video."""

    voc: float | None
    voc_from_first: float | None
    voc_reversed: float | None
    frozen_sum: float | None
    pair_mae: float | None
    adjacent_sign_accuracy: float | None
    final_value: float


@torch.no_grad()
def video_metrics(reward: FrameReward, features: Tensor) -> VideoMetrics:
    """All metrics of one video from its features (T, D); reversing and freezing need no further encoding."""
    length = len(features)
    steps = reward.compare(features).cpu().numpy()
    of_value: dict[str, float | None] = dict.fromkeys(
        ("voc", "voc_reversed", "frozen_sum", "adjacent_sign_accuracy"), None
    )
    if reward.is_value:
        backward = reward.compare(features.flip(0)).cpu().numpy()
        stills = [features[i : i + 1].expand(length, -1) for i in (0, length // 2, -1 % length)]
        of_value = {
            "voc": order_correlation(steps.cumsum()),
            "voc_reversed": order_correlation(backward.cumsum()),
            "frozen_sum": float(np.mean([reward.compare(still).sum().abs().item() for still in stills])),
            "adjacent_sign_accuracy": float(np.concatenate([steps[1:] > 0, backward[1:] < 0]).mean()),
        }
    of_distances: dict[str, float | None] = {"voc_from_first": None, "pair_mae": None}
    distances = reward.distances(features)
    if distances is not None:
        frames = np.arange(length)
        truth = (frames[None, :] - frames[:, None]) / (reward.unit(length) - 1)
        predicted = distances.cpu().numpy()
        of_distances = {
            "voc_from_first": order_correlation(predicted[0]),
            "pair_mae": float(np.abs(predicted - truth)[~np.eye(length, dtype=bool)].mean()),
        }
    return VideoMetrics(**of_value, **of_distances, final_value=float(steps.sum()))


def _mean(values: Sequence[float | None]) -> float | None:
    """None if the metric means nothing for the method."""
    return None if None in values else float(np.mean([value for value in values if value is not None]))


def auroc(positives: Iterable[float], negatives: Iterable[float]) -> float:
    """Probability that a positive ranks above a negative, ties counting half."""
    high, low = np.asarray(list(positives)), np.asarray(list(negatives))
    from scipy.stats import rankdata  # takes a second to import, which most commands need not wait for

    ranks = rankdata(np.concatenate([high, low]))[: len(high)]
    return float((ranks.sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


@dataclass(frozen=True)
class Evaluation:
    """The published metrics and, for plots, the final value of every video by kind and name."""

    metrics: dict[str, float | None]
    final_values: dict[str, dict[str, float]]


def evaluate(reward: FrameReward, successes: FrameStore, failures: FrameStore | None = None) -> Evaluation:
    """Means over the videos; frames_per_second is the rate of encoding and scoring decoded frames."""
    rows, seconds = [], 0.0
    for video in track(range(len(successes)), "Evaluating"):
        frames = successes.frames(video, np.arange(successes.lengths[video]))
        started = time.perf_counter()
        features = reward.encode(frames)
        reward.compare(features)
        seconds += time.perf_counter() - started
        rows.append(video_metrics(reward, features))
    names = ("voc", "voc_from_first", "voc_reversed", "frozen_sum", "pair_mae", "adjacent_sign_accuracy")
    metrics = {name: _mean([getattr(row, name) for row in rows]) for name in names}
    finals = {"held-out": dict(zip(successes.names, [row.final_value for row in rows], strict=True))}
    metrics["success_auroc"] = None
    if failures is not None:
        finals["failure"] = {
            failures.names[video]: float(reward.score(failures.frames(video, np.arange(length))).sum())
            for video, length in enumerate(track(failures.lengths, "Evaluating failures"))
        }
        metrics["success_auroc"] = auroc(finals["held-out"].values(), finals["failure"].values())
    count = int(successes.lengths.sum())
    metrics |= {"videos": len(successes), "frames": count, "frames_per_second": count / seconds}
    return Evaluation(metrics, finals)
