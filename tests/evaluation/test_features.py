"""Principal components of features: exact on lines and planes, equal to the covariance's, blind to other videos."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import timerewarder as tr
from tests.conftest import QUICK
from timerewarder.errors import UserError
from timerewarder.evaluation.features import encode_videos, principal_components, project


def moving(*points):
    return torch.tensor(points, dtype=torch.float32)


def test_a_line_has_one_direction():
    """Points on y = 2 x: the direction is (1, 2) / sqrt 5, and the places are distances from the middle."""
    line = moving((0, 0), (1, 2), (2, 4))
    components = principal_components([line])
    assert components.explained == pytest.approx((1, 0))
    np.testing.assert_allclose(components.directions[0], np.array([1, 2]) / 5**0.5, atol=1e-12)
    np.testing.assert_allclose(components.project(line)[:, 0], [-(5**0.5), 0, 5**0.5], atol=1e-12)
    np.testing.assert_allclose(components.project(line)[:, 1], 0, atol=1e-12)


def test_shares_of_the_variance():
    """A cross: four times the variance along the first axis."""
    components = principal_components([moving((-2, 0), (0, -1), (0, 1), (2, 0))])
    assert components.explained == pytest.approx((0.8, 0.2))
    np.testing.assert_allclose(components.directions.abs(), np.eye(2), atol=1e-12)


@pytest.mark.parametrize("backward", [False, True])
def test_videos_end_on_the_positive_side(backward):
    way = moving((0, 0, 0), (3, 1, 0), (5, 1, 2))
    videos = [(way.flip(0) if backward else way) + shift for shift in (0, 0.5)]
    components = principal_components(videos)
    points = np.stack([components.project(video) for video in videos])
    assert ((points[:, -1] - points[:, 0]).mean(axis=0) >= 0).all()


@given(frames=st.integers(2, 12), dim=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_equal_to_the_eigenvectors_of_the_covariance(frames, dim, seed):
    features = torch.from_numpy(np.random.default_rng(seed).normal(size=(frames, dim)))
    components = principal_components([features])
    eigenvalues = np.linalg.eigvalsh(np.atleast_2d(np.cov(features.numpy().T)))[::-1]
    shares = np.pad(eigenvalues / eigenvalues.sum(), (0, 2))[:2]
    np.testing.assert_allclose(components.explained, shares, atol=1e-9)
    points = components.project(features)
    assert points.shape == (frames, 2)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-9)
    variances = points.var(axis=0, ddof=1)
    np.testing.assert_allclose(variances, np.pad(eigenvalues, (0, 2))[:2], atol=1e-9)


def test_features_that_do_not_move_explain_nothing():
    components = principal_components([torch.ones(3, 4), torch.ones(2, 4)])
    assert components.explained == (0, 0)
    np.testing.assert_array_equal(components.project(torch.ones(3, 4)), np.zeros((3, 2)))


def test_only_the_first_kind_makes_the_directions():
    train = ("train", "a", moving((0, 0, 0), (1, 0, 0), (2, 0.1, 0)))
    others = [("failure", "b", moving((0, 0, 9), (0, 0, -9)))]
    alone, together = project([train]), project([train, *others])
    assert together.explained == alone.explained
    np.testing.assert_array_equal(together.trajectories[0].points, alone.trajectories[0].points)
    assert np.abs(together.trajectories[1].points).max() < 1.2  # what the training videos never do is not seen
    assert [(t.kind, t.name) for t in together.trajectories] == [("train", "a"), ("failure", "b")]


def test_videos_are_encoded_by_the_model(videos, heldout):
    reward = tr.fit(videos, method="single-frame", **{**QUICK, "epoch_frames": 160, "validate_every": 160})
    encoded = list(encode_videos(reward, {"train": videos, "held-out": heldout}, 2))
    assert [(kind, name) for kind, name, _ in encoded] == [
        ("train", "crossing_00"), ("train", "crossing_01"), ("held-out", "crossing_100"), ("held-out", "crossing_101"),
    ]  # fmt: skip
    first = next(tr.read_videos(heldout))
    assert torch.equal(encoded[2][2], reward.encode(first.frames))


def test_a_model_without_features_is_refused(videos):
    reward = tr.fit(videos, method="gvl", model="any", image_size=32)
    with pytest.raises(UserError, match="gvl looks at pictures and has no features: leave its model out"):
        list(encode_videos(reward, {"train": videos}, 1))
