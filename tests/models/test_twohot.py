"""The two-hot code: round trip, mass on two neighbouring bins, exact small cases."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.models.twohot import Scalar, TwoHot, signed_sqrt, signed_sqrt_inverse

CODES = [TwoHot(20, -1, 1), TwoHot(20, -1, 1, "signed_sqrt"), TwoHot(2, 0, 1), TwoHot(51, 0, 1, "signed_sqrt")]


@pytest.mark.parametrize("code", CODES)
@given(x=st.floats(0, 1), negative=st.booleans())
def test_round_trip_is_exact(code, x, negative):
    x = torch.tensor(-x if negative and code.centres[0] < 0 else x)
    decoded = code.decode(code.encode(x).log())
    assert abs(float(decoded - x)) < 1e-6


@given(x=st.floats(-1, 1), support=st.sampled_from(["linear", "signed_sqrt"]))
def test_mass_is_on_the_two_nearest_bins(x, support):
    code = TwoHot(20, -1, 1, support)
    mass = code.encode(torch.tensor(x))
    used = mass.nonzero().ravel().tolist()
    assert abs(float(mass.sum()) - 1) < 1e-6
    assert len(used) <= 2
    assert len(used) == 1 or used[1] - used[0] == 1
    nearest = int((code.centres - x).abs().argmin())
    assert nearest in used


def test_small_case_by_hand():
    code = TwoHot(3, -1, 1)
    assert code.centres.tolist() == [-1, 0, 1]
    assert torch.allclose(code.encode(torch.tensor([-1.0, -0.25, 0.0, 0.5, 1.0])), torch.tensor(
        [[1, 0, 0], [0.25, 0.75, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 1]]))  # fmt: skip


def test_values_outside_are_clamped():
    code = TwoHot(3, -1, 1)
    assert torch.equal(code.encode(torch.tensor([-7.0, 7.0])), torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]))


def test_loss_is_least_at_the_target():
    code, target = TwoHot(5, -1, 1), torch.tensor([0.3])
    at_target = code.loss((code.encode(target) + 1e-12).log(), target)
    assert at_target < code.loss(torch.zeros(1, 5), target)
    # The least cross-entropy is the entropy of the code itself: 0.3 lies at 0.4 : 0.6 between 0 and 0.5.
    assert float(at_target) == pytest.approx(-0.4 * math.log(0.4) - 0.6 * math.log(0.6), abs=1e-5)


@given(x=st.floats(-1, 1))
def test_signed_sqrt_has_an_inverse(x):
    x = torch.tensor(x, dtype=torch.float64)
    assert abs(float(signed_sqrt_inverse(signed_sqrt(x)) - x)) < 1e-9


def test_signed_sqrt_puts_more_bins_near_zero():
    linear, sqrt = TwoHot(20, -1, 1).centres, TwoHot(20, -1, 1, "signed_sqrt").centres
    assert (sqrt.abs() < 0.2).sum() >= (linear.abs() < 0.2).sum()
    assert sqrt.diff().argmin() in (9,)


def test_regression_ablation():
    scalar = Scalar(-1, 1)
    assert scalar.loss(torch.tensor([[0.5]]), torch.tensor([0.2])).item() == pytest.approx(0.09)
    assert scalar.decode(torch.tensor([[0.5], [3.0], [-3.0]])).tolist() == [0.5, 1, -1]
