"""TimeRewarder (paper, section 4): predict the signed, normalised time between two frames; that is the reward.

    target   d_uv = (v - u) / (T - 1) in [-1, 1]                                              (Eq. 3)
    pairs    P(interval) proportional to 1/interval, both orders (implicit negatives)         (Eq. 4, data/pairs.py)
    loss     cross-entropy of F(o_u, o_v) to the two-hot code of d_uv                         (Eq. 5, models/twohot.py)
    reward   r_t = decode F(o_t, o_t+1)                                                       (Eq. 6)

F is a shared encoder, a linear layer on the two feature vectors side by side, and K = 20 bins. The defaults are those
that measure best on held-out videos; `PRESETS["paper"]` is the paper's table. Deviations of the default:

- `pairing="shared"`: the frames of a batch are encoded once and used in all pairs among them.
- `antisymmetric="halved"`: r = (F(a,b) - F(b,a)) / 2, which cancels the constant bias that a running sum adds up, and
  makes standing still worth exactly 0.
- a small encoder, small batches, AdamW 1e-3 and averaged weights, because the paper's ViT-B needs a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.data.composites import composite
from timerewarder.data.erasing import erase
from timerewarder.data.hands import find_hands
from timerewarder.data.pairs import Sampling, sample_independent, sample_shared
from timerewarder.data.store import FrameStore
from timerewarder.errors import UserError
from timerewarder.models.twohot import Scalar, Support, TwoHot
from timerewarder.rewards.fitting import Sources, describe, fit_network, load_frames, windows
from timerewarder.rewards.reward import FrameConfig, FrameReward
from timerewarder.rewards.training import Batch, Training


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig):
    """Options of TimeRewarder."""

    pairing: Literal["shared", "independent"] = "shared"
    """shared: encode the frames of a clip once and train on all pairs among them; independent: the paper's."""
    pairs: int = 16
    """Pairs in a batch, for independent pairing; each costs two encoded frames."""
    clips: int = 2
    """Videos in a batch, for shared pairing."""
    clip_frames: int = 8
    """Frames encoded in each of them, an even number."""
    sampling: Sampling = "inverse"
    """Law of the interval between two frames: inverse (paper, 1/interval) or uniform (ablation)."""
    negatives: bool = True
    """Train on both orders of a pair (paper); without, only forward, targets in [0, 1] (ablation)."""
    target: Literal["twohot", "regression"] = "twohot"
    """What the head predicts: two-hot bins (paper) or the number itself (ablation)."""
    bins: int = 20
    """Number of bins K."""
    support: Support = "linear"
    """Spacing of the bins: linear (paper) or signed_sqrt (public release)."""
    length_norm: Literal["video", "dataset_max"] = "video"
    """What a distance is a share of: the video's own length (paper) or the longest video's (public release)."""
    head: Literal["concat", "difference"] = "concat"
    """How two feature vectors meet: side by side (paper) or subtracted (the paper's PCA figure)."""
    head_norm: bool = False
    """LayerNorm before the head (public release)."""
    head_dropout: float = 0.0
    """Dropout after the head (public release: 0.2)."""
    antisymmetric: Literal["no", "halved", "full"] = "halved"
    """Reward F(a,b) (no), (F(a,b) - F(b,a)) / 2 (halved) or F(a,b) - F(b,a) (full, public release)."""
    shift: int = 0
    """Augmentation: move all frames of a clip by up to so many pixels."""
    composites: float = 0.0
    """Augmentation: share of the frames in a batch whose hand is replaced by that of another moment, so that the model
    has to look at the object (data/composites.py). For cameras that stand still; to train policies, give 0.5."""
    erase: float = 0.0
    """Augmentation: share of the frames in a batch that have small patches painted over, so that no single detail
    decides and the reward is smoother where a policy goes its own way (data/erasing.py)."""

    def __post_init__(self) -> None:
        if self.clip_frames < 2 or self.clip_frames % 2:
            raise UserError(f"--clip-frames {self.clip_frames} must be an even number, at least 2")
        if self.clips < 1 or self.pairs < 1 or self.bins < 2:
            raise UserError("--clips and --pairs must be at least 1, --bins at least 2")
        if self.shift < 0 or not 0 <= self.head_dropout < 1:
            raise UserError(
                "--shift must be at least 0 pixels, --head-dropout a share from 0 up to, but not including, 1"
            )
        for name in ("composites", "erase"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"--{name} {getattr(self, name)} is a share: give 0 to 1")
        if self.composites and not self.negatives:
            raise UserError("--no-negatives trains one order of a pair only: add --composites 0")
        if self.antisymmetric != "no" and not self.negatives:
            raise UserError("--no-negatives trains one order of a pair only: add --antisymmetric no")


PRESETS = {
    "default": Config(),
    "paper": Config(
        encoder="clip-vit-b16",
        pairing="independent",
        antisymmetric="no",
        stop_at_rest=False,
        training=Training(epochs=100, warmup_epochs=5, lr=2e-5, optimizer="adam", clip_norm=0, ema=0, patience=0),
    ),
}


class PairHead(nn.Module):
    """Two feature vectors (..., D) -> logits (..., K): a linear layer on both, side by side or subtracted.

    Without LayerNorm it is A(before) + B(after) + bias, so the logits of all pairs of T frames cost 2T products.
    """

    def __init__(self, dim: int, outputs: int, config: Config) -> None:
        super().__init__()
        self.dim, self.concat = dim, config.head == "concat"
        width = 2 * dim if self.concat else dim
        self.norm = nn.LayerNorm(width) if config.head_norm else None
        self.linear = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(config.head_dropout)

    def forward(self, before: Tensor, after: Tensor) -> Tensor:
        if self.norm is not None:
            joined = torch.cat(torch.broadcast_tensors(before, after), -1) if self.concat else after - before
            return self.dropout(self.linear(self.norm(joined)))
        weight = self.linear.weight
        of_before = F.linear(before, weight[:, : self.dim]) if self.concat else -F.linear(before, weight)
        of_after = F.linear(after, weight[:, -self.dim :], self.linear.bias)
        return self.dropout(of_before + of_after)


class TimeRewarder(FrameReward):
    method = "timerewarder"
    config: Config

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, architecture)
        low = -1.0 if config.negatives else 0.0
        twohot = config.target == "twohot"
        self.code = TwoHot(config.bins, low, 1.0, config.support) if twohot else Scalar(low, 1.0)
        self.head = PairHead(self.window_dim, self.code.outputs, config)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss: frames (N, history+1, S, S, 3), pairs as rows of them, gaps (P,) and weights (P,) -> scalar."""
        features = self.encode_windows(batch["frames"])
        logits = self.head(features[batch["before"]], features[batch["after"]])
        return (batch["weight"] * self.code.loss(logits, batch["gap"])).mean()

    def predict(self, before: Tensor, after: Tensor) -> Tensor:
        """Windowed features (..., D) of two moments -> predicted signed distance (...)."""
        distance = self.code.decode(self.head(before, after))
        if self.config.antisymmetric == "no":
            return distance
        backward = self.code.decode(self.head(after, before))
        return (distance - backward) / (2 if self.config.antisymmetric == "halved" else 1)

    def compare(self, features: Tensor) -> Tensor:
        windows = self.windows(features)
        return torch.cat([windows.new_zeros(1), self.predict(windows[:-1], windows[1:])])

    def distances(self, features: Tensor) -> Tensor:
        windows = self.windows(features)
        return torch.cat([self.predict(rows[:, None], windows[None]) for rows in windows.split(64)])

    @property
    def scale(self) -> float:
        return 2.0 if self.config.antisymmetric == "full" else 1.0

    def unit(self, length: int) -> int:
        return self.record["longest_video"] if self.config.length_norm == "dataset_max" else length


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> TimeRewarder:
    """Learn from videos alone. With a `folder` the training logs there and can be resumed from it."""
    prepare = partial(find_hands, seed=config.training.seed) if config.composites else lambda store: store
    return fit_network(TimeRewarder, config, videos, sample_pairs, folder, prepare=prepare, **opening)


def sample_pairs(reward: TimeRewarder, store: FrameStore, rng: np.random.Generator) -> Batch:
    """A batch of pairs by the configured pairing, with their frames, targets and weights."""
    config = reward.config
    if config.pairing == "independent":
        pairs = sample_independent(rng, store.lengths, config.pairs, config.sampling, config.negatives)
    else:
        pairs = sample_shared(rng, store.lengths, config.clips, config.clip_frames, config.sampling, config.negatives)
    frames, times = load_moments(store, pairs.video, pairs.index, config, rng)
    units = np.array([reward.unit(int(span)) for span in store.spans])
    tensors = {
        "frames": frames,
        "before": torch.from_numpy(pairs.before),
        "after": torch.from_numpy(pairs.after),
        "gap": torch.from_numpy(pairs.gap(times, units)),
        "weight": torch.from_numpy(pairs.weight),
    }
    return Batch(tensors, describe(store, pairs.video, pairs.index))


def load_moments(
    store: FrameStore, video: np.ndarray, index: np.ndarray, config: Config, rng: np.random.Generator
) -> tuple[Tensor, np.ndarray]:
    """Frames (N, history+1, S, S, 3) and their times (N,), of which a share are composites, and a share erased."""
    times = store.times(video, index).astype(np.float64)
    frames = load_frames(store, video, index, config.history).numpy()
    for row in _share(config.composites, len(index), rng):
        frames[row], times[row] = composite(store, int(video[row]), windows(index[[row]], config.history)[0], rng)
    frames = shifted(frames, video, config.shift, rng)
    chosen = _share(config.erase, len(frames), rng)
    frames[chosen] = erase(frames[chosen], rng)
    return torch.from_numpy(frames), times


def shifted(frames: np.ndarray, video: np.ndarray, shift: int, rng: np.random.Generator) -> np.ndarray:
    """Frames (N, history+1, S, S, 3), those of a video moved together by up to `shift` pixels, borders repeated."""
    if not shift:
        return frames
    side, padding = frames.shape[2], ((0, 0), (0, 0), (shift, shift), (shift, shift), (0, 0))
    moved = np.empty_like(frames)
    for number in np.unique(video):
        top, left = rng.integers(0, 2 * shift + 1, size=2)
        padded = np.pad(frames[video == number], padding, mode="edge")
        moved[video == number] = padded[:, :, top : top + side, left : left + side]
    return moved


def _share(share: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Which of `count` are chosen, each by chance; without a share, nothing is drawn."""
    return np.flatnonzero(rng.random(count) < share) if share else np.empty(0, np.int64)
