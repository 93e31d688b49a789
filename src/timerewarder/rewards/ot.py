"""Optimal transport (Papagiannis & Li, 2022; in the form of Liu et al., 2024).

cost     C_ij = 1 - cos(f(o_i), f(o_j)), o_i of the episode, o_j of a demonstration; f is frozen
plan     P = argmin_P  sum_ij P_ij C_ij + epsilon P_ij log P_ij,  rows sum to 1/T, columns to 1/L        (Sinkhorn)
reward   r_i = -s sum_j P_ij C_ij, by the demonstration with the largest sum; s: |sum_i r_i| = 10 on the first episode

The plan knows nothing of time: an episode played backwards is transported at the same cost. Sinkhorn's iterations are
those of Python Optimal Transport (POT), all demonstrations at once. They end on the rows, so that every frame of the
episode has its exact mass however far the columns have come.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor

from timerewarder.errors import UserError
from timerewarder.rewards.demonstrations import fit_contrast
from timerewarder.rewards.fitting import Sources
from timerewarder.rewards.matching import Costs, MatchingConfig, MatchingReward

SAFE = 1e100  # scalings from 1/SAFE to SAFE leave float64 room for their products


@dataclass(frozen=True, kw_only=True)
class Config(MatchingConfig):
    """Options of optimal transport."""

    epsilon: float = 0.01
    """Weight of the plan's entropy; the smaller, the sharper the plan and the slower its iterations converge."""
    iterations: int = 100
    """Sinkhorn iterations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilon > 0 or self.iterations < 1:
            raise UserError("--epsilon must be more than 0 and --iterations at least 1")


class OT(MatchingReward):
    method = "ot"
    is_ordered: ClassVar[bool] = False
    config: Config

    def match(self, costs: Costs) -> Tensor:
        plans = sinkhorn(self.log_kernel(costs), costs, self.config.iterations)
        return -(plans * costs.values).sum(2)

    def log_kernel(self, costs: Costs) -> Tensor:
        """What a plan looks like before its rows and columns are scaled, (N, T, L), as a logarithm."""
        return -costs.values / self.config.epsilon


def sinkhorn(log_kernel: Tensor, costs: Costs, iterations: int) -> Tensor:
    """Plans (N, T, L) of uniform marginals from log kernels (N, T, L); -inf where nothing may be moved.

    Every row, and every column that is real, must have a place to which something may be moved.
    """
    solvers = pot()
    count, length, _ = log_kernel.shape
    rows = torch.full((count, length), 1 / length, dtype=log_kernel.dtype)
    columns = costs.real / costs.lengths[:, None].to(log_kernel.dtype)
    kernels = log_kernel.transpose(1, 2).contiguous()  # POT ends on its second marginal: that is to be the rows
    options = {"max_iter": iterations, "tol": 0.0}  # no stop before: it would depend on the other demonstrations
    # The scaling form is several times faster; where its numbers grow beyond what float64 holds, logarithms take over.
    solved = solvers.bregman_projection_batch(kernels.exp(), columns, rows, **options)
    over_columns, over_rows = solved["potentials"]
    unsafe = ~(_is_safe(over_columns) | ~costs.real).all(1) | ~_is_safe(over_rows).all(1)
    plans = solved["T"]
    if unsafe.any():
        logs = solvers.bregman_log_projection_batch(kernels[unsafe], columns[unsafe], rows[unsafe], **options)
        plans[unsafe] = logs["T"]
    return plans.transpose(1, 2)


def _is_safe(scaling: Tensor) -> Tensor:
    return (scaling > 1 / SAFE) & (scaling < SAFE)


def pot() -> ModuleType:
    """POT's solvers of many problems at once."""
    try:
        from ot import batch
    except ImportError as error:
        raise UserError(
            "optimal transport needs Python Optimal Transport 0.9.6 or newer: pip install 'timerewarder[ot]'"
        ) from error
    return batch


def fit(videos: Sources, config: Config, folder: Path | None = None, **opening: Any) -> OT:
    """Keep the demonstrations' features. With a `folder` the encoder's training logs there and can be resumed."""
    pot()  # before anything takes time
    return fit_contrast(OT, config, videos, folder, **opening)
