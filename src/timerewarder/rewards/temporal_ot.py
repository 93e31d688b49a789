"""TemporalOT (Fu et al., 2024): optimal transport that looks at the order of frames.

cost     C_ij = 1/3 sum_k c(i+k, j+k),  k = 0, 1, 2;  c = 1 - cos;  beyond its end a sequence repeats its last frame
plan     as OT's, but P_ij = 0 where |i - j| > 10                                              (masked Sinkhorn)
reward   r_i = -s sum_j P_ij C_ij, by the demonstration with the largest sum; s: |sum_i r_i| = 10 on the first episode

Deviation: the paper's episodes and demonstrations have one length. Here lengths differ, so the mask follows the
diagonal from the first frames to the last ones, 10 frames of the shorter sequence wide to each side:

    | (i + 1/2) / T - (j + 1/2) / L | min(T, L) <= 10

which is |i - j| <= 10 for T = L. The plan that keeps all frames in order fits into every mask of width 1 or more, so
every frame has a place to go to and both marginals can be met.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from timerewarder.errors import UserError
from timerewarder.rewards import ot
from timerewarder.rewards.demonstrations import fit_contrast
from timerewarder.rewards.fitting import Sources
from timerewarder.rewards.matching import Costs


@dataclass(frozen=True, kw_only=True)
class Config(ot.Config):
    """Options of TemporalOT."""

    context: int = 3
    """Frames, from a frame onwards, over which its cost is averaged."""
    mask: int = 10
    """How many frames a frame's match may be off the diagonal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context < 1 or self.mask < 1:
            raise UserError("--context and --mask must be at least 1: a frame itself, and its neighbours")


class TemporalOT(ot.OT):
    method = "temporal-ot"
    is_ordered: ClassVar[bool] = True
    config: Config

    def costs(self, windows: Tensor) -> Costs:
        costs = super().costs(windows)
        return costs._replace(values=averaged(costs.values, self.config.context))

    def log_kernel(self, costs: Costs) -> Tensor:
        allowed = band(costs.values.shape[1], costs.lengths, costs.values.shape[2], self.config.mask)
        return super().log_kernel(costs).masked_fill(~allowed & costs.real[:, None], -torch.inf)


def averaged(values: Tensor, context: int) -> Tensor:
    """Costs (N, T, L) averaged over the frames that follow both; padding repeats a demonstration's last frame."""
    rows, columns = (torch.arange(size) for size in values.shape[1:])
    later = [
        values[:, (rows + k).clamp(max=len(rows) - 1)][:, :, (columns + k).clamp(max=len(columns) - 1)]
        for k in range(context)
    ]
    return torch.stack(later).mean(0)


def band(frames: int, lengths: Tensor, columns: int, width: int) -> Tensor:
    """bool (N, frames, columns): places near the diagonal, for demonstrations of `lengths` (N,). In whole numbers."""
    row = (2 * torch.arange(frames) + 1)[None, :, None] * lengths[:, None, None]
    column = (2 * torch.arange(columns) + 1) * frames
    shorter = lengths.clamp(max=frames)[:, None, None]
    return (row - column).abs() * shorter <= 2 * width * frames * lengths[:, None, None]


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> TemporalOT:
    """Keep the demonstrations' features. With a `folder` the encoder's training logs there and can be resumed."""
    ot.pot()  # before anything takes time
    return fit_contrast(TemporalOT, config, videos, folder, **opening)
