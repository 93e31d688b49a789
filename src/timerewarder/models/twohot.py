"""Two-hot code of a scalar (paper, Eq. 5): a distribution over K bins with mass on the two nearest bin centres.

    encode(x) = (1-a) e_i + a e_{i+1},  a = (x - c_i) / (c_{i+1} - c_i)      decode(p) = sum_k p_k c_k

The centres c span [low, high] including both ends, so decode(encode(x)) = x. `support="linear"` spaces them uniformly
(paper); `"signed_sqrt"` uniformly in h(x) = sign(x)(sqrt(|x|+1) - 1) + 0.001 x (public release), which puts more bins
near zero, where the distances of adjacent frames lie.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Support = Literal["linear", "signed_sqrt"]


def signed_sqrt(x: Tensor, epsilon: float = 1e-3) -> Tensor:
    """h(x) = sign(x)(sqrt(|x|+1) - 1) + epsilon x."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + epsilon * x


def signed_sqrt_inverse(y: Tensor, epsilon: float = 1e-3) -> Tensor:
    """x with h(x) = y: the positive root of epsilon s^2 + s - (1 + epsilon + |y|) = 0, where s = sqrt(|x|+1)."""
    root = ((1 + 4 * epsilon * (y.abs() + 1 + epsilon)).sqrt() - 1) / (2 * epsilon)
    return y.sign() * (root.square() - 1)


class TwoHot(nn.Module):
    """Bins, encoding, decoding and loss; the centres are derived from the configuration, not stored in checkpoints."""

    centres: Tensor

    def __init__(self, bins: int, low: float, high: float, support: Support = "linear") -> None:
        super().__init__()
        ends = torch.tensor([low, high], dtype=torch.float64)
        if support == "linear":
            centres = torch.linspace(low, high, bins, dtype=torch.float64)
        else:
            first, last = signed_sqrt(ends).tolist()
            centres = signed_sqrt_inverse(torch.linspace(first, last, bins, dtype=torch.float64))
            centres[0], centres[-1] = ends  # not off by a rounding error
        self.register_buffer("centres", centres.float(), persistent=False)

    @property
    def outputs(self) -> int:
        return len(self.centres)

    def encode(self, x: Tensor) -> Tensor:
        """(...) in [low, high] -> (..., K) probabilities; values outside are clamped to the ends."""
        right, share = self._between(x)
        code = x.new_zeros(*x.shape, self.outputs)
        return code.scatter(-1, right, share).scatter(-1, right - 1, 1 - share)

    def decode(self, logits: Tensor) -> Tensor:
        """(..., K) -> (...): the expectation of the bin centres."""
        return logits.float().softmax(-1) @ self.centres

    def loss(self, logits: Tensor, x: Tensor) -> Tensor:
        """(..., K), (...) -> (...): cross-entropy to the two-hot code of x."""
        right, share = self._between(x)
        log_p = F.log_softmax(logits.float(), -1)
        return -torch.lerp(log_p.gather(-1, right - 1), log_p.gather(-1, right), share).squeeze(-1)

    def _between(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The bin to the right of x, (..., 1), and how far x has come to it from the one on the left, in [0, 1]."""
        x = x.clamp(self.centres[0], self.centres[-1]).contiguous()
        right = torch.searchsorted(self.centres, x).clamp(1, self.outputs - 1)
        low, high = self.centres[right - 1], self.centres[right]
        return right.unsqueeze(-1), ((x - low) / (high - low)).unsqueeze(-1)


class Scalar(nn.Module):
    """The ablation without two-hot: one output, squared error."""

    outputs = 1

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def decode(self, logits: Tensor) -> Tensor:
        return logits.float().squeeze(-1).clamp(self.low, self.high)

    def loss(self, logits: Tensor, x: Tensor) -> Tensor:
        return (logits.float().squeeze(-1) - x).square()
