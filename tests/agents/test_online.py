"""The loop on the real simulator, short: rewards, tables, evaluation, kill and resume."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import timerewarder as tr
from tests.conftest import QUICK
from tests.test_cli import run as cli
from timerewarder.agents.bc import Config as CloneConfig
from timerewarder.agents.drqv2 import Config as AgentConfig
from timerewarder.agents.online import Config, Stack
from timerewarder.agents.presets import preset_named
from timerewarder.agents.run_folder import RunFolder, check_place
from timerewarder.envs.demos import collect
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.envs.worker import Setting, Worker, make_env
from timerewarder.errors import UserError
from timerewarder.evaluation.episodes import Episode, evaluation_seed, mean_measures, training_seed
from timerewarder.report.clip import Clip
from timerewarder.rewards.timerewarder import Config as RewardConfig
from timerewarder.rewards.timerewarder import TimeRewarder
from timerewarder.train import clone_policy, film, train_policy

AGENT = AgentConfig(batch=16, hidden=16, trunk=8, encoder="compact")
TINY = Config(
    frames=120, obs="state", random_steps=10, seed_frames=40, eval_every=60, eval_episodes=2, size=32, horizon=20,
    replay_capacity=200, beside=False, threads=1, agent=AGENT,
)  # fmt: skip


@pytest.fixture(scope="module")
def model(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("reward") / "model"
    tr.fit(videos, folder, **{**QUICK, "epochs": 0.2})
    return str(folder)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("obs", "reward"), [("state", "env"), ("state", "sparse"), ("pixels", ""), ("features", "")])
def test_a_run_leaves_what_it_promises(obs: Any, reward: str, model: str, tmp_path: Path) -> None:
    result = train_policy("drawer-open", reward or model, tmp_path / "run", replace(TINY, obs=obs))
    assert result["complete"]
    assert result["env_frames"] == 120
    evaluations = rows(tmp_path / "run" / "eval.csv")
    assert [int(row["env_frames"]) for row in evaluations] == [60, 120]
    assert {"success_once", "success_at_end", "success_gt3", "task_return", "learned_return"} <= evaluations[0].keys()
    films = sorted((tmp_path / "run" / "videos").iterdir())
    assert [film.name for film in films] == [
        f"{kind}_00000{n}.mp4" for kind in ("all", "frames") for n in ("060", "120")
    ]
    assert [len(next(tr.read_videos(film)).frames) for film in films] == [11] * 4
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["kind"], config["task"], config["obs"]) == ("policy", "drawer-open", obs)
    assert any((tmp_path / "run" / "tensorboard").iterdir())
    alpha = json.loads((tmp_path / "run" / "alpha.json").read_text())
    assert alpha["rule"] == {"env": 0.0, "sparse": 1.0}.get(reward, "adaptive")
    if not reward:
        assert alpha["value"] == pytest.approx(10 * alpha["set_by"]["reward"])
    assert not (tmp_path / "run" / "checkpoint").exists()
    assert "actor.policy.0.weight" in load_file(tmp_path / "run" / "policy.safetensors")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"obs": "pixels"},
        {"familiar": 2.5, "anchored": True, "reward_form": "progress", "agent": replace(AGENT, bounded=True)},
        {"horizon": 22, "replay_on_disk": True},  # episodes overshoot --frames
    ],
)
def test_resumed_equals_uninterrupted(options: Any, model: str, tmp_path: Path) -> None:
    config = replace(TINY, frames=180, **options)
    train_policy("drawer-open", model, tmp_path / "whole", config)
    train_policy("drawer-open", model, tmp_path / "parts", replace(config, frames=60), keep_replay=True)
    train_policy("drawer-open", model, tmp_path / "parts", config, resume=True)
    whole, parts = (load_file(tmp_path / name / "policy.safetensors") for name in ("whole", "parts"))
    for name, tensor in whole.items():
        assert np.array_equal(tensor, parts[name]), name
    clock = {"seconds", "frames_per_second"}
    for table in ("eval.csv", "train.csv"):
        timeless = [
            [{k: v for k, v in row.items() if k not in clock} for row in rows(tmp_path / name / table)]
            for name in ("whole", "parts")
        ]
        assert timeless[0] == timeless[1]


def test_progress_is_another_lesson_than_steps_and_only_for_a_value(model: str, tmp_path: Path) -> None:
    learned = {}
    for reward in (model, "env"):
        for form in ("steps", "progress"):
            out = tmp_path / f"{form}-{'env' if reward == 'env' else 'model'}"
            train_policy("drawer-open", reward, out, replace(TINY, frames=80, reward_form=form))
            learned[out.name] = load_file(out / "policy.safetensors")["critic.q1.0.weight"]
    assert not np.array_equal(learned["steps-model"], learned["progress-model"])
    assert np.array_equal(learned["steps-env"], learned["progress-env"])


def test_beside_equals_in_between(model: str, tmp_path: Path) -> None:
    config = replace(TINY, frames=60)
    train_policy("drawer-open", model, tmp_path / "between", config)
    train_policy("drawer-open", model, tmp_path / "beside", replace(config, beside=True))
    between, beside = (load_file(tmp_path / name / "policy.safetensors") for name in ("between", "beside"))
    for name, tensor in between.items():
        assert np.array_equal(tensor, beside[name]), name


OPTIONS = shlex.split(
    "--task drawer-open --reward sparse --obs state --eval-every 200 --eval-episodes 1 --horizon 20 --size 32 "
    "--batch 16 --hidden 16 --trunk 8 --random-steps 10 --seed-frames 40"
)


def saved_steps(run: Path) -> int:
    """Steps of the agent that the checkpoint holds; 0 without one."""
    state = run / "checkpoint" / "state.json"
    return json.loads(state.read_text())["counters"]["agent_steps"] if state.exists() else 0


def stopped(run: Path, how: signal.Signals, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A training that is stopped, with its worker, as soon as it has saved something new; what it printed."""
    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "timerewarder", "train", *OPTIONS, "--frames", "4000", "--out", str(run), *more]
    before, process = saved_steps(run), subprocess.Popen(command, start_new_session=True, **pipes)
    while saved_steps(run) == before and process.poll() is None:
        time.sleep(0.1)
    os.killpg(process.pid, how)
    output, errors = process.communicate(timeout=120)
    return process, output + errors


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """Killed at once, then ended as a batch system does it, then left to finish."""
    run = tmp_path / "run"
    stopped(run, signal.SIGKILL)
    killed_at = saved_steps(run)
    process, said = stopped(run, signal.SIGTERM, "--resume")
    assert f"going on from {2 * killed_at:,} frames" in said
    assert process.returncode == 0, said
    assert "complete                False" in said
    ended_at = saved_steps(run)
    assert ended_at > killed_at
    done = cli("train", *OPTIONS, "--out", run, "--resume", "--json", "--frames", 2 * ended_at + 100)
    assert done.code == 0, done.err
    result = json.loads(done.out.splitlines()[-1])
    assert result["complete"]
    assert result["agent_steps"] >= ended_at + 50
    assert f"going on from {2 * ended_at:,} frames" in done.err
    assert re.search(r"replay: [\d,]+ frames, [\d.]+ GB when full", done.err)
    assert re.search(r"frames: return [-+.\d]+, success [\d.]+ once, [\d.]+ at end, [\d.]+ for >3 steps", done.err)


def test_a_complete_run_is_completed_again(tmp_path: Path) -> None:
    """A kill may come after the last checkpoint and before the policy is written."""
    config, run = replace(TINY, frames=60, horizon=22), tmp_path / "run"
    train_policy("drawer-open", "sparse", run, config, keep_replay=True)
    policy = (run / "policy.safetensors").read_bytes()
    (run / "policy.safetensors").unlink()
    again = train_policy("drawer-open", "sparse", run, config, resume=True, keep_replay=True)
    assert again["complete"]
    assert again["env_frames"] == 66
    assert (run / "policy.safetensors").read_bytes() == policy


def test_a_run_whose_fit_was_interrupted_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "run" / "reward").mkdir(parents=True)
    check_place(tmp_path / "run", resume=True)
    (tmp_path / "run" / "mine.txt").touch()
    with pytest.raises(UserError, match="is not a training run"):
        check_place(tmp_path / "run", resume=True)


@pytest.mark.parametrize(("given", "named", "top"), [(None, "sum", 0.5), ("full", "progress", 0.25)])
def test_films_show_progress_only_where_there_is_one(
    given: str | None, named: str, top: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the full difference of both orders a whole task sums to 2."""
    clips: list[Clip] = []
    monkeypatch.setattr("timerewarder.train.write_overlay", lambda clip, path: clips.append(clip))
    model = TimeRewarder(RewardConfig(image_size=32, antisymmetric="full")) if given else None
    rewards = np.full(2, 0.25, np.float32)
    episode = Episode(rewards, rewards, np.zeros(2, np.bool_), np.zeros((3, 32, 32, 3), np.uint8))
    film(tmp_path, 10, [episode], model)
    assert (clips[0].sum_name, clips[0].progress[-1]) == (named, pytest.approx(top))


def test_bad_input_is_one_line(model: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match="did you mean drawer-open"):
        train_policy("drawer-opn", model, out, TINY)
    with pytest.raises(UserError, match="no model at"):
        train_policy("drawer-open", str(tmp_path / "none"), out, TINY)
    with pytest.raises(UserError, match="pass --size 32"):
        train_policy("drawer-open", model, out, replace(TINY, size=84))
    with pytest.raises(UserError, match="--obs features needs a reward model"):
        train_policy("drawer-open", "sparse", out, replace(TINY, obs="features"))
    with pytest.raises(UserError, match="no run to resume"):
        train_policy("drawer-open", "sparse", out, TINY, resume=True)
    assert not out.exists()
    train_policy("drawer-open", "sparse", out, replace(TINY, frames=20), keep_replay=True)
    before = (out / "config.json").read_bytes()
    with pytest.raises(UserError, match="add --resume"):
        train_policy("drawer-open", "sparse", out, TINY)
    with pytest.raises(UserError, match="stands at 20 frames already"):
        train_policy("drawer-open", "sparse", out, replace(TINY, frames=10), resume=True)
    with pytest.raises(UserError, match="pictures of 0 px"):
        replace(TINY, obs="pixels", policy_size=0)
    with pytest.raises(UserError, match=r"other settings \(config.agent.batch, config.seed"):
        train_policy("drawer-open", "sparse", out, replace(TINY, seed=1, agent=replace(AGENT, batch=17)), resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("mine")
    with pytest.raises(UserError, match="is not a training run"):
        train_policy("drawer-open", "sparse", other, TINY)
    assert (out / "config.json").read_bytes() == before
    assert [p.name for p in other.iterdir()] == ["precious.txt"]


def test_a_mistake_leaves_nothing_behind(model: str, tmp_path: Path) -> None:
    """What is wrong can be mended and typed again: no folder is taken before everything is checked."""
    wrong: list[dict[str, Any]] = [
        {"camera": "nonsense"},
        {"horizon": 1},
        {"alpha": -1.0},
        {"replay_capacity": 10**12},
        {"replay_capacity": 10**12, "replay_on_disk": True},
    ]
    for option in wrong:
        with pytest.raises(UserError):
            train_policy("drawer-open", model, tmp_path / "run", replace(TINY, **option))
        assert not (tmp_path / "run").exists()
    for option in [
        {"threads": -1},
        {"familiar": -1.0},
        {"obs": "pixels", "policy_size": 4},
        {"frames": 0},
    ]:
        with pytest.raises(UserError, match="--"):
            replace(TINY, **option)


def test_a_picture_that_cannot_be_drawn_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(worker: Any) -> None:
        raise UserError("no OpenGL")

    monkeypatch.setattr(Worker, "frame", fail)
    with pytest.raises(UserError, match="no OpenGL"):
        train_policy("drawer-open", "sparse", tmp_path / "run", TINY)
    assert not (tmp_path / "run").exists()


def test_a_model_that_sees_the_past_is_not_anchored(videos: Path, tmp_path: Path) -> None:
    tr.fit(videos, tmp_path / "model", **{**QUICK, "epochs": 0.1, "history": 1})
    config = replace(TINY, frames=20, familiar=2.5, anchored=True)
    train_policy("drawer-open", str(tmp_path / "model"), tmp_path / "run", config)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (saved["anchored"], saved["familiar"]) == (False, 2.5)


def test_a_complete_run_is_not_begun_again(tmp_path: Path) -> None:
    out, config = tmp_path / "run", replace(TINY, frames=20)
    train_policy("drawer-open", "sparse", out, config)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="is complete and its replay was not kept"):
        train_policy("drawer-open", "sparse", out, replace(config, frames=60), resume=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    kept = tmp_path / "kept"
    train_policy("drawer-open", "sparse", kept, replace(config, frames=60), keep_replay=True)
    with pytest.raises(UserError, match="stands at 60 frames already"):
        train_policy("drawer-open", "sparse", kept, replace(config, frames=40), resume=True)
    assert (kept / "checkpoint" / "state.json").exists()


def test_a_policy_is_no_reward_model(tmp_path: Path) -> None:
    train_policy("drawer-open", "sparse", tmp_path / "run", replace(TINY, frames=20))
    with pytest.raises(UserError, match="is a training run, not a reward model"):
        tr.load(tmp_path / "run")


def test_the_worker_leaves_the_main_process_as_it_was() -> None:
    before = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    with Worker(Setting(task="drawer-open", reward="sparse", obs="state", horizon=20), beside=True):
        assert (signal.getsignal(signal.SIGINT), torch.get_num_threads()) == before


def test_stacks_begin_with_the_first_frame_repeated() -> None:
    frames = [np.full((2, 2, 3), i, np.uint8) for i in range(5)]
    stack = Stack(3)
    seen = [stack(frame)[0, 0, 0, ::3].tolist() for frame in frames]
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_seeds_of_training_and_evaluation_never_meet() -> None:
    training = {training_seed(seed, episode) for seed in range(5) for episode in range(500)}
    assert len(training) == 2500
    assert all(seed % 2 == 0 for seed in training)
    assert all(evaluation_seed(episode) % 2 == 1 for episode in range(50))


def test_the_three_measures_of_success() -> None:
    def episode(pattern: str) -> dict[str, float]:
        success = np.array([c == "1" for c in pattern])
        measures = Episode(np.ones(len(success), np.float32), np.zeros(len(success), np.float32), success).measures()
        return {key.removeprefix("success_"): value for key, value in measures.items() if key.startswith("success")}

    assert episode("000000") == {"once": 0, "at_end": 0, "gt3": 0}
    assert episode("011100") == {"once": 1, "at_end": 0, "gt3": 0}
    assert episode("101011") == {"once": 1, "at_end": 1, "gt3": 1}
    assert episode("000001") == {"once": 1, "at_end": 1, "gt3": 0}
    nothing, something = np.zeros(2, np.float32), np.array([1, 2], np.float32)
    pair = [Episode(something, nothing, np.array([True, True])), Episode(nothing, nothing, np.array([False, False]))]
    assert mean_measures(pair)["learned_return"] == 1.5
    assert mean_measures(pair)["success_at_end"] == 0.5


def test_the_worker_gives_the_rewards_of_score(model: str) -> None:
    reward = tr.load(model)
    setting = Setting(task="drawer-open", reward=model, obs="features", size=32, horizon=20)
    env = MetaWorld("drawer-open", size=32, horizon=20)
    env.reset(seed=4)
    frames, actions = [env.render()], np.random.default_rng(0).uniform(-1, 1, (10, 4)).astype(np.float32)
    for action in actions:
        env.step(action)
        frames.append(env.render())
    expected, features = reward.score(np.stack(frames)), reward.encode(np.stack(frames)).numpy()
    with Worker(setting, beside=False) as worker:
        assert worker.reset(4) == pytest.approx(features[0], abs=1e-4)
        for t, action in enumerate(actions):
            worker.start(action)
            step = worker.finish()
            assert step.dense == pytest.approx(expected[t + 1], abs=1e-5)
            assert step.observation == pytest.approx(features[t + 1], abs=1e-4)
        assert step.ended


def test_an_anchored_sum_is_what_is_seen_from_the_first_frame(model: str) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (19, 4)).astype(np.float32)
    env = make_env(Setting(task="drawer-open", reward=model, anchored=True, obs="state", size=32, horizon=40))
    env.reset(seed=0)
    first, reward, rewards = env.render(), tr.load(model), []
    for action in actions:
        rewards.append(env.step(action)[1])
        assert sum(rewards) == pytest.approx(reward.score(np.stack([first, env.render()]))[1], abs=1e-5)


def test_a_run_is_one_process_at_a_time(tmp_path: Path) -> None:
    what = {"reward": "env", "command": "timerewarder train"}
    script = (
        "import sys; from pathlib import Path; from timerewarder.agents.run_folder import RunFolder\n"
        f"folder = RunFolder(Path({str(tmp_path / 'run')!r}), {what!r})\n"
        "folder.begin(); print('begun', flush=True); sys.stdin.read()"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as other:  # ends when its input does
        assert other.stdout.readline() == "begun\n"
        with pytest.raises(UserError, match="another process is training in"):
            RunFolder(tmp_path / "run", what, resume=True).begin()
    RunFolder(tmp_path / "run", what, resume=True).begin()


def test_presets_are_what_they_say() -> None:
    paper = preset_named("paper", "pixels")
    agent = paper.agent
    assert (paper.replay_capacity, agent.n_step, agent.batch, agent.discount, agent.lr) == (150_000, 3, 512, 0.99, 1e-4)
    assert (agent.tau, agent.hidden, agent.exploration_noise, agent.policy_noise) == (0.005, 1024, 0.4, 0.1)
    assert (agent.exploration_colour, agent.saturation, agent.bounded) == (0, 0, False)
    assert (agent.encoder, agent.trunk, paper.policy_size) == ("drqv2", 50, None)
    assert (agent.noise_clip, agent.policy_delay, agent.shift, agent.stack, paper.size) == (0.3, 1, 4, 3, 84)
    assert (paper.random_steps, paper.seed_frames, paper.update_every, paper.action_repeat) == (2000, 12_000, 2, 2)
    assert (paper.eval_every, paper.eval_episodes, paper.alpha) == (10_000, 10, "adaptive")
    assert (paper.familiar, paper.anchored, paper.reward_form) == (None, False, "steps")
    with pytest.raises(UserError, match="did you mean paper"):
        preset_named("papr", "pixels")
    with pytest.raises(UserError, match="--obs"):
        preset_named("cpu", "sounds")


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cloned") / "demos"
    collect("drawer-open", 4, folder, size=32)
    return folder


@pytest.mark.parametrize("obs", ["state", "pixels"])
def test_cloning_learns_the_actions(obs: Any, demos: Path, tmp_path: Path) -> None:
    agent = replace(AGENT, batch=64, hidden=64, lr=1e-3)
    config = CloneConfig(obs=obs, size=32, updates=300, eval_episodes=1, agent=agent)
    result = clone_policy("drawer-open", demos, tmp_path / "run", config)
    losses = [float(row["action_error"]) for row in rows(tmp_path / "run" / "train.csv")]
    assert losses[-1] < 0.5 * losses[0]
    assert result["success_once"] in (0.0, 1.0)


def test_only_demonstrations_of_the_task_are_cloned(demos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not window-open"):
        clone_policy("window-open", demos, tmp_path / "run", CloneConfig(obs="state"))
    with pytest.raises(UserError, match="has no index"):
        clone_policy("drawer-open", tmp_path, tmp_path / "run", CloneConfig(obs="state"))
