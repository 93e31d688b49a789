"""Behavioural cloning from observation: a linear system whose actions are known, then the real simulator, short."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from timerewarder.agents import bco
from timerewarder.agents.bco import Config, Demonstrations, InverseModel, Loop, joined, labelled, seen_steps
from timerewarder.agents.drqv2 import Config as AgentConfig
from timerewarder.agents.run_folder import RunFolder
from timerewarder.config import to_dict
from timerewarder.envs.demos import collect
from timerewarder.envs.worker import Setting, Step, Worker
from timerewarder.errors import UserError
from timerewarder.evaluation.episodes import Episode

AGENT = AgentConfig(batch=16, hidden=16, trunk=8, encoder="compact", shift=2)
TINY = Config(
    obs="state", frames=120, round_frames=40, inverse_updates=5, clone_updates=5, eval_episodes=2, policy_size=24,
    replay_capacity=200, agent=AGENT,
)  # fmt: skip


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_folder(out: Path, config: Config, resume: bool = False) -> RunFolder:
    description = {"task": "drawer-open", "reward": "bco", "command": "", "config": to_dict(config)}
    return RunFolder(out, description, resume)


def train(demos: Path, out: Path, config: Config, resume: bool = False, keep: bool = False) -> Loop:
    """A run as the command line makes it."""
    demonstrations = bco.read_demonstrations(demos, "drawer-open", config)
    folder = run_folder(out, config, resume)
    with Worker(demonstrations.setting, beside=False) as worker:
        loop = Loop(demonstrations, config, folder, worker)
        if folder.started:
            loop.resume()
        folder.begin()
        loop.run()
        folder.finish(loop.agent.state_dict(), keep_replay=keep)
    return loop


# --- a system whose actions can be computed ---------------------------------------------------------------------------


class Plane:
    """o' = o + B a, for 10 steps, from a point around the origin; the task is to be at the origin."""

    shape, actions = (2,), 2
    first_features = None
    B = np.array([[0.08, -0.05], [0.02, 0.1]])

    def __init__(self) -> None:
        self.place, self.steps = np.zeros(2), 0
        self.action = np.zeros(2, np.float32)

    def reset(self, seed: int) -> np.ndarray:
        self.place, self.steps = np.random.default_rng(seed).uniform(-0.5, 0.5, 2), 0
        return self.place.astype(np.float32)

    def start(self, action: np.ndarray) -> None:
        self.action = action

    def finish(self) -> Step:
        assert (np.abs(self.action) <= 1).all()
        self.place, self.steps = self.place + self.B @ self.action, self.steps + 1
        distance = float(np.linalg.norm(self.place))
        ended = self.steps == 10
        return Step(self.place.astype(np.float32), -distance, -distance, distance < 0.05, False, ended)

    def frame(self) -> np.ndarray:
        return np.zeros((4, 4, 3), np.uint8)

    def demonstration(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """An expert that goes straight home: observations float32 (11, 2) and its actions (10, 2)."""
        observations, actions = [self.reset(seed)], []
        for _ in range(10):
            actions.append(np.clip(np.linalg.solve(self.B, -0.4 * self.place), -1, 1).astype(np.float32))
            self.start(actions[-1])
            observations.append(self.finish().observation)
        return np.stack(observations), np.stack(actions)


def test_the_actions_of_a_linear_system_are_found_and_cloned(tmp_path: Path) -> None:
    plane = Plane()
    observations, actions = zip(*(plane.demonstration(seed) for seed in range(1, 41, 2)), strict=True)
    demonstrations = Demonstrations(Setting(task="drawer-open", reward="env", action_repeat=2), list(observations))
    agent = AgentConfig(batch=64, hidden=64, trunk=32, lr=1e-3, precision="fp32")
    config = replace(
        TINY, frames=1_200, round_frames=600, inverse_updates=300, clone_updates=200, replay_capacity=2_000,
        eval_episodes=5, agent=agent,
    )  # fmt: skip
    loop = Loop(demonstrations, config, run_folder(tmp_path / "run", config), cast(Worker, plane))
    untrained = np.abs(np.concatenate([loop.inverse.label(o) - a for o, a in zip(observations, actions, strict=True)]))
    loop.run()
    errors = np.abs(np.concatenate([loop.inverse.label(o) - a for o, a in zip(observations, actions, strict=True)]))
    assert untrained.mean() > 0.2
    assert errors.mean() < 0.05
    assert errors.max() < 0.2
    assert [row["env_frames"] for row in loop.now.eval_rows] == [600, 1_200]
    assert loop.now.eval_rows[-1]["success_at_end"] == 1.0
    assert loop.now.train_rows[0]["success_at_end"] < 0.5  # random actions do not lead home


# --- which action belongs to which step -------------------------------------------------------------------------------


def test_steps_of_states_are_a_place_and_a_move() -> None:
    states = np.array([[0, 1], [2, 5], [3, 3]], np.float32)
    assert seen_steps(states, 1).tolist() == [[0, 1, 2, 4], [2, 5, 1, -2]]
    assert seen_steps(states[:2], 1).tolist() == [[0, 1, 2, 4]]


def test_steps_of_pixels_are_the_stack_and_the_next_frame() -> None:
    frames = np.stack([np.full((4, 4, 3), t, np.uint8) for t in range(5)])
    steps = seen_steps(frames, 3)
    assert steps.shape == (4, 4, 4, 12)
    assert steps[:, 0, 0, ::3].tolist() == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4]]


@given(lengths=st.lists(st.integers(2, 6), min_size=1, max_size=4), stack=st.integers(1, 3), pixels=st.booleans())
def test_a_step_looks_the_same_in_the_replay_and_in_a_demonstration(
    lengths: list[int], stack: int, pixels: bool
) -> None:
    """What the inverse model learns from is what it labels, and the label of t goes to observation t."""
    rng = np.random.default_rng(0)
    episodes, actions, number = [], [], 0
    for length in lengths:
        shape = (length, 5, 5, 3) if pixels else (length, 3)
        episodes.append(rng.integers(0, 256, shape).astype(np.uint8 if pixels else np.float32))
        actions.append(np.arange(number, number + length - 1, dtype=np.float32)[:, None])
        number += length - 1
    stack = stack if pixels else 1
    expected = np.concatenate([seen_steps(episode, stack) for episode in episodes])
    replay = labelled(episodes, actions, stack)
    assert len(replay) == number == len(expected)
    batch = replay.sample(rng, 40, 1.0, 0.0)
    assert np.array_equal(joined(batch.observation, batch.next_observation), expected[batch.action[:, 0].astype(int)])


@pytest.mark.parametrize("shape", [(3,), (24, 24, 3)])
def test_a_label_is_the_model_s_answer_to_that_step(shape: tuple[int, ...]) -> None:
    pixels = len(shape) == 3
    agent = AGENT if pixels else replace(AGENT, stack=1)
    model = InverseModel(shape, 4, agent)
    for length in (2, 7, 300):
        seen = np.random.default_rng(length).integers(0, 255, (length, *shape))
        seen = seen.astype(np.uint8 if pixels else np.float32)
        labels = model.label(seen)
        assert labels.shape == (length - 1, 4)
        assert labels.dtype == np.float32
        assert np.abs(labels).max() <= 1
        steps = torch.from_numpy(seen_steps(seen, agent.stack))
        for t in {0, length // 2 - 1, length - 2}:
            assert labels[t] == pytest.approx(model(steps[t : t + 1])[0].detach().numpy(), abs=1e-5)


def test_states_are_standardised_and_constants_left_alone() -> None:
    model = InverseModel((2,), 1, replace(AGENT, stack=1))
    steps = np.array([[1, 7, 0, 0], [3, 7, 0, 2e-9]], np.float32)
    model.standardise(steps)
    assert model.mean.tolist() == pytest.approx([2, 7, 0, 1e-9])
    assert model.std.tolist() == [1, 1, 1, 1]
    model.standardise(steps * np.float32(4))
    assert model.std.tolist() == [4, 1, 1, 1]
    moved = torch.tensor([[8.0, 28.0, 0.0, 0.0]])
    assert torch.equal(model(moved), model.network((moved - model.mean) / model.std))


def test_before_and_after_are_shifted_together(demos: Path, tmp_path: Path) -> None:
    """A still picture stays still in a batch, wherever it is moved to."""
    config = replace(TINY, obs="pixels")
    loop = begun(demos, tmp_path / "run", config)
    picture = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
    loop.replay.begin(picture)
    for _ in range(5):
        loop.replay.add(np.zeros(4, np.float32), picture, 0.0, False)
    steps, actions = loop._draw_own(np.random.default_rng(0))
    frames = steps.reshape(16, 24, 24, 4, 3)
    assert actions.shape == (16, 4)
    assert all(np.array_equal(frames[:, :, :, i], frames[:, :, :, 0]) for i in range(4))
    assert len({frame.tobytes() for frame in frames[:, :, :, 0]}) > 5  # and they were shifted


# --- the simulator ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bco") / "demos"
    collect("drawer-open", 3, folder, size=32, horizon=20, keep="all", workers=1)
    return folder


def begun(demos: Path, out: Path, config: Config) -> Loop:
    demonstrations = bco.read_demonstrations(demos, "drawer-open", config)
    with Worker(demonstrations.setting, beside=False) as worker:
        return Loop(demonstrations, config, run_folder(out, config), worker)


@pytest.mark.parametrize("obs", ["state", "pixels"])
def test_a_run_leaves_what_it_promises(obs: Any, demos: Path, tmp_path: Path) -> None:
    config = replace(TINY, obs=obs, frames=80)
    told: list[tuple[int, int]] = []
    demonstrations = bco.read_demonstrations(demos, "drawer-open", config)
    folder = run_folder(tmp_path / "run", config)

    def on_evaluation(frames: int, episodes: Any) -> None:
        assert isinstance(episodes[0], Episode)
        assert episodes[0].frames is not None
        assert episodes[0].frames.shape == (11, 32, 32, 3)  # filmed as the demonstrations were
        told.append((frames, len(episodes)))

    with Worker(demonstrations.setting, beside=False) as worker:
        loop = Loop(demonstrations, config, folder, worker, on_evaluation)
        folder.begin()
        loop.run()
    assert told == [(40, 2), (80, 2)]
    evaluations, training = rows(tmp_path / "run" / "eval.csv"), rows(tmp_path / "run" / "train.csv")
    assert [row["env_frames"] for row in evaluations] == ["40", "80"]
    assert [row["agent_steps"] for row in evaluations] == ["20", "40"]
    measures = {"task_return", "learned_return", "success_once", "success_at_end", "success_gt3"}
    assert {"seconds", "episodes", *measures} <= evaluations[0].keys()
    assert all(np.isfinite(float(row[name])) for row in training for name in ("inverse_error", "clone_error"))
    assert loop.replay.frames == 44  # four episodes of ten steps
    assert (tmp_path / "run" / "checkpoint" / "state.json").exists()


@pytest.fixture(scope="module")
def wholes(demos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Loop]]:
    """An uninterrupted run of three rounds for each kind of observation."""
    outs = {obs: tmp_path_factory.mktemp("whole") / obs for obs in ("state", "pixels")}
    return {obs: (out, train(demos, out, replace(TINY, obs=cast(Any, obs)))) for obs, out in outs.items()}


def assert_same_run(one: Path, other: Path) -> None:
    policies = [load_file(run / "policy.safetensors") for run in (one, other)]
    for name, tensor in policies[0].items():
        assert np.array_equal(tensor, policies[1][name]), name
    for table in ("eval.csv", "train.csv"):
        timeless = [
            [{k: v for k, v in row.items() if k != "seconds"} for row in rows(run / table)] for run in (one, other)
        ]
        assert timeless[0] == timeless[1]
        assert len(timeless[0]) == 3


@pytest.mark.parametrize("obs", ["state", "pixels"])
def test_resumed_equals_uninterrupted(
    obs: Any, demos: Path, wholes: dict[str, tuple[Path, Loop]], tmp_path: Path
) -> None:
    config = replace(TINY, obs=obs)
    train(demos, tmp_path / "parts", replace(config, frames=40), keep=True)
    train(demos, tmp_path / "parts", config, resume=True)
    assert_same_run(wholes[obs][0], tmp_path / "parts")


class Killed(Exception):
    pass


def test_a_run_killed_in_a_round_goes_on_from_the_one_before(
    demos: Path, wholes: dict[str, tuple[Path, Loop]], tmp_path: Path
) -> None:
    demonstrations = bco.read_demonstrations(demos, "drawer-open", TINY)
    folder = run_folder(tmp_path / "killed", TINY)

    def kill(frames: int, episodes: Any) -> None:
        if frames == 80:
            raise Killed

    with Worker(demonstrations.setting, beside=False) as worker:
        loop = Loop(demonstrations, TINY, folder, worker, kill)
        folder.begin()
        with pytest.raises(Killed):
            loop.run()
    train(demos, tmp_path / "killed", TINY, resume=True)
    assert_same_run(wholes["state"][0], tmp_path / "killed")


def without_actions(demos: Path, out: Path, how: str) -> Path:
    """The demonstrations with their actions spoiled, taken out, or without the files beside the videos."""
    shutil.copytree(demos, out)
    for file in out.glob("*.safetensors"):
        arrays = load_file(file)
        arrays["actions"] = np.full_like(arrays["actions"], np.nan)
        if how != "spoiled":
            del arrays["actions"]
        file.unlink()
        if how != "no file":
            save_file(arrays, file)
    return out


@pytest.mark.parametrize(("obs", "how"), [("state", "spoiled"), ("state", "none"), ("pixels", "no file")])
def test_the_experts_actions_are_not_read(
    obs: Any, how: str, demos: Path, wholes: dict[str, tuple[Path, Loop]], tmp_path: Path
) -> None:
    spoiled = without_actions(demos, tmp_path / "demos", how)
    (out, known), unknown = wholes[obs], train(spoiled, tmp_path / "run", replace(TINY, obs=obs))
    for name, tensor in known._tensors().items():
        assert torch.equal(tensor, unknown._tensors()[name]), name
    assert_same_run(out, tmp_path / "run")


def test_no_reward_is_learned_from(wholes: dict[str, tuple[Path, Loop]]) -> None:
    _, loop = wholes["state"]
    batch = loop.replay.sample(np.random.default_rng(0), 100, 1.0, 1.0)
    assert not batch.reward.any()


def test_the_first_round_is_random_and_the_next_are_the_policy_s(demos: Path, tmp_path: Path) -> None:
    loop = begun(demos, tmp_path / "run", replace(TINY, agent=replace(AGENT, exploration_noise=0.0)))
    seen = np.zeros((1, 39), np.float32)
    assert not np.array_equal(loop._explore(seen), loop.agent.act(seen)[0])
    loop.now.evaluations = 1
    assert np.array_equal(loop._explore(seen), loop.agent.act(seen)[0])


def test_pictures_are_those_of_the_videos(demos: Path) -> None:
    """Expert and agent are seen alike: the simulator's first frame is the video's, up to its compression."""
    config = replace(TINY, obs="pixels")
    demonstrations = bco.read_demonstrations(demos, "drawer-open", config)
    index = json.loads((demos / "index.json").read_text())
    assert [len(episode) for episode in demonstrations.observations] == [row["length"] for row in index["episodes"]]
    with Worker(demonstrations.setting, beside=False) as worker:
        first = worker.reset(index["episodes"][0]["seed"])
    assert first.shape == (24, 24, 3)
    assert np.abs(first.astype(int) - demonstrations.observations[0][0]).mean() < 4


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_options_are_one_line() -> None:
    with pytest.raises(UserError, match="use --obs pixels or state"):
        Config(obs="features")
    for name in ("frames", "round_frames", "inverse_updates", "clone_updates", "eval_episodes"):
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')} 0 is too small"):
            replace(TINY, **cast(Any, {name: 0}))
    with pytest.raises(UserError, match="--seed -1 is negative"):
        replace(TINY, seed=-1)
    with pytest.raises(UserError, match="--policy-size at least 16"):
        replace(TINY, obs="pixels", policy_size=8)
    replace(TINY, obs="state", policy_size=8)  # of no matter


def test_bad_demonstrations_are_one_line(demos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no index"):
        bco.read_demonstrations(tmp_path, "drawer-open", TINY)
    with pytest.raises(UserError, match="shows drawer-open, not window-open"):
        bco.read_demonstrations(demos, "window-open", TINY)
    spoiled = without_actions(demos, tmp_path / "no-states", "no file")
    with pytest.raises(UserError, match="use --obs pixels"):
        bco.read_demonstrations(spoiled, "drawer-open", TINY)
    for row in json.loads((spoiled / "index.json").read_text())["episodes"]:
        save_file({"actions": np.zeros((1, 4), np.float32)}, spoiled / row["trajectory"])
    with pytest.raises(UserError, match="has no states"):
        bco.read_demonstrations(spoiled, "drawer-open", TINY)
    for row in json.loads((spoiled / "index.json").read_text())["episodes"]:
        save_file({"observations": np.zeros((1, 39), np.float32)}, spoiled / row["trajectory"])
    with pytest.raises(UserError, match="shows no step"):
        bco.read_demonstrations(spoiled, "drawer-open", TINY)
    save_file({"observations": np.zeros((2, 39), np.float32)}, spoiled / row["trajectory"])  # one that moves
    assert len(bco.read_demonstrations(spoiled, "drawer-open", TINY).observations) == 1
