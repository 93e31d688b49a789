"""From videos to a fitted network, for every method that trains one: open, split, train, validate, record."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from timerewarder.config import to_dict
from timerewarder.data.source import AS_THEY_ARE, Opening
from timerewarder.data.store import FrameStore, open_store
from timerewarder.rewards.reward import FrameReward
from timerewarder.rewards.training import Batch, split, train

Sources = str | Path | Sequence[str | Path]
R = TypeVar("R", bound=FrameReward)


def fit_network(
    cls: type[R],
    config: Any,
    videos: Sources,
    sample: Callable[[R, FrameStore, np.random.Generator], Batch] | None,
    folder: Path | None = None,
    *,
    prepare: Callable[[FrameStore], FrameStore] = lambda store: store,
    validate: Callable[[R, FrameStore], dict[str, float]] | None = None,
    remember: Callable[[R, FrameStore], None] = lambda reward, store: None,
    opening: Opening = AS_THEY_ARE,
) -> R:
    """A `cls(config)` fitted on `videos`.

    `sample(reward, store, rng)` draws its batches from the training videos, as `prepare(store)` gives them; without it
    there is nothing to train. The first number that
    `validate(reward, store)` gives on held-out videos picks the checkpoint; default: `validate_distances`.
    `remember(reward, store)` takes from the training videos what the reward needs of them later.
    """
    with torch.random.fork_rng():
        torch.manual_seed(config.training.seed)
        reward = cls(config)
    pre = reward.preprocessing
    store = open_store(videos, pre.size, pre.how, opening)
    store = store.stopped_at_rest() if config.stop_at_rest else store
    training, held = split(store.lengths, config.training)
    train_store, held_store = store.subset(training), store.subset(held)
    reward.record = {**store.record, "validation_videos": list(held_store.names)}
    if sample is not None:
        if len(held) == 0:
            warnings.warn("nothing is left to validate on: the last weights are kept, not the best", stacklevel=2)
        train_store, measure = prepare(train_store), validate or validate_distances
        progress = train(
            reward,
            lambda rng: sample(reward, train_store, rng),
            (lambda network: measure(network, held_store)) if len(held) else None,
            config.training,
            folder,
            {"method": cls.method, "config": to_dict(config), "data": store.fingerprint},
        )
        last = progress.best_row or progress.rows[-1]
        reward.record["training"] = {"steps": progress.step, "encoded_frames": progress.frames, "kept": last}
        if progress.stopped:
            reward.record["training"]["stopped"] = progress.stopped
            warnings.warn(progress.stopped, stacklevel=2)
    reward.eval()
    remember(reward, train_store)
    if cls.is_value:
        reward.familiarity.learn(train_store, held_store)
    return reward


@torch.no_grad()
def validate_distances(reward: FrameReward, store: FrameStore) -> dict[str, float]:
    """On held-out videos: mean absolute error of the distance over all pairs, and order from the first frame."""
    errors, orders = [], []
    for video, length in enumerate(store.lengths):
        predicted = reward.distances(reward.encode(store.frames(video, np.arange(length))))
        assert predicted is not None, f"{reward.method} knows no distances: validate it in another way"
        distances = predicted.cpu().numpy()
        times = store.times(video, np.arange(length))
        truth = (times[None, :] - times[:, None]) / (reward.unit(int(store.spans[video])) - 1)
        errors.append(np.abs(distances - truth)[~np.eye(length, dtype=bool)].mean())
        orders.append(order_correlation(distances[0]))
    return {"val_mae": float(np.mean(errors)), "val_voc_from_first": float(np.mean(orders))}


def validate_loss(
    sample: Callable[[R, FrameStore, np.random.Generator], Batch], batches: int = 32
) -> Callable[[R, FrameStore], dict[str, float]]:
    """The loss on the same batches of held-out videos each time."""

    @torch.no_grad()
    def validate(reward: R, store: FrameStore) -> dict[str, float]:
        losses = []
        for number in range(batches):
            batch = sample(reward, store, np.random.default_rng([0x7A1, number]))
            losses.append(float(reward({name: t.to(reward.device) for name, t in batch.tensors.items()})))
        return {"val_loss": float(np.mean(losses))}

    return validate


def order_correlation(values: np.ndarray) -> float:
    """Spearman's rank correlation of a curve (T,) with time; 0 for a constant curve, which orders nothing."""
    if np.ptp(values) == 0:
        return 0.0
    from scipy.stats import rankdata  # takes a second to import, which most commands need not wait for

    return float(np.corrcoef(rankdata(values), np.arange(len(values)))[0, 1])


def load_frames(store: FrameStore, video: np.ndarray, index: np.ndarray, history: int) -> Tensor:
    """Frames and their past: uint8 (N, history+1, S, S, 3); the start is padded by repetition."""
    moments = windows(index, history)
    frames = np.empty((*moments.shape, store.size, store.size, 3), np.uint8)
    for number in np.unique(video):
        rows = video == number
        frames[rows] = store.frames(int(number), moments[rows].ravel()).reshape(-1, *frames.shape[1:])
    return torch.from_numpy(frames)


def windows(index: np.ndarray, history: int) -> np.ndarray:
    """Frames (N,) -> the moments that each of them sees, the past first: (N, history+1)."""
    return np.maximum(index[:, None] - np.arange(history, -1, -1)[None, :], 0)


def describe(store: FrameStore, video: np.ndarray, index: np.ndarray) -> str:
    """Where the frames of a batch come from, for messages."""
    seen = [
        f"{store.names[number]} frames {sorted(set(index[video == number].tolist()))}" for number in np.unique(video)
    ]
    return "; ".join(seen)
