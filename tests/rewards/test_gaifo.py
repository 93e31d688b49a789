import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from timerewarder.errors import UserError
from timerewarder.rewards.gaifo import Config, GAIfO, slope_penalty
from timerewarder.rewards.online import Seen

SHORT = {**QUICK, "epoch_frames": 1000}


def backward(seed):
    """The same frames as an expert's, in the wrong order."""
    return np.ascontiguousarray(crossing(seed)[::-1])


@pytest.fixture(scope="module")
def fitted(videos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaifo") / "model"
    tr.fit(videos, folder, method="gaifo", online_lr=1e-3, online_batch=64, hidden=64, **SHORT)
    return folder


@pytest.fixture
def reward(fitted):
    """Before it has seen an agent; each test gets its own."""
    return tr.load(fitted)


@pytest.fixture(scope="module")
def taught(fitted):
    """After an agent went backwards through the scenes of all demonstrations; only looked at."""
    reward, rng = tr.load(fitted), np.random.default_rng(0)
    for seed in range(24):
        reward.observe(backward(seed), rng)
    return reward


def linear(before=(), after=(), **options):
    """A reward whose logit is linear: `before` weighs the first features of the frame left, `after` of the one reached.

    relu(w x) - relu(-w x) = w x.
    """
    reward = GAIfO(Config(image_size=16, hidden=2, **options)).eval()
    first, _, second, _, last, _ = reward.discriminator
    for parameter in reward.discriminator.parameters():
        parameter.data.zero_()
    weight = torch.zeros(1024)
    weight[: len(before)], weight[512 : 512 + len(after)] = torch.tensor(before), torch.tensor(after)
    first.weight.data = torch.stack([weight, -weight])
    second.weight.data = torch.eye(2)
    last.weight.data = torch.tensor([[1.0, -1.0]])
    return reward


def rows(*values):
    """Features that begin with these values, (N, 512)."""
    found = torch.zeros(len(values), 512)
    for row, value in zip(found, values, strict=True):
        row[: len(value)] = torch.tensor(value)
    return found


# The gradient penalty


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_penalty_of_a_linear_discriminator(weights, count, seed):
    """The gradient of w x is w, wherever one looks: the penalty is (|w| - 1)^2."""
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, len(weights))))
    weight = torch.tensor(weights, dtype=torch.float64)
    found = slope_penalty(lambda x: x @ weight, points).item()
    assert found == pytest.approx((math.sqrt(sum(w * w for w in weights)) - 1) ** 2, abs=1e-9)


def test_gradient_of_the_penalty():
    """d/dw (|w| - 1)^2 = 2 (|w| - 1) w / |w| = 2 * 4 * (0.6, 0.8)."""
    weight = torch.tensor([3.0, 4.0], requires_grad=True)
    penalty = slope_penalty(lambda x: x @ weight, torch.zeros(5, 2))
    penalty.backward()
    assert penalty.item() == pytest.approx(16)
    assert weight.grad.tolist() == pytest.approx([4.8, 6.4])


def test_penalty_is_the_mean_over_points():
    """The gradient of |x|^2 / 2 is x: lengths 5, 1 and 0 cost 16, 0 and 1."""
    points = torch.tensor([[3.0, 4.0], [0.0, -1.0], [0.0, 0.0]])
    assert slope_penalty(lambda x: x.square().sum(1) / 2, points).item() == pytest.approx(17 / 3)


def test_a_flat_discriminator_can_still_learn():
    """Where the gradient is zero its length has none, but the step must be a number."""
    network = nn.Linear(3, 1)
    nn.init.zeros_(network.weight)
    penalty = slope_penalty(lambda x: network(x).squeeze(1), torch.ones(2, 3))
    penalty.backward()
    assert penalty.item() == pytest.approx(1)
    assert torch.isfinite(network.weight.grad).all()


@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_online_loss_worked_by_hand(weight):
    """Logits 3 * before + 4 * after: 11 for the expert's step from 1 to 2, -4 for the agent's from 0 to -1."""
    reward = linear([3.0], [4.0], gradient_penalty=weight)
    reward.demonstrations, reward.lengths = rows([1.0], [2.0]), torch.tensor([2])
    agent = Seen(rows([7.0], [7.0]), rows([0.0], [0.0]), rows([-1.0], [-1.0]))
    loss = reward.online_loss(agent, np.random.default_rng(0)).item()
    cross_entropy = (math.log1p(math.exp(-11)) + math.log1p(math.exp(-4))) / 2
    assert loss == pytest.approx(cross_entropy + weight * 16, rel=1e-5)


def test_slopes_are_taken_between_an_expert_step_and_one_of_the_agent():
    reward = linear([1.0], online_batch=64)
    reward.demonstrations, reward.lengths = rows([1.0, 0.0], [2.0, 0.0]), torch.tensor([2])
    agent = Seen(*(rows(*[[value, 4.0]] * 64) for value in (9.0, 5.0, 6.0)))
    looked_at = []
    reward.discriminator.register_forward_pre_hook(lambda _module, inputs: looked_at.append(inputs[0].detach()))
    reward.online_loss(agent, np.random.default_rng(0))
    steps, between = looked_at
    expert, other = (torch.cat([rows(a), rows(b)], dim=1) for a, b in (([1.0], [2.0]), ([5.0, 4.0], [6.0, 4.0])))
    assert torch.equal(steps, torch.cat([expert.expand(64, -1), other.expand(64, -1)]))
    share = (between[:, 0] - 1) / 4
    assert torch.allclose(between, expert + share[:, None] * (other - expert), atol=1e-5)
    assert 0 <= share.min() < 0.1
    assert 0.9 < share.max() <= 1
    assert len(share.unique()) == 64


# The reward


def test_reward_is_the_logit_of_a_step():
    reward = linear([-1.0, 0.5], [2.0])
    with torch.no_grad():
        found = reward.compare(rows([1.0, 2.0], [3.0, -2.0], [0.0, 0.0], [50.0, 0.0])).tolist()
        alone = reward.compare(rows([1.0, 2.0])).tolist()
    assert found == pytest.approx([0, -1 + 1 + 6, -3 - 1 + 0, 0 + 100])
    assert alone == [0]


def test_rewards_before_any_agent_are_numbers(reward):
    for frames in (crossing(300), crossing(300, 2), np.zeros((4, 20, 20, 3), np.uint8)):
        assert np.isfinite(reward.score(frames)).all()


def test_tells_the_direction_of_a_step(taught):
    """Expert and agent pass through the same frames: only steps tell them apart."""
    seeds = range(620, 630)
    gains = [taught.score(crossing(seed))[1:].mean() - taught.score(backward(seed))[1:].mean() for seed in seeds]
    assert min(gains) > 0
    assert np.mean(gains) > 0.5


def test_learning_lowers_the_loss(reward):
    rng = np.random.default_rng(0)
    losses = [reward.observe(backward(0), rng)["reward_loss"] for _ in range(6)]
    assert losses[-1] < 0.5 * losses[0]


def test_learning_leaves_the_encoder_alone(reward):
    before = {name: tensor.clone() for name, tensor in reward.state_dict().items()}
    reward.observe(backward(600), np.random.default_rng(0))
    changed = {name for name, tensor in reward.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.startswith("discriminator.")}
    assert all(parameter.grad is None for parameter in reward.encoder.parameters())


def test_streamed_and_loaded_as_scored(taught, tmp_path):
    frames = crossing(300)
    expected = taught.score(frames)
    stream = taught.stream()
    stream.reset(frames[0])
    assert np.allclose([stream.step(frame) for frame in frames[1:]], expected[1:], atol=1e-4)
    taught.save(tmp_path / "model")
    assert np.array_equal(tr.load(tmp_path / "model").score(frames), expected)


def test_restored_equals_uninterrupted(fitted):
    whole, stopped, resumed = (tr.load(fitted) for _ in range(3))
    whole.observe(backward(600), np.random.default_rng(0))
    stopped.observe(backward(600), np.random.default_rng(0))
    resumed.restore_online(stopped.online_state())
    assert np.array_equal(resumed.score(crossing(300)), stopped.score(crossing(300)))
    for reward in (whole, resumed):
        reward.observe(backward(601), np.random.default_rng(1))
    assert np.array_equal(whole.score(crossing(300)), resumed.score(crossing(300)))
    assert not np.array_equal(whole.score(crossing(300)), stopped.score(crossing(300)))


# The fit


def test_all_that_the_fit_trains_gets_a_gradient():
    """Distributed training waits for the gradient of every parameter that asks for one."""
    reward = GAIfO(Config(image_size=SIZE)).train()
    reward({"frames": torch.from_numpy(crossing(1, 6))[:, None]}).backward()
    assert all((p.grad is not None) == p.requires_grad for p in reward.parameters())
    assert all(p.grad is None for p in reward.discriminator.parameters())


def test_an_encoder_that_is_to_stay_as_it_is(videos):
    reward = tr.fit(videos, method="gaifo", contrast="no", **SHORT)
    assert "training" not in reward.record
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = GAIfO(reward.config)
    own, other = reward.encoder.state_dict(), fresh.encoder.state_dict()
    assert all(torch.equal(own[name], other[name]) for name in own)
    assert reward.observe(backward(600), np.random.default_rng(0))["reward_loss"] > 0


def test_demonstrations_are_those_that_were_trained_on(reward, videos):
    assert len(reward.lengths) == 24 - len(reward.record["validation_videos"])
    name = next(p.stem for p in sorted(videos.glob("*.npy")) if p.stem not in reward.record["validation_videos"])
    assert torch.allclose(reward.experts[0], reward.encode(np.load(videos / f"{name}.npy")), atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": 0}, {"online_batch": 0}, {"online_updates": -1}, {"online_lr": 0.0}, {"online_lr": math.inf},
        {"gradient_penalty": -1.0}, {"gradient_penalty": math.nan}, {"temperature": 0.0},
    ],
)  # fmt: skip
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match=f"--{next(iter(options)).replace('_', '-')}"):
        Config(**options)
