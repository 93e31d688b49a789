"""The agent's arithmetic, against the formulas written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from timerewarder.agents.drqv2 import Config, DrQv2
from timerewarder.agents.replay import Transitions
from timerewarder.errors import UserError

SMALL = Config(batch=8, hidden=16, trunk=6, lr=1e-3, precision="fp32")  # the arithmetic is compared exactly
PICTURES = (24, 24, 3)


def batch(shape: tuple[int, ...], stack: int, n: int = 8, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    if len(shape) == 3:
        observations = rng.integers(0, 256, (2, n, *shape[:2], shape[2] * stack), dtype=np.uint8)
    else:
        observations = rng.normal(size=(2, n, *shape)).astype(np.float32)
    action = rng.uniform(-1, 1, (n, 4)).astype(np.float32)
    reward, discount = rng.normal(size=n).astype(np.float32), np.full(n, 0.97, np.float32)
    return Transitions(observations[0], action, reward, discount, observations[1])


def without_noise(config: Config = SMALL) -> Config:
    return replace(config, policy_noise=0.0)


@pytest.mark.parametrize("encoder", ["drqv2", "compact"])
@pytest.mark.parametrize("shape", [PICTURES, (7,)])
def test_an_update_follows_the_paper(encoder: str, shape: tuple[int, ...]) -> None:
    config = replace(without_noise(), encoder=encoder, stack=3 if len(shape) == 3 else 1)
    agent, twin = DrQv2(shape, 4, config, seed=1), DrQv2(shape, 4, config, seed=1)
    data = batch(shape, config.stack)
    metrics = agent.update(data, np.random.default_rng(0))

    observation, following, action, reward, discount = (
        torch.from_numpy(array)
        for array in (data.observation, data.next_observation, data.action, data.reward, data.discount)
    )
    with torch.no_grad():
        z = twin.encoder(following)
        goal = reward + discount * torch.min(*twin.target(z, twin.actor(z)))
    z = twin.encoder(observation)
    q1, q2 = twin.critic(z, action)
    critic_loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
    assert metrics["critic_loss"].item() == pytest.approx(critic_loss.item(), rel=1e-5)
    critic_loss.backward()
    torch.optim.Adam([*twin.encoder.parameters(), *twin.critic.parameters()], 1e-3).step()
    actor_loss = -torch.min(*twin.critic(z.detach(), twin.actor(z.detach()))).mean()
    assert metrics["actor_loss"].item() == pytest.approx(actor_loss.item(), rel=1e-4, abs=1e-6)
    twin.actor.zero_grad()
    actor_loss.backward()
    torch.optim.Adam(twin.actor.parameters(), 1e-3).step()
    for part in ("encoder", "critic", "actor"):
        for ours, theirs in zip(getattr(agent, part).parameters(), getattr(twin, part).parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5), part


@pytest.mark.parametrize("bounded", [True, False])
def test_values_are_learned_from_what_a_return_can_be(bounded: bool) -> None:
    config = replace(without_noise(), stack=1, bounded=bounded)
    agent, twin = DrQv2((7,), 4, config, seed=1), DrQv2((7,), 4, config, seed=1)
    data, (low, high) = batch((7,), 1), (-0.5, 0.25)
    metrics = agent.update(data, np.random.default_rng(0), (low, high))
    with torch.no_grad():
        z = twin.encoder(torch.from_numpy(data.next_observation))
        goal = torch.from_numpy(data.reward) + 0.97 * torch.min(*twin.target(z, twin.actor(z)))
        assert goal.min() < low < high < goal.max()
        goal = goal.clamp(low, high) if bounded else goal
        q1, q2 = twin.critic(twin.encoder(torch.from_numpy(data.observation)), torch.from_numpy(data.action))
        loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
    assert metrics["target_q"].item() == pytest.approx(goal.mean().item(), rel=1e-5)
    assert metrics["critic_loss"].item() == pytest.approx(loss.item(), rel=1e-5)


def test_a_saturated_actor_comes_back_to_where_tanh_has_a_slope() -> None:
    def output_after(saturation: float, updates: int) -> torch.Tensor:
        agent = DrQv2((5,), 4, replace(SMALL, saturation=saturation, lr=1e-2, stack=1))
        with torch.no_grad():
            agent.actor.policy[-1].bias.copy_(torch.tensor([6.0, -6.0, 6.0, -6.0]))
        for _ in range(updates):
            agent.update(batch((5,), 1), np.random.default_rng(0))
        return agent.actor.outputs(torch.zeros(1, 5)).detach().abs()

    assert output_after(0.0, 300).max() > 4.0  # follows the critic, or stays where no gradient reaches it
    assert output_after(0.1, 300).max() < 3.0


def test_the_penalty_leaves_outputs_within_the_slope_alone() -> None:
    agents = [DrQv2((5,), 4, replace(without_noise(), saturation=weight, stack=1)) for weight in (0.0, 10.0)]
    told = [agent.update(batch((5,), 1), np.random.default_rng(0)) for agent in agents]
    assert told[0]["saturated"] == told[1]["saturated"] == 0
    for free, penalised in zip(agents[0].parameters(), agents[1].parameters(), strict=True):
        assert torch.equal(free, penalised)


def test_vectors_are_centred_and_scaled_and_pictures_are_not() -> None:
    seen = np.random.default_rng(0).normal([3.0, -2.0, 1.0], [2.0, 0.5, 0.0], (1000, 3)).astype(np.float32)
    agent = DrQv2((3,), 4, replace(SMALL, stack=1))
    agent.encoder.scale_to(seen)
    scaled = agent.encoder(torch.from_numpy(seen))
    assert torch.allclose(scaled.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(scaled.std(0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-2)
    moved = agent.encoder(torch.tensor([[3.0, -2.0, 1.2]]))[0, 2]
    assert moved.item() == pytest.approx(4.0, abs=1e-3)  # what never moved before is not blown up without limit
    other = DrQv2((3,), 4, replace(SMALL, stack=1), seed=5)
    other.restore(agent.state(), 0)
    assert torch.equal(other.encoder(torch.from_numpy(seen)), scaled)
    pictures = DrQv2(PICTURES, 4, SMALL)
    before = {name: tensor.clone() for name, tensor in pictures.state_dict().items()}
    pictures.encoder.scale_to(np.zeros((2, *PICTURES), np.uint8))
    assert all(torch.equal(tensor, before[name]) for name, tensor in pictures.state_dict().items())


def test_target_takes_over_a_share_of_the_critic() -> None:
    agent = DrQv2((5,), 4, replace(SMALL, tau=0.25, stack=1))
    before = [p.clone() for p in agent.target.parameters()]
    agent.update(batch((5,), 1), np.random.default_rng(0))
    for old, new, critic in zip(before, agent.target.parameters(), agent.critic.parameters(), strict=True):
        assert torch.allclose(new, 0.75 * old + 0.25 * critic, atol=1e-6)


def test_the_actor_waits_for_its_delay() -> None:
    agent = DrQv2((5,), 4, replace(SMALL, policy_delay=2, stack=1))
    told = [set(agent.update(batch((5,), 1, seed=i), np.random.default_rng(i))) for i in range(4)]
    assert ["actor_loss" in names for names in told] == [True, False, True, False]


def test_noise_of_the_policy_is_clipped_and_passes_gradients() -> None:
    agent = DrQv2((5,), 4, replace(SMALL, policy_noise=10.0, noise_clip=0.3, stack=1))
    mean = torch.zeros(1000, 4, requires_grad=True)
    noisy = agent._noisy(mean, torch.Generator().manual_seed(0))
    assert noisy.abs().max().item() == pytest.approx(0.3)
    edge = torch.ones(10, 4, requires_grad=True)
    action = agent._noisy(edge, torch.Generator().manual_seed(0))
    assert action.max().item() <= 1.0
    action.sum().backward()
    assert torch.equal(edge.grad, torch.ones_like(edge))


def test_exploration_noise_has_its_scale_and_stays_in_bounds() -> None:
    agent = DrQv2((5,), 4, replace(SMALL, exploration_noise=0.05, stack=1))
    observation = np.zeros((4000, 5), np.float32)
    noise = np.random.default_rng(0).normal(size=(4000, 4))
    explored = agent.act(observation, noise) - agent.act(observation)
    assert explored.std() == pytest.approx(0.05, rel=0.1)
    wild = DrQv2((5,), 4, replace(SMALL, exploration_noise=9.0, stack=1)).act(observation, noise)
    assert np.abs(wild).max() == 1.0
    assert wild.dtype == np.float32


def test_actors_gradient_never_reaches_encoder_or_critic() -> None:
    agent = DrQv2(PICTURES, 4, replace(SMALL, lr=0.0))
    agent.optimizers["actor"].param_groups[0]["lr"] = 1e-2
    before = {name: p.clone() for name, p in agent.named_parameters()}
    agent.update(batch(PICTURES, 3), np.random.default_rng(0))
    moved = {name.split(".")[0] for name, p in agent.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"actor"}


@pytest.mark.parametrize("shape", [PICTURES, (5,)])
def test_restored_goes_on_as_the_original(shape: tuple[int, ...]) -> None:
    config = replace(SMALL, stack=3 if len(shape) == 3 else 1)
    agent = DrQv2(shape, 4, config, seed=0)
    for i in range(3):
        agent.update(batch(shape, config.stack, seed=i), np.random.default_rng(i))
    other = DrQv2(shape, 4, config, seed=9)
    other.restore(agent.state(), agent.updates)
    for i in range(3, 6):
        ours = agent.update(batch(shape, config.stack, seed=i), np.random.default_rng(i))
        theirs = other.update(batch(shape, config.stack, seed=i), np.random.default_rng(i))
        assert {k: v.item() for k, v in ours.items()} == {k: v.item() for k, v in theirs.items()}
    for name, tensor in agent.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_every_weight_gets_a_gradient_in_bf16() -> None:
    agent = DrQv2(PICTURES, 4, replace(SMALL, precision="bf16"))
    agent.update(batch(PICTURES, 3), np.random.default_rng(0))
    for name, parameter in agent.named_parameters():
        if not name.startswith("target"):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_it_solves_a_bandit() -> None:
    """The best action of a one-step problem is found: the whole machinery points uphill."""
    agent = DrQv2((3,), 2, replace(SMALL, stack=1, lr=3e-3, hidden=32))
    best = np.array([0.5, -0.3], np.float32)
    for i in range(400):
        rng = np.random.default_rng(i)
        observation = rng.normal(size=(64, 3)).astype(np.float32)
        action = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
        reward = -((action - best) ** 2).sum(1).astype(np.float32)
        agent.update(Transitions(observation, action, reward, np.zeros(64, np.float32), observation), rng)
    assert agent.act(np.zeros((1, 3), np.float32))[0] == pytest.approx(best, abs=0.15)


@pytest.mark.parametrize("option", [{"batch": 0}, {"tau": 0.0}, {"discount": 1.5}, {"lr": -1.0}, {"shift": -1}])
def test_impossible_options_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(UserError, match="--"):
        Config(**option)  # type: ignore[arg-type]
