"""Behavioural cloning from observation (Torabi et al., 2018, BCO(alpha)): the experts' actions are never read.

    collect   (o_t, a_t, o_t+1), the agent's own: a_t at random in the first round, then clip(pi(o_t) + N(0, 0.4), +-1)
    inverse   L = |I(o_t, o_t+1) - a_t|^2      over all that was collected
    label     b_t = I(o_t, o_t+1)              for every step of the demonstrations; a last frame has no action
    clone     L = |pi(o_t) - b_t|^2            over the demonstrations, and the next round collects with pi

As in the paper both networks go on learning from round to round, and a round collects alpha times what the first one
did, here alpha = 1. Where this departs from it:

- The inverse model sees all of an observation, not only the robot's own part of it: which part that is, pixels do not
  tell. States it sees as o_t and o_t+1 - o_t, each standardised over demonstrations and first round together, because
  a step moves a hand by a tenth of what places differ by. Pixels it sees as the stack of frames at t and the one after.
- Likelihood of a Gaussian with a fixed width, that is squared error, for both networks. The learning rate falls to 0 in
  each round.
- It ends after a number of environment steps, not when the policy no longer improves, which only the task can tell.

Runs are saved after each round, and every random choice comes from a generator seeded with (seed, what for, count), so
a run that was killed and resumed equals an uninterrupted one. Files are those of agents/online.py, without alpha.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from timerewarder.agents import drqv2
from timerewarder.agents.drqv2 import Actor, DrQv2, Encoder, initialise, mlp
from timerewarder.agents.online import Counters, Stack, evaluate_policy
from timerewarder.agents.replay import Replay, shifted_stacks
from timerewarder.agents.run_folder import RunFolder
from timerewarder.data.store import open_store
from timerewarder.envs.demos import read_index
from timerewarder.envs.worker import Seen, Setting, Step, Worker
from timerewarder.errors import UserError
from timerewarder.evaluation.episodes import Episode, mean_measures, told_success, training_seed
from timerewarder.models.checkpoint import optimizer_tensors, restore_optimizer
from timerewarder.progress import bar

NOISE, SCALE, INVERSE, CLONE = range(4)  # what a random generator is for
RECENT = 100  # updates that a logged error is the mean of
SCALE_SAMPLE = 10_000  # transitions of the first round that states are standardised by
CONSTANT = 1e-6  # what varies less than this says nothing, and is not blown up


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of behavioural cloning from observation."""

    obs: Seen = "pixels"
    """What the policy and the inverse model see: pixels, or the simulator's state."""
    frames: int = 50_000
    """Environment steps of interaction in all; an agent step repeats its action, so it counts as several."""
    round_frames: int = 2_500
    """Environment steps of a round; at its end both networks learn, and the policy is evaluated and saved."""
    inverse_updates: int = 1_000
    """Steps of gradient descent of the inverse model in a round."""
    clone_updates: int = 1_000
    """Steps of gradient descent of the policy in a round."""
    seed: int = 0
    """Seed of the networks, the episodes and all noise."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    policy_size: int = 42
    """Side of the picture that policy and inverse model see, in pixels."""
    replay_capacity: int = 150_000
    """Observations of its own that the agent keeps."""
    agent: drqv2.Config = field(
        default_factory=lambda: drqv2.Config(batch=128, lr=3e-4, hidden=256, encoder="compact", shift=2)
    )

    def __post_init__(self) -> None:
        if self.obs == "features":
            raise UserError("BCO has no reward model to take features from: use --obs pixels or state")
        for name in ("frames", "round_frames", "inverse_updates", "clone_updates", "eval_episodes"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small: give at least 1")
        if self.seed < 0:
            raise UserError(f"--seed {self.seed} is negative: give 0 or more")
        seen, least = self.policy_size, 16
        if self.obs == "pixels" and (seen < least or 2 * self.agent.shift >= seen):
            raise UserError(
                f"a policy cannot see pictures of {seen} px shifted by up to {self.agent.shift}: "
                f"give --policy-size at least {least}, and a --shift below half of it"
            )


@dataclass(frozen=True)
class Demonstrations:
    """What experts were seen to do, and the setting they did it in; there is no place for actions here."""

    setting: Setting
    observations: list[np.ndarray]  # of each episode, T > 1: uint8 (T, S, S, 3), or float32 (T, D)


def read_demonstrations(folder: Path, task: str, config: Config) -> Demonstrations:
    """The videos that `timerewarder demos` wrote; for states, that one tensor of the files beside them.

    Those files hold the actions as well, which must not be read: for pixels they are not opened at all.
    """
    made, rows = read_index(folder, task)
    setting = Setting(
        task=task, reward="env", obs=config.obs, size=made["size"], policy_size=config.policy_size,
        camera=made["camera"], action_repeat=made["action_repeat"], ranges=made["ranges"], render=made["render"],
        horizon=made["horizon"],
    )  # fmt: skip
    if config.obs == "pixels":
        store = open_store([folder / row["file"] for row in rows], config.policy_size)
        observations = [store.frames(video, np.arange(length)) for video, length in enumerate(store.lengths)]
    else:
        observations = [_read_states(folder / row["trajectory"]) for row in rows]
    moving = [episode for episode in observations if len(episode) > 1]
    if not moving:
        raise UserError(f"{folder} shows no step: record demonstrations of at least two frames")
    return Demonstrations(setting, moving)


def _read_states(path: Path) -> np.ndarray:
    try:
        with safe_open(path, framework="numpy") as file:
            return np.asarray(file.get_tensor("observations"), np.float32)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} has no states ({error}): record the demonstrations again, or use --obs pixels"
        ) from error


class InverseModel(nn.Module):
    """I(o_t, o_t+1) -> a_t. `shape` is one observation's: (S, S, 3) for pixels, (D,) for states."""

    mean: Tensor
    std: Tensor

    def __init__(self, shape: tuple[int, ...], actions: int, config: drqv2.Config, seed: int = 0) -> None:
        super().__init__()
        self.pixels, self.stack = len(shape) == 3, config.stack
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if self.pixels:
                encoder = Encoder(shape, replace(config, stack=config.stack + 1))
                self.network = nn.Sequential(encoder, Actor(encoder.dim, actions, config))
            else:
                self.network = nn.Sequential(mlp(2 * shape[0], actions, config.hidden), nn.Tanh())
            self.apply(initialise)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if not self.pixels:
            self.register_buffer("mean", torch.zeros(2 * shape[0]))
            self.register_buffer("std", torch.ones(2 * shape[0]))
        self.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def forward(self, steps: Tensor) -> Tensor:
        """Steps as `seen_steps` and `joined` give them -> actions (B, A) in [-1, 1]."""
        return self.network(steps if self.pixels else (steps - self.mean) / self.std)

    def standardise(self, steps: np.ndarray) -> None:
        """See states relative to these, (N, 2D)."""
        std = steps.std(axis=0)
        self.mean.copy_(torch.from_numpy(steps.mean(axis=0)))
        self.std.copy_(torch.from_numpy(np.where(std > CONSTANT, std, 1.0)))

    @torch.no_grad()
    def label(self, observations: np.ndarray) -> np.ndarray:
        """An episode of T observations -> the actions between them, float32 (T-1, A): t leads from t to t+1."""
        steps, device = seen_steps(observations, self.stack), next(self.network.parameters()).device
        batches = [self(torch.from_numpy(steps[i : i + 256]).to(device)) for i in range(0, len(steps), 256)]
        return torch.cat(batches).cpu().numpy()


def seen_steps(observations: np.ndarray, stack: int) -> np.ndarray:
    """An episode of T observations, as the inverse model sees its steps: (T-1, ...), entry t is the step t -> t+1."""
    if observations.ndim == 2:
        return joined(observations[:-1], observations[1:])
    arrivals = np.arange(1, len(observations))
    places = np.maximum(arrivals[:, None] + np.arange(-stack, 1), 0)  # the first frame is repeated, as in every stack
    return shifted_stacks(observations, places, np.zeros((len(places), 2), np.int64))


def joined(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Observations before and after steps, as a replay gives them, (B, ...) each, as the inverse model sees them.

    States: o_t and o_t+1 - o_t, float32 (B, 2D). Pixels: stack and next frame, uint8 (B, S, S, 3 (stack + 1)).
    """
    return np.concatenate([before, after - before if before.ndim == 2 else after[..., -3:]], axis=-1)


def labelled(demonstrations: Sequence[np.ndarray], actions: Sequence[np.ndarray], stack: int) -> Replay:
    """Demonstrations to draw from, with `actions[i]` (T-1, A) for the T observations of episode i."""
    first = demonstrations[0]
    frames = sum(len(observations) for observations in demonstrations)
    replay = Replay(frames + stack + 1, first.shape[1:], actions[0].shape[1], stack=stack, n_step=1)
    for observations, guessed in zip(demonstrations, actions, strict=True):
        replay.begin(observations[0])
        for action, observation in zip(guessed, observations[1:], strict=True):
            replay.add(action, observation, 0.0, False)
    return replay


class Loop:
    """A run: `run()` goes through the rounds to the end and leaves a checkpoint after each."""

    def __init__(
        self,
        demonstrations: Demonstrations,
        config: Config,
        folder: RunFolder,
        worker: Worker,
        on_evaluation: Callable[[int, Sequence[Episode]], None] = lambda frames, episodes: None,
    ) -> None:
        self.demonstrations, self.config, self.folder = demonstrations, config, folder
        self.worker, self.on_evaluation = worker, on_evaluation
        vectors = len(worker.shape) == 1
        options = replace(config.agent, stack=1, shift=0) if vectors else config.agent
        self.agent = DrQv2(worker.shape, worker.actions, options, config.seed)
        self.inverse = InverseModel(worker.shape, worker.actions, options, config.seed)
        self.replay = Replay(config.replay_capacity, worker.shape, worker.actions, stack=options.stack, n_step=1)
        policy = [*self.agent.encoder.parameters(), *self.agent.actor.parameters()]
        self.optimizers = {
            "inverse": torch.optim.Adam(self.inverse.parameters(), options.lr, fused=True),
            "clone": torch.optim.Adam(policy, options.lr, fused=True),
        }
        self.now = Counters()  # a round ends with an evaluation, so `evaluations` counts the rounds as well

    @property
    def env_frames(self) -> int:
        return self.now.agent_steps * self.demonstrations.setting.action_repeat

    def run(self) -> None:
        config, now = self.config, self.now
        started = time.monotonic() - now.seconds
        with bar() as display:
            task = display.add_task("Rounds", total=config.frames, completed=self.env_frames, note="")
            tell = lambda note: display.update(task, completed=self.env_frames, note=note)  # noqa: E731
            while self.env_frames < config.frames:
                seen, errors, episodes = self._round(tell)
                now.seconds = time.monotonic() - started
                self._write(seen, errors, episodes)
                self.folder.save(self._tensors(), self.replay, {"counters": vars(now)})
                display.console.print(self._told(), highlight=False)

    def _round(self, tell: Callable[[str], None]) -> tuple[list[Episode], dict[str, float], list[Episode]]:
        """Returns the interaction, the errors of both networks, and the evaluation."""
        seen = self._collect(lambda: tell("collecting"))
        tell("learning which action was taken")
        errors = {"inverse_error": self._learn_inverse()}
        tell("cloning")
        errors["clone_error"] = self._clone()
        self.now.evaluations += 1
        tell("evaluating")
        return seen, errors, evaluate_policy(self.agent, self.worker, self.config.eval_episodes)

    def _told(self) -> str:
        """A line a round, kept above the bar."""
        error = self.now.train_rows[-1]["inverse_error"]
        return f"{self.env_frames:>9,} frames: {told_success(self.now.eval_rows[-1])}; action error {error:.3f}"

    def _collect(self, advance: Callable[[], None]) -> list[Episode]:
        """Whole episodes, until the round has its frames."""
        end = min(self.config.frames, self.env_frames + self.config.round_frames)
        episodes: list[Episode] = []
        while self.env_frames < end:
            episodes.append(self._episode())
            self.now.episodes += 1
            advance()
        return episodes

    def _episode(self) -> Episode:
        observation = self.worker.reset(training_seed(self.config.seed, self.now.episodes))
        self.replay.begin(observation)
        stack = Stack(self.agent.config.stack)
        steps: list[Step] = []
        while not steps or not steps[-1].ended:
            action = self._explore(stack(observation))
            self.worker.start(action)
            steps.append(self.worker.finish())
            observation = steps[-1].observation
            self.replay.add(action, observation, 0.0, False, steps[-1].terminated)  # without any reward
            self.now.agent_steps += 1
        return Episode.of(steps)

    def _explore(self, stacked: np.ndarray) -> np.ndarray:
        rng = self._rng(NOISE, self.now.agent_steps)
        if self.now.evaluations == 0:
            return rng.uniform(-1.0, 1.0, self.worker.actions).astype(np.float32)
        return self.agent.act(stacked, rng.normal(size=(1, self.worker.actions)))[0]

    def _learn_inverse(self) -> float:
        """Improve the inverse model on what was collected; returns its error there."""
        if self.now.evaluations == 0 and not self.inverse.pixels:
            some = self.replay.sample(self._rng(SCALE, 0), SCALE_SAMPLE, 1.0, 0.0)
            experts = [seen_steps(episode, 1) for episode in self.demonstrations.observations]
            self.inverse.standardise(np.concatenate([joined(some.observation, some.next_observation), *experts]))
        return self._regress("inverse", INVERSE, self.config.inverse_updates, self.inverse, self._draw_own)

    def _clone(self) -> float:
        """Label the demonstrations and improve the policy on them; returns its distance from the labels."""
        experts, shift = self.demonstrations.observations, self.agent.config.shift
        guessed = [self.inverse.label(episode) for episode in experts]
        replay = labelled(experts, guessed, self.agent.config.stack)

        def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            batch = replay.sample(rng, self.agent.config.batch, 1.0, 0.0, shift)
            return batch.observation, batch.action

        policy = nn.Sequential(self.agent.encoder, self.agent.actor)
        return self._regress("clone", CLONE, self.config.clone_updates, policy, draw)

    def _draw_own(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Steps of the agent's own and their actions; before and after are shifted together, or motion is lost."""
        batch = self.replay.sample(rng, self.agent.config.batch, 1.0, 0.0)
        steps, shift = joined(batch.observation, batch.next_observation), self.agent.config.shift
        if self.inverse.pixels and shift:
            moves = rng.integers(-shift, shift + 1, size=(len(steps), 2))
            steps = shifted_stacks(steps, np.arange(len(steps))[:, None], moves)
        return steps, batch.action

    def _regress(
        self,
        name: str,
        purpose: int,
        updates: int,
        network: nn.Module,
        draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]],
    ) -> float:
        """Steps of gradient descent on |network(x) - a|^2; returns the mean over the last of them."""
        optimizer, losses = self.optimizers[name], []
        for update in range(updates):
            # Each round ends at a rate of 0: what the last batches happened to hold would be a bias of all labels.
            optimizer.param_groups[0]["lr"] = self.config.agent.lr * (1 - update / updates)
            rng = self._rng(purpose, self.now.evaluations * updates + update)
            seen, action = (torch.from_numpy(array).to(self.agent.device) for array in draw(rng))
            with torch.autocast(self.agent.device.type, torch.bfloat16, enabled=self.agent.bf16):
                predicted = network(seen).float()
            loss = F.mse_loss(predicted, action)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return float(torch.stack(losses[-RECENT:]).mean())

    def _rng(self, purpose: int, count: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, purpose, count])

    def _write(self, seen: list[Episode], errors: dict[str, float], episodes: list[Episode]) -> None:
        """A row of the round's interaction and learning, and one of its evaluation."""
        counts = {
            "env_frames": self.env_frames,
            "agent_steps": self.now.agent_steps,
            "seconds": round(self.now.seconds, 2),
        }
        self.now.train_rows.append({**counts, **mean_measures(seen), **errors})
        self.now.eval_rows.append({**counts, "episodes": len(episodes), **mean_measures(episodes)})
        self.folder.write_row("train", self.now.train_rows)
        self.folder.write_row("eval", self.now.eval_rows)
        self.on_evaluation(self.env_frames, episodes)

    def _tensors(self) -> dict[str, Tensor]:
        """Both networks and their optimisers."""
        tensors = {f"inverse.network.{name}": tensor for name, tensor in self.inverse.state_dict().items()}
        tensors |= {f"policy.{name}": tensor for name, tensor in self.agent.state_dict().items()}
        for name, optimizer in self.optimizers.items():
            tensors |= optimizer_tensors(optimizer, f"adam-{name}")
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def resume(self) -> None:
        """Go on from the folder's checkpoint."""
        tensors, state = self.folder.load(self.replay)
        part = lambda prefix: {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}  # noqa: E731
        self.now = Counters(**state["counters"])
        self.inverse.load_state_dict(part("inverse.network."))
        self.agent.load_state_dict(part("policy."))
        for name, optimizer in self.optimizers.items():
            restore_optimizer(optimizer, tensors, f"adam-{name}")
