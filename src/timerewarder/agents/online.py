"""The one loop of reinforcement learning: act, learn while the step is computed, remember, evaluate, save.

It knows no reward method: the worker (envs/worker.py), or at an episode's end the judge (agents/judge.py), gives a
dense reward, the worker the task's success; they are joined as r = dense + alpha * success when a batch is drawn.
Every random choice comes from a generator seeded with (seed, what for, count), and runs are saved between episodes, so
a run that was killed and resumed equals an uninterrupted one. One that was asked to stop, with a reward that goes on
learning, does not: it is saved at once, and a save rewards the whole replay anew.

    RUN/config.json    what is trained, on what, with which options
    RUN/train.csv      a row each few episodes        RUN/eval.csv   a row an evaluation
    RUN/alpha.json     the weight of success, and the step that set it
    RUN/tensorboard/   the same for TensorBoard       RUN/videos/    evaluation episodes
    RUN/checkpoint/    the state to resume from       RUN/policy.safetensors   the networks
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from timerewarder.agents import drqv2
from timerewarder.agents.drqv2 import DrQv2
from timerewarder.agents.judge import Judge
from timerewarder.agents.noise import exploration
from timerewarder.agents.replay import Form, Replay
from timerewarder.agents.run_folder import RunFolder
from timerewarder.envs.worker import Seen, Setting, Step, Worker
from timerewarder.errors import UserError
from timerewarder.evaluation.episodes import (
    FILMED,
    Episode,
    evaluation_seed,
    mean_measures,
    run_episode,
    told_success,
    training_seed,
)
from timerewarder.progress import bar
from timerewarder.rewards.alpha import Alpha

NOISE, BATCH, LEARN, JUDGE, RANDOM = range(5)  # what a random generator is for
LOG_EVERY = 10  # episodes


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of a training."""  # the defaults are the paper's protocol; --help shows those of a preset

    frames: int = 200_000
    """Environment steps to train for; an agent step repeats its action, so it counts as several."""
    obs: Seen = "pixels"
    """What the policy sees: pixels; state, the simulator's (a cheap check of a reward, which still sees pixels only);
    features, those of the frozen reward encoder."""
    alpha: Literal["adaptive", "robust"] | float = "adaptive"
    """Weight of success beside the learned reward: adaptive (ten times the largest step reward of the first 100
    episodes), robust (a high quantile instead of the largest), or a number. Not used with --reward env or sparse."""
    familiar: float | None = None
    """Count frames that are unlike those of the training videos as no progress (rewards/familiarity.py): those so many
    times as far from them as the validation videos at their farthest. None: all count, as in the paper."""
    anchored: bool = False
    """Let the sum of an episode's learned rewards be what the model sees from the first frame on, so that errors of
    steps do not add up. Without, the sum is free, as in the paper, and with models that were fitted with --history."""
    reward_form: Form = "steps"
    """What the critic learns from: steps, the gain of each one, as in the paper; progress, (1 - discount) times the sum
    of them so far, which asks for the same policy with values that do not outgrow the task (agents/replay.py)."""
    reward_every: int = 10
    """Episodes after which a reward that goes on learning (gaifo, rank2reward, progressor) rewards the whole replay
    anew."""
    seed: int = 0
    """Seed of the networks, the episodes and all noise."""
    random_steps: int = 2_000
    """Agent steps with random actions at the start."""
    seed_frames: int = 12_000
    """Environment steps before the first update."""
    update_every: int = 2
    """Agent steps for each update."""
    replay_capacity: int = 150_000
    """Frames that the replay keeps."""
    replay_on_disk: bool = False
    """Keep the replay's frames in a file in the run's folder instead of in memory."""
    eval_every: int = 10_000
    """Environment steps between evaluations; a checkpoint is written after each."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    size: int = 84
    """Side of the picture in pixels."""
    policy_size: int | None = None
    """Side of the picture that the policy sees; default: the same. The reward sees the whole."""
    camera: str | None = None
    """Camera; default: the paper's for the task."""
    ranges: Literal["wide", "paper", "metaworld"] = "wide"
    """Start ranges of hand and objects."""
    action_repeat: int = 2
    """Environment steps for each action."""
    horizon: int | None = None
    """Length of an episode in environment steps; default: the paper's for the task."""
    beside: bool = True
    """Compute environment steps in a process beside the updates."""
    threads: int | None = None
    """Threads of an update; default: the cores, less one for the environment if that is beside."""
    agent: drqv2.Config = field(default_factory=drqv2.Config)

    def __post_init__(self) -> None:
        for name in ("frames", "update_every", "eval_every", "eval_episodes", "reward_every", "action_repeat", "size"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small: give at least 1")
        for name in ("seed", "random_steps", "seed_frames"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative: give 0 or more")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"--threads {self.threads} is too small: give at least 1")
        if self.familiar is not None and not self.familiar > 0:
            raise UserError(f"--familiar {self.familiar} knows no frame: give more than 0, or None")
        seen, least = self.size if self.policy_size is None else self.policy_size, 16
        if self.obs == "pixels" and (seen < least or 2 * self.agent.shift >= seen):
            raise UserError(
                f"a policy cannot see pictures of {seen} px shifted by up to {self.agent.shift}: "
                f"give --policy-size at least {least}, and a --shift below half of it"
            )

    def setting(self, task: str, reward: str) -> Setting:
        return Setting(
            task=task, reward=reward, familiar=self.familiar, anchored=self.anchored,
            obs=self.obs, size=self.size, policy_size=self.policy_size, camera=self.camera,
            action_repeat=self.action_repeat, ranges=self.ranges, horizon=self.horizon,
        )  # fmt: skip


@dataclass
class Counters:
    """Where a run stands."""

    agent_steps: int = 0
    episodes: int = 0
    updates: int = 0
    seconds: float = 0.0
    evaluations: int = 0
    train_rows: list[dict[str, float]] = field(default_factory=list)
    eval_rows: list[dict[str, float]] = field(default_factory=list)


class Stack:
    """The last frames of one episode as the policy sees them; vectors are stacked one deep."""

    def __init__(self, frames: int) -> None:
        self.frames: deque[np.ndarray] = deque(maxlen=frames)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Take in one observation (...) and give the stack, (1, ..., frames * channels)."""
        repeats = 1 if self.frames else self.frames.maxlen or 1  # an episode begins with its first frame repeated
        self.frames.extend([observation] * repeats)
        return np.concatenate(self.frames, axis=-1)[None]


def evaluate_policy(agent: DrQv2, worker: Worker, episodes: int) -> list[Episode]:
    """The policy without noise on the evaluation's seeds; the first episodes are filmed."""
    done = []
    for number in range(episodes):
        stack = Stack(agent.config.stack)
        act = lambda observation, stack=stack: agent.act(stack(observation))[0]  # noqa: E731
        done.append(run_episode(worker, evaluation_seed(number), act, film=number < FILMED))
    return done


class Loop:
    """A run: `run()` trains to the end, or until `stop()`, and leaves a checkpoint."""

    def __init__(
        self,
        reward: str,
        config: Config,
        folder: RunFolder,
        worker: Worker,
        judge: Judge | None = None,
        on_evaluation: Callable[[int, Sequence[Episode]], None] = lambda frames, episodes: None,
    ) -> None:
        self.config, self.folder, self.worker, self.on_evaluation = config, folder, worker, on_evaluation
        self.reward, self.judge = reward, judge
        vectors = len(worker.shape) == 1
        agent = replace(config.agent, stack=1, shift=0) if vectors else config.agent
        self.agent = DrQv2(worker.shape, worker.actions, agent, config.seed)
        self.replay = Replay(
            config.replay_capacity, worker.shape, worker.actions, stack=agent.stack, n_step=agent.n_step,
            held=judge is not None, features=judge.features if judge else 0,
            folder=folder.replay_map if config.replay_on_disk else None,
        )  # fmt: skip
        # The environment's dense reward stands alone, as in the paper; sparse success is a reward of 1.
        self.alpha = Alpha({"env": 0.0, "sparse": 1.0}.get(reward, config.alpha))
        self.now = Counters()
        self._stop = threading.Event()
        self._metrics: list[dict[str, torch.Tensor]] = []
        self._judged: list[dict[str, float]] = []
        self._recent: list[Episode] = []

    @property
    def env_frames(self) -> int:
        return self.now.agent_steps * self.config.action_repeat

    def stop(self, *_: object) -> None:
        """Save and return after the present episode."""
        self._stop.set()

    def run(self) -> bool:
        """Train; returns whether the run is complete."""
        config, now = self.config, self.now
        started = time.monotonic() - now.seconds
        with bar() as display, _on_signals(self.stop):
            task = display.add_task("Training", total=config.frames, completed=self.env_frames, note="")
            stopping = self._stop.is_set()
            while self.env_frames < config.frames and not stopping:
                self._recent.append(self._episode(lambda: display.update(task, completed=self.env_frames)))
                now.episodes += 1
                self.alpha.end_trajectory()
                now.seconds = time.monotonic() - started
                stopping = self._stop.is_set()  # asked once: who stops has saved
                evaluate = self.env_frames // config.eval_every > now.evaluations or self.env_frames >= config.frames
                if evaluate or stopping or len(self._recent) == LOG_EVERY:
                    self._log()
                    display.update(task, note=self._note())
                if evaluate:
                    self._evaluate()
                    now.seconds = time.monotonic() - started
                    display.console.print(self._told(), highlight=False)
                if evaluate or stopping:
                    self._save()
        return self.env_frames >= config.frames

    def _episode(self, advance: Callable[[], None]) -> Episode:
        self._returns = self._possible_returns()
        observation = self.worker.reset(training_seed(self.config.seed, self.now.episodes))
        self.replay.begin(observation, self.worker.first_features)
        stack = Stack(self.agent.config.stack)
        colour = self.config.agent.exploration_colour
        noise = exploration(self._rng(NOISE, self.now.episodes), self.worker.actions, colour)
        steps: list[Step] = []
        while not steps or not steps[-1].ended:
            action = self._explore(stack(observation), next(noise))
            self.worker.start(action)
            self._learn()
            step = self.worker.finish()
            self.replay.add(action, step.observation, step.dense, step.success, step.terminated, step.features)
            self.now.agent_steps += 1
            observation = step.observation
            steps.append(step)
            advance()
        return self._judge(Episode.of(steps, self.worker.first_features))

    def _judge(self, episode: Episode) -> Episode:
        """The episode with its rewards, if the worker left them to the loop."""
        if self.judge is not None:
            assert episode.features is not None
            number = self.now.episodes
            rewards, log = self.judge.episode_ended(episode.features, number, self.replay, self._rng(JUDGE, number))
            episode = replace(episode, dense=rewards[1:])
            self._judged.append(log)
        for dense in episode.dense:
            self.alpha.see(dense)
        return episode

    def _explore(self, stacked: np.ndarray, noise: np.ndarray) -> np.ndarray:
        if self.now.agent_steps < self.config.random_steps:
            rng = self._rng(RANDOM, self.now.agent_steps)
            return rng.uniform(-1.0, 1.0, self.worker.actions).astype(np.float32)
        return self.agent.act(stacked, noise[None])[0]

    def _learn(self) -> None:
        ready = self.env_frames >= self.config.seed_frames and len(self.replay) >= 1
        if not ready or self.now.agent_steps % self.config.update_every:
            return
        agent = self.agent.config
        if self.now.updates == 0 and len(self.worker.shape) == 1:
            self.agent.encoder.scale_to(self.replay.observations())
        rng = self._rng(BATCH, self.now.updates)
        form = self.config.reward_form
        batch = self.replay.sample(rng, agent.batch, self._discount(), self.alpha.value, agent.shift, form)
        self._metrics.append(self.agent.update(batch, self._rng(LEARN, self.now.updates), self._returns))
        self.now.updates += 1

    def _discount(self) -> float:
        return (self.judge.discount if self.judge else None) or self.agent.config.discount

    def _possible_returns(self) -> tuple[float, float]:
        """The least and the largest that a return can be, by the steps so far."""
        discount = self._discount()
        if not self.replay.frames or discount == 1:
            return -np.inf, np.inf
        low, high = self.replay.worth(discount, self.alpha.value, self.config.reward_form)
        return low / (1 - discount), high / (1 - discount)

    def _rng(self, purpose: int, count: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, purpose, count])

    def _evaluate(self) -> None:
        self.now.evaluations = self.env_frames // self.config.eval_every
        episodes = evaluate_policy(self.agent, self.worker, self.config.eval_episodes)
        told: dict[str, float] = {}
        if self.judge is not None:
            episodes, told = self.judge.evaluated(episodes)
        row = {**self._counts(), "episodes": len(episodes), **mean_measures(episodes), **told}
        self.now.eval_rows.append(row)
        self.folder.write_row("eval", self.now.eval_rows)
        self.on_evaluation(self.env_frames, episodes)

    def _log(self) -> None:
        """A row of means over the last episodes and updates."""
        previous = self.now.train_rows[-1] if self.now.train_rows else {"env_frames": 0, "seconds": 0.0}
        passed = self.now.seconds - previous["seconds"]
        names = dict.fromkeys(name for metrics in self._metrics for name in metrics)
        learning = {name: float(torch.stack([m[name] for m in self._metrics if name in m]).mean()) for name in names}
        judged = dict.fromkeys(name for log in self._judged for name in log)
        learning |= {name: float(np.mean([log[name] for log in self._judged if name in log])) for name in judged}
        row = {
            **self._counts(),
            "frames_per_second": round((self.env_frames - previous["env_frames"]) / max(passed, 1e-9), 2),
            **mean_measures(self._recent),
            "alpha": self.alpha.value,
            "updates": self.now.updates,
            **learning,
        }
        self.now.train_rows.append(row)
        self.folder.write_row("train", self.now.train_rows)
        self.folder.write_alpha(self.alpha.record)
        self._metrics, self._recent, self._judged = [], [], []

    def _counts(self) -> dict[str, float]:
        return {
            "env_frames": self.env_frames,
            "agent_steps": self.now.agent_steps,
            "seconds": round(self.now.seconds, 2),
        }

    def _note(self) -> str:
        """Beside the bar: speed, and the mean return and success of the last episodes of training."""
        row = self.now.train_rows[-1]
        return f"{row['frames_per_second']:.0f} frames/s, return {row[self._return]:+.2f}, {told_success(row)}"

    def _told(self) -> str:
        """A line an evaluation, kept above the bar."""
        row = self.now.eval_rows[-1]
        return f"{self.env_frames:>9,} frames: return {row[self._return]:+.2f}, {told_success(row)}"

    @property
    def _return(self) -> str:
        """The column of the return that is shown."""
        return "task_return" if self.reward in ("env", "sparse") else "learned_return"

    def _save(self) -> None:
        tensors = self.agent.state()
        if self.judge is not None:
            self.judge.reward_all(self.replay)  # a resumed run does it as well, so both go on with the same rewards
            tensors |= {f"reward.{name}": tensor for name, tensor in self.judge.state().items()}
        self.folder.save(tensors, self.replay, {"counters": vars(self.now), "alpha": self.alpha.state()})

    def resume(self) -> None:
        """Go on from the folder's checkpoint."""
        tensors, state = self.folder.load(self.replay)
        self.now = Counters(**state["counters"])
        self.alpha = Alpha.restore(state["alpha"])
        self.agent.restore(tensors, self.now.updates)
        if self.judge is not None:
            own = {n.removeprefix("reward."): t for n, t in tensors.items() if n.startswith("reward.")}
            self.judge.restore(own)
            self.judge.reward_all(self.replay)


class _on_signals:
    """SIGTERM and Ctrl-C ask for a stop while the block runs; a second Ctrl-C interrupts at once."""

    def __init__(self, stop: Callable[..., None]) -> None:
        self.stop = stop
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self.before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: Any) -> None:
        self.stop()
        signal.signal(number, self.before[number])

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
