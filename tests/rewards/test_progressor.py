"""PROGRESSOR: its targets, KL, loss and reward by hand, how triples are drawn, and what it learns online."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Normal, kl_divergence

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from tests.rewards.test_timerewarder import write_tiny_clip
from timerewarder.errors import UserError
from timerewarder.rewards import progressor
from timerewarder.rewards.online import Seen

SHORT = {**QUICK, "epoch_frames": 480, "validate_every": 240}
numbers = st.floats(-3, 3, width=32)


def untrained(**options):
    torch.manual_seed(0)
    return progressor.Progressor(progressor.Config(image_size=16, **options))


def constant(reward, mean, log_sigma):
    """The same reward with one answer to everything."""
    with torch.no_grad():
        reward.head[-1].weight.zero_()
        reward.head[-1].bias.copy_(torch.tensor([mean, log_sigma]))
    return reward


def features(*numbers):
    """(T, 512): a number, then zeros."""
    return torch.tensor([[float(number), *[0.0] * 511] for number in numbers])


def times(*triple):
    return [torch.tensor([time]) for time in triple]


# Targets, KL, entropy


@pytest.mark.parametrize(
    ("triple", "mean", "sigma"),
    [
        ((2, 5, 8), 0.5, math.sqrt(1 / 6)),
        ((0, 0, 4), 0.0, 0.5),
        ((0, 4, 4), 1.0, 0.5),
        ((5, 2, 8), -1.0, math.sqrt(1 / 3)),  # a negative: o_2 relative to (o_5, o_8)
        ((3, 3, 3), 0.0, 1.0),  # a start that is its goal counts as one step from it
        ((8, 2, 8), -6.0, 1.0),
    ],
)
def test_target_by_hand(triple, mean, sigma):
    found = progressor.target(*times(*triple))
    assert found[0].item() == pytest.approx(mean)
    assert found[1].exp().item() == pytest.approx(sigma)


def test_kl_by_hand():
    found = progressor.kl(*(torch.tensor([x]) for x in (0.5, 0.0, 0.0, math.log(2))))
    assert found.item() == pytest.approx(math.log(2) + (1 + 0.25) / 8 - 0.5)


@given(numbers, numbers, numbers, numbers)
def test_kl_is_torch_s(mean, log_sigma, predicted, predicted_log_sigma):
    arguments = [torch.tensor(x, dtype=torch.float64) for x in (mean, log_sigma, predicted, predicted_log_sigma)]
    found = progressor.kl(*arguments)
    expected = kl_divergence(Normal(arguments[0], arguments[1].exp()), Normal(arguments[2], arguments[3].exp()))
    assert found.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)
    assert progressor.kl(*arguments[:2], *arguments[:2]).item() == 0


@given(numbers)
def test_entropy_is_torch_s(log_sigma):
    expected = Normal(0.0, math.exp(log_sigma)).entropy().item()
    assert progressor.entropy(torch.tensor(log_sigma)).item() == pytest.approx(expected, abs=1e-5)


# Loss and reward


@pytest.mark.parametrize("negatives", [False, True])
def test_loss_by_hand(negatives):
    reward = constant(untrained(negatives=negatives), 0.3, -0.5)
    found = reward.loss(torch.randn(2, 3, 512), torch.tensor([[0, 1, 4], [2, 6, 7]]))
    predicted = Normal(0.3, math.exp(-0.5))
    forward = [Normal(1 / 4, math.sqrt(1 / 4)), Normal(4 / 5, math.sqrt(1 / 5))]
    backward = [Normal(-1 / 3, math.sqrt(1 / 3)), Normal(-4.0, 1.0)]
    expected = np.mean([kl_divergence(t, predicted) for t in forward])
    if negatives:
        expected = (expected + np.mean([kl_divergence(t, predicted) for t in backward])) / 2
    assert found.item() == pytest.approx(expected, rel=1e-5)


def by_place():
    """A reward whose mu is 100, 10 and 1 times the first feature of first frame, current frame and goal; sigma is 1."""
    reward = untrained()
    reward.head = nn.Linear(3 * 512, 2, bias=False)
    with torch.no_grad():
        reward.head.weight.zero_()
        reward.head.weight[0, [0, 512, 1024]] = torch.tensor([100.0, 10.0, 1.0])
    return reward


def test_reward_by_hand():
    reward = by_place()
    reward.goals = features(7)
    calm = 0.4 * 0.5 * math.log(2 * math.pi * math.e)  # the entropy of N(., 1)
    assert reward.compare(features(1, 2, 3)).tolist() == pytest.approx([0, 127 - calm, 137 - calm], rel=1e-6)


def test_several_goals_have_the_mean_of_their_rewards():
    reward = by_place()
    reward.goals = features(7, 9)
    one, other = features(7), features(9)
    mean = reward.compare(features(1, 2))
    reward.goals = one
    first = reward.compare(features(1, 2))
    reward.goals = other
    assert torch.allclose(mean, (first + reward.compare(features(1, 2))) / 2)


def test_being_unsure_costs():
    reward = constant(untrained(), 0.5, 0.0)
    reward.goals = features(1)
    unsure = reward.compare(features(1, 2))[1]
    sure = constant(reward, 0.5, -1.0).compare(features(1, 2))[1]
    assert (sure - unsure).item() == pytest.approx(0.4)


def test_sigma_stays_in_bounds():
    reward = constant(untrained(), 0.0, 1e6)
    assert reward.predict(features(1), features(1), features(1))[1].item() == 2
    reward = constant(untrained(), 0.0, -1e6)
    assert reward.predict(features(1), features(1), features(1))[1].item() == -6


# Triples


@given(
    lengths=st.lists(st.integers(2, 40), min_size=1, max_size=5), count=st.integers(1, 20), seed=st.integers(0, 2**32)
)
def test_triples_are_in_order_and_inside(lengths, count, seed):
    video, index = progressor.draw_triples(np.array(lengths), count, np.random.default_rng(seed))
    first, now, goal = index.T
    assert index.shape == (count, 3)
    assert (first >= 0).all()
    assert (first < goal).all()
    assert (first <= now).all()
    assert (now <= goal).all()
    assert (goal < np.array(lengths)[video]).all()


def test_triples_have_any_two_ends_and_anything_between():
    _, index = progressor.draw_triples(np.array([3]), 20_000, np.random.default_rng(0))
    found = {tuple(row): n / 20_000 for row, n in zip(*np.unique(index, axis=0, return_counts=True), strict=True)}
    law = {(i, j, g): 1 / 3 / (g - i + 1) for i, g in ((0, 1), (0, 2), (1, 2)) for j in range(i, g + 1)}
    assert sum(law.values()) == pytest.approx(1)
    assert found == pytest.approx(law, abs=0.02)


# Fitted


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Videos of 2 to 20 frames, one of which rests at its end."""
    folder = tmp_path_factory.mktemp("mixed")
    for number, length in enumerate([2, 2, 3, 5, 9, 12, 20]):
        np.save(folder / f"v{number}.npy", crossing(number, length))
    resting = crossing(7, 10)
    np.save(folder / "resting.npy", np.concatenate([resting, np.repeat(resting[-1:], 20, 0)]))
    return folder


@pytest.fixture(scope="module")
def small(mixed):
    return tr.fit(mixed, method="progressor", goals=2, **SHORT)


def test_videos_of_any_length(small):
    assert small.goals.shape == (2, 512)
    assert np.isfinite(small.score(crossing(1, 2))).all()


def test_demonstrations_end_where_they_come_to_rest(small):
    lengths = {"v0": 2, "v1": 2, "v2": 3, "v3": 5, "v4": 9, "v5": 12, "v6": 20, "resting": 10}
    expected = [n for name, n in lengths.items() if name not in small.record["validation_videos"]]
    assert sorted(small.lengths.tolist()) == sorted(expected)
    assert len(small.demonstrations) == sum(expected)


def test_negatives_are_an_option(mixed):
    reward = tr.fit(mixed, method="progressor", negatives=True, **SHORT)
    assert np.isfinite(reward.record["training"]["kept"]["val_loss"])


def test_learns_where_a_frame_is(videos):
    """mu of held-out frames, between the ends of their own video, against the truth."""
    reward = tr.fit(videos, method="progressor", **QUICK)
    errors = []
    for seed in range(100, 104):
        with torch.no_grad():
            seen = reward.encode(crossing(seed))
            mean, _ = reward.predict(seen[:1].expand_as(seen), seen, seen[-1:].expand_as(seen))
        errors.append((mean - torch.linspace(0, 1, len(seen))).abs().mean())
    assert np.mean(errors) < 0.15


# Online


def test_push_back_by_hand():
    reward = constant(untrained(push_back_weight=1.0), 0.5, -1.0)
    reward.demonstrations, reward.lengths = torch.randn(7, 512), torch.tensor([3, 4])
    reward.goals = features(1, 2)
    seen = Seen(*torch.randn(3, 5, 512))
    total = reward.online_loss(seen, np.random.default_rng(3))
    _, index = progressor.draw_triples(np.array([3, 4]), 5, np.random.default_rng(3))
    expert = reward.loss(torch.randn(5, 3, 512), torch.from_numpy(index))  # whatever is seen, the answer is one
    pushed = (0.1 * 0.5 * math.e) ** 2 / 2  # KL of N(0.45, 1/e) to N(0.5, 1/e)
    assert (total - expert).item() == pytest.approx(pushed, rel=1e-4)
    total.backward()
    assert reward.head[-1].bias.grad is not None
    assert all(parameter.grad is None for parameter in reward.encoder.parameters())


def test_online_triples_are_of_one_demonstration():
    reward = by_place()
    reward.config = progressor.Config(push_back_weight=0.0)
    reward.demonstrations, reward.lengths = features(0, 1, 2, 10, 11, 12, 13), torch.tensor([3, 4])
    reward.goals = features(1)
    seen = Seen(*torch.zeros(3, 50, 512))
    video, index = progressor.draw_triples(np.array([3, 4]), 50, np.random.default_rng(5))
    rows = torch.from_numpy(10.0 * video[:, None] + index)  # a demonstration's features tell its number and the time
    mean = (rows * torch.tensor([100.0, 10.0, 1.0])).sum(1)
    wanted = progressor.target(*torch.from_numpy(index).unbind(1))
    expected = progressor.kl(*wanted, mean, torch.zeros(50)).mean()
    assert reward.online_loss(seen, np.random.default_rng(5)).item() == pytest.approx(expected.item(), rel=1e-5)


def after_observing(mixed, frames, **options):
    reward = tr.fit(mixed, method="progressor", online_updates=30, online_lr=1e-3, **SHORT, **options)
    encoder = {name: tensor.clone() for name, tensor in reward.encoder.state_dict().items()}
    assert reward.observe(frames, np.random.default_rng(0))["reward_loss"] > 0
    assert all(torch.equal(encoder[name], tensor) for name, tensor in reward.encoder.state_dict().items())
    with torch.no_grad():
        seen = reward.encode(frames)
        return reward.predict(seen[:1].expand_as(seen), seen, reward.goals.expand_as(seen))[0].mean().item()


def test_push_back_lowers_what_the_agent_shows(mixed):
    frames = np.random.default_rng(1).integers(0, 255, (12, SIZE, SIZE, 3), np.uint8)
    without = after_observing(mixed, frames, push_back_weight=0.0)
    pushed = after_observing(mixed, frames, push_back_weight=3.0, push_back_factor=0.0)
    assert abs(pushed) < abs(without) - 0.02


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"triples": 0}, "--triples"),
        ({"hidden": 0}, "--hidden"),
        ({"online_batch": 0}, "--online-batch"),
        ({"online_updates": -1}, "--online-updates"),
        ({"online_lr": 0.0}, "--online-lr"),
        ({"entropy_weight": -0.1}, "--entropy-weight"),
        ({"push_back_weight": float("nan")}, "--push-back-weight"),
        ({"push_back_factor": 1.5}, "--push-back-factor"),
        ({"goals": 0}, "--goals"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        progressor.Config(**options)


def test_history_is_refused():
    with pytest.raises(UserError, match="--history"):
        untrained(history=1)


@pytest.mark.parametrize("method", ["vip", "progressor"])
def test_encoders_of_any_size(method, videos, tmp_path):
    write_tiny_clip(tmp_path / "clip")
    options = {**SHORT, "image_size": None, "epoch_frames": 64, "encoder": "clip-vit-b16"}
    reward = tr.fit(videos, method=method, encoder_weights=str(tmp_path / "clip"), **options)
    assert reward.encoder.dim == 24
    assert reward.score(crossing(1, 4)).shape == (4,)
