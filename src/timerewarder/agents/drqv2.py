"""DrQ-v2 (Yarats et al., 2021), the agent of every method in the paper.

    shift    o  -> o moved by up to 4 pixels, at sampling (agents/replay.py)
    encode   z  = f(o), trained by the critic's loss alone
    critic   y  = sum of n rewards + discount^n min_k Q'_k(z', a'),  a' = clip(pi(z') + clip(N(0, 0.1), +-0.3), +-1)
             L  = sum_k (Q_k(z, a) - y)^2                                                         (clipped double Q)
    actor    L  = -min_k Q_k(stop(z), a),  a = pi(z) + the same noise,  pi = tanh(x)
    target   Q' <- (1 - tau) Q' + tau Q
    explore  a  = clip(pi(z) + N(0, 0.4), +-1), white or coloured (agents/noise.py)

As in the public code the encoder has no target copy, and actor and critic each pass the features through a trunk of
their own (linear, LayerNorm, tanh). Observations of states or of reward features have no encoder and no shift; they are
centred and scaled by what the first ones are like (`Encoder.scale_to`).

`saturation`, which is not in DrQ-v2, adds a penalty on |x| > 2 to the actor's loss. Before a critic knows much it may
prefer the same corner of the actions everywhere. An actor that follows it to where tanh is flat gets no gradient back,
and with noise cut off at the bounds it explores nothing else either.

`bounded`, which is not in DrQ-v2 either, clips y to what a return can be, [low, high] / (1 - discount) for steps worth
low to high (`Replay.worth`). A handful of successes among thousands of steps is where a critic's values run away: what
it expects after them is hardly ever tried, and is itself what it learns from.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timerewarder.agents.replay import Transitions
from timerewarder.errors import UserError
from timerewarder.models.checkpoint import optimizer_tensors, restore_optimizer
from timerewarder.models.precision import bf16_is_native

FLAT = 2.0  # where tanh, at 0.96, is all but flat
LEAST_SPREAD = 0.05  # of a number in a state; what hardly varies at first (metres of a closed door) may do so later


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the agent."""  # the defaults are the paper's table and, where it is silent, DrQ-v2's

    batch: int = 512
    """Transitions in an update."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    discount: float = 0.99
    """Discount of one agent step."""
    n_step: int = 3
    """Rewards summed before the bootstrap."""
    tau: float = 0.005
    """Share of the critic that its target takes over at each update."""
    hidden: int = 1024
    """Width of the two hidden layers of actor and critics."""
    trunk: int = 50
    """Width of the layer between the encoder and them."""
    encoder: Literal["drqv2", "compact"] = "drqv2"
    """Eyes of a policy that sees pixels: DrQ-v2's four convolutions, or two of stride 2."""
    stack: int = 3
    """Frames that the policy sees at once."""
    shift: int = 4
    """Largest random shift of the pictures in a batch, in pixels."""
    exploration_noise: float = 0.4
    """Standard deviation of the noise on actions in the environment."""
    exploration_colour: float = 0.0
    """Colour of that noise: 0, white, new at every step; 1, pink, also wanders slowly and so moves things by chance."""
    policy_noise: float = 0.1
    """Standard deviation of the noise on actions in an update."""
    noise_clip: float = 0.3
    """Limit of that noise."""
    policy_delay: int = 1
    """Updates of the critic for each update of the actor."""
    saturation: float = 0.0
    """Weight of a penalty that keeps the actor's outputs where tanh has a slope, so that it can change its mind."""
    bounded: bool = False
    """Keep the critic's values within what a return can be, given the steps seen so far."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 autocast or fp32; auto takes bf16 where the hardware computes it natively."""

    def __post_init__(self) -> None:
        for name in ("batch", "n_step", "hidden", "trunk", "stack", "policy_delay"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small: give at least 1")
        noises = ("exploration_noise", "exploration_colour", "policy_noise", "noise_clip")
        for name in ("lr", "shift", "saturation", *noises):
            if not getattr(self, name) >= 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small: give at least 0")
        if not 0 <= self.discount <= 1 or not 0 < self.tau <= 1:
            raise UserError("--discount and --tau are shares: give a number between 0 and 1")


def conv_encoder(name: str, channels: int) -> nn.Sequential:
    """Pictures (B, channels, S, S) -> (B, D). DrQ-v2's own, or a compact one."""
    layers: list[nn.Module]
    if name == "drqv2":
        layers = [nn.Conv2d(channels, 32, 3, stride=2), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv2d(32, 32, 3), nn.ReLU()]
    else:
        layers = [nn.Conv2d(channels, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten())


class Encoder(nn.Module):
    """Observations as the replay gives them -> features (B, dim)."""

    centre: Tensor
    spread: Tensor

    def __init__(self, shape: tuple[int, ...], config: Config) -> None:
        super().__init__()
        self.pixels = len(shape) == 3
        self.network: nn.Module = nn.Identity()
        self.dim = shape[0]
        if self.pixels:
            channels = shape[2] * config.stack
            self.network = conv_encoder(config.encoder, channels)
            self.dim = self.network(torch.zeros(1, channels, *shape[:2])).shape[1]
        else:
            self.register_buffer("centre", torch.zeros(self.dim))
            self.register_buffer("spread", torch.ones(self.dim))

    def scale_to(self, observations: np.ndarray) -> None:
        """Centre and scale vectors by what these, float32 (N, D), are like; pictures need none of it."""
        if not self.pixels:
            self.centre.copy_(torch.from_numpy(observations.mean(0)))
            self.spread.copy_(torch.from_numpy(observations.std(0).clip(LEAST_SPREAD)))

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 (B, S, S, C), whose permuted view is already channels_last; or float32 (B, D)."""
        if not self.pixels:
            return (observation - self.centre) / self.spread
        return self.network(observation.permute(0, 3, 1, 2).to(torch.float32).div_(255.0).sub_(0.5))


def trunk(dim: int, config: Config) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, config.trunk), nn.LayerNorm(config.trunk), nn.Tanh())


def mlp(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


class Actor(nn.Module):
    def __init__(self, dim: int, actions: int, config: Config) -> None:
        super().__init__()
        self.trunk, self.policy = trunk(dim, config), mlp(config.trunk, actions, config.hidden)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) -> mean actions (B, A) in [-1, 1]."""
        return torch.tanh(self.outputs(features))

    def outputs(self, features: Tensor) -> Tensor:
        """The same before tanh."""
        return self.policy(self.trunk(features))


class Critic(nn.Module):
    def __init__(self, dim: int, actions: int, config: Config) -> None:
        super().__init__()
        self.trunk = trunk(dim, config)
        self.q1, self.q2 = (mlp(config.trunk + actions, 1, config.hidden) for _ in range(2))

    def forward(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D), actions (B, A) -> the two values, (B,) each."""
        joined = torch.cat([self.trunk(features), action], -1)
        return self.q1(joined).squeeze(-1), self.q2(joined).squeeze(-1)


def initialise(module: nn.Module) -> None:
    """DrQ-v2's: orthogonal weights, zero biases."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        gain = nn.init.calculate_gain("relu") if isinstance(module, nn.Conv2d) else 1.0
        nn.init.orthogonal_(module.weight, gain)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class DrQv2(nn.Module):
    """The agent. `shape` is one observation's: (S, S, 3) for pixels, (D,) for states and features."""

    def __init__(self, shape: tuple[int, ...], actions: int, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config, self.actions = config, actions
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.encoder = Encoder(shape, config)
            self.actor = Actor(self.encoder.dim, actions, config)
            self.critic = Critic(self.encoder.dim, actions, config)
            self.apply(initialise)
        self.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # after its initialisation
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        self.optimizers = {
            "critic": torch.optim.Adam([*self.encoder.parameters(), *self.critic.parameters()], config.lr, fused=True),
            "actor": torch.optim.Adam(self.actor.parameters(), config.lr, fused=True),
        }
        self.bf16 = config.precision == "bf16" or (config.precision == "auto" and bf16_is_native(self.device))
        self.updates = 0

    @property
    def device(self) -> torch.device:
        return next(self.actor.parameters()).device

    @torch.no_grad()
    def act(self, observation: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Stacked observations (B, ...) -> actions float32 (B, A); with noise of variance 1 (B, A) they explore."""
        action = self.actor(self.encoder(torch.from_numpy(observation).to(self.device))).cpu().numpy()
        if noise is not None:
            action = action + self.config.exploration_noise * noise
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def update(
        self, batch: Transitions, rng: np.random.Generator, returns: tuple[float, float] = (-np.inf, np.inf)
    ) -> dict[str, Tensor]:
        """One step of critic, actor and target; the metrics are scalars still on the device.

        `returns` are the least and the largest that a return can be, which `bounded` heeds.
        """
        noise = torch.Generator(self.device).manual_seed(int(rng.integers(2**62)))
        # No cache of casts: it would keep weights that were cast without a graph, and older ones, from pass to pass.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            observation, following = (self._tensor(o) for o in (batch.observation, batch.next_observation))
            within = returns if self.config.bounded else (-np.inf, np.inf)
            metrics, features = self._update_critic(observation, following, batch, noise, within)
            if self.updates % self.config.policy_delay == 0:
                metrics |= self._update_actor(features, noise)
        self._update_target()
        self.updates += 1
        return metrics

    def _update_critic(
        self,
        observation: Tensor,
        following: Tensor,
        batch: Transitions,
        noise: torch.Generator,
        within: tuple[float, float],
    ) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            features = self.encoder(following)
            values = torch.minimum(*self.target(features, self._noisy(self.actor(features), noise)))
            goal = (self._tensor(batch.reward) + self._tensor(batch.discount) * values.float()).clamp(*within)
        features = self.encoder(observation)
        q1, q2 = (q.float() for q in self.critic(features, self._tensor(batch.action)))
        loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        self._descend("critic", loss)
        return {"critic_loss": loss.detach(), "q": q1.detach().mean(), "target_q": goal.mean()}, features.detach()

    def _update_actor(self, features: Tensor, noise: torch.Generator) -> dict[str, Tensor]:
        # The critic's gradients of this pass are of no use: without them it costs half.
        self.critic.requires_grad_(False)
        outputs = self.actor.outputs(features)
        loss = -torch.minimum(*self.critic(features, self._noisy(torch.tanh(outputs), noise))).float().mean()
        beyond = F.relu(outputs.float().abs() - FLAT)
        self._descend("actor", loss + self.config.saturation * beyond.square().sum(-1).mean())
        self.critic.requires_grad_(True)
        return {"actor_loss": loss.detach(), "saturated": (beyond > 0).float().mean()}

    def _noisy(self, mean: Tensor, noise: torch.Generator) -> Tensor:
        """The mean action plus clipped noise, kept in bounds; the bounds let gradients pass, as in DrQ-v2."""
        limit = self.config.noise_clip
        epsilon = torch.randn(mean.shape, generator=noise, device=self.device) * self.config.policy_noise
        action = mean + epsilon.clamp(-limit, limit)
        return action + (action.clamp(-1.0, 1.0) - action).detach()

    def _descend(self, name: str, loss: Tensor) -> None:
        self.optimizers[name].zero_grad(set_to_none=True)
        loss.backward()
        self.optimizers[name].step()

    @torch.no_grad()
    def _update_target(self) -> None:
        torch._foreach_lerp_(list(self.target.parameters()), list(self.critic.parameters()), self.config.tau)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def state(self) -> dict[str, Tensor]:
        """All tensors that training needs to go on, the optimisers' included."""
        tensors = {f"network.{name}": tensor for name, tensor in self.state_dict().items()}
        for name, optimizer in self.optimizers.items():
            tensors |= optimizer_tensors(optimizer, name)
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def restore(self, tensors: dict[str, Tensor], updates: int) -> None:
        """The inverse of `state`."""
        networks = {n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")}
        self.load_state_dict(networks)
        for name, optimizer in self.optimizers.items():
            restore_optimizer(optimizer, tensors, name)
        self.updates = updates
