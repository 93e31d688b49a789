"""Rewards that come at an episode's end, or that go on learning: the replay holds back, the loop rewards and learns."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import timerewarder as tr
from tests.agents.test_online import TINY
from tests.conftest import QUICK
from timerewarder.agents.judge import Judge
from timerewarder.agents.replay import Replay, bytes_needed
from timerewarder.errors import UserError
from timerewarder.train import train_policy


def held_replay(episodes: int, length: int = 4, capacity: int = 40) -> Replay:
    """Episodes whose features tell which frame it is, (episode, position); not rewarded yet but for the newest."""
    replay = Replay(capacity, (1,), 1, stack=1, n_step=1, held=True, features=2)
    for episode in range(episodes):
        replay.begin(np.zeros(1, np.float32), np.array([episode, 0]))
        for position in range(1, length + 1):
            step = np.array([episode, position])
            replay.add(np.zeros(1), np.full(1, position, np.float32), 0.0, False, features=step)
        if episode < episodes - 1:
            replay.reward_episode(np.full(length + 1, 7.0))
    return replay


def test_a_ring_that_holds_no_whole_episode_says_so() -> None:
    replay = held_replay(1, length=12, capacity=8)
    assert len(replay) == 0
    with pytest.raises(UserError, match=r"holds no whole episode.* pass --replay-capacity 26 or more"):
        replay.reward_episode(np.zeros(13))


def drawn_rewards(replay: Replay) -> set[float]:
    return set(replay.sample(np.random.default_rng(0), 500, 1.0, 0.0).reward.tolist())


def test_an_episode_cannot_be_drawn_before_it_is_rewarded() -> None:
    replay = held_replay(2)
    assert len(replay) == 4
    assert drawn_rewards(replay) == {7.0}
    replay.reward_episode(np.array([0.0, 1, 2, 3, 4]))
    assert len(replay) == 8
    assert drawn_rewards(replay) == {7.0, 1.0, 2.0, 3.0, 4.0}


def test_the_whole_past_is_rewarded_anew() -> None:
    replay = held_replay(3)
    replay.reward_episode(np.zeros(5))
    replay.reward_all(lambda features: 10 * features[:, 0] + features[:, 1])
    assert drawn_rewards(replay) == {10.0 * e + p for e in range(3) for p in range(1, 5)}


def test_episodes_that_the_ring_has_lost_in_part_are_drawn_no_more() -> None:
    replay = held_replay(3, capacity=12)  # 15 frames: of the first episode two are left
    replay.reward_episode(np.zeros(5))
    seen = []
    replay.reward_all(lambda features: seen.append(features[0, 0]) or features[:, 1])
    assert seen == [1, 2]
    assert drawn_rewards(replay) == {1.0, 2.0, 3.0, 4.0}
    assert len(replay) == 8


def test_a_ring_that_has_gone_around_resumes_with_the_same_rewards(tmp_path: Path) -> None:
    """Though what is on disk of an old episode are the rewards of when it was new."""
    replay, other = (held_replay(1, capacity=12) for _ in range(2))
    replay.reward_episode(np.full(5, 7.0))
    replay.save(tmp_path)
    for episode in (1, 2):
        replay.reward_all(lambda features, episode=episode: features[:, 1] + 100.0 * episode)
        replay.begin(np.zeros(1, np.float32), np.array([episode, 0]))
        for position in range(1, 5):
            replay.add(
                np.zeros(1), np.full(1, position, np.float32), 0.0, False, features=np.array([episode, position])
            )
        replay.reward_episode(np.full(5, 7.0))
        replay.save(tmp_path)
    other.load(tmp_path)
    for one in (replay, other):
        one.reward_all(lambda features: features[:, 1])
    assert drawn_rewards(replay) == drawn_rewards(other) == {1.0, 2.0, 3.0, 4.0}
    assert len(replay) == len(other) == 8
    assert replay.worth(0.9, 0.0) == other.worth(0.9, 0.0) == (0.0, 4.0)


def test_drawn_features_belong_together() -> None:
    replay = held_replay(3)
    replay.reward_episode(np.zeros(5))
    first, before, after = replay.draw_features(np.random.default_rng(0), 300)
    assert (first[:, 1] == 0).all()
    assert (first[:, 0] == before[:, 0]).all()
    assert (before[:, 0] == after[:, 0]).all()
    assert (after[:, 1] == before[:, 1] + 1).all()
    assert {tuple(row) for row in after.tolist()} == {(e, p) for e in range(3) for p in range(1, 5)}


def test_a_loaded_replay_has_the_features(tmp_path: Path) -> None:
    replay, other = held_replay(3), held_replay(1)
    replay.reward_episode(np.arange(5.0))
    replay.save(tmp_path)
    other.load(tmp_path)
    for one, two in zip(*(r.draw_features(np.random.default_rng(0), 50) for r in (replay, other)), strict=True):
        assert np.array_equal(one, two)
    assert drawn_rewards(other) == drawn_rewards(replay)


def test_memory_counts_the_features() -> None:
    assert bytes_needed(10, (4,), 2, features=3) == bytes_needed(10, (4,), 2) + 10 * 3 * 2


@pytest.fixture(scope="module", params=["gaifo", "rank2reward", "progressor", "ot", "ads", "orca"])
def model(request: pytest.FixtureRequest, videos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("reward") / request.param
    tr.fit(videos, folder, method=request.param, **{**QUICK, "epochs": 0.1})
    return str(folder)


def test_a_policy_trains_and_resumes_on_every_such_method(model: str, tmp_path: Path) -> None:
    config = replace(TINY, frames=120, eval_episodes=1, reward_every=2)
    train_policy("drawer-open", model, tmp_path / "whole", config)
    train_policy("drawer-open", model, tmp_path / "parts", replace(config, frames=60), keep_replay=True)
    train_policy("drawer-open", model, tmp_path / "parts", config, resume=True)
    whole, parts = (load_file(tmp_path / name / "policy.safetensors") for name in ("whole", "parts"))
    for name, tensor in whole.items():
        assert np.array_equal(tensor, parts[name]), name
    described = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert described["reward_name"] == Path(model).name
    with (tmp_path / "whole" / "eval.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["learned_return"]) != 0
    if described["reward_name"] == "ads":
        assert float(last["discount"]) == pytest.approx(0.2 ** (1 / float(last["ads_k"])))


def test_what_learns_online_is_rewarded_anew_and_the_model_on_disk_stays(model: str, tmp_path: Path) -> None:
    before = load_file(Path(model) / "weights.safetensors")
    judge = Judge(tr.load(model), reward_every=1)
    replay = Replay(100, (1,), 1, stack=1, n_step=1, held=True, features=judge.features)
    rng, features = np.random.default_rng(0), np.random.default_rng(1).normal(size=(6, judge.reward.encoder.dim))
    for number in range(3):
        replay.begin(np.zeros(1, np.float32), features[0])
        for row in features[1:]:
            replay.add(np.zeros(1), np.zeros(1, np.float32), 0.0, False, features=row)
        rewards, log = judge.episode_ended(features.astype(np.float32), number, replay, rng)
        assert rewards.shape == (6,)
        assert np.isfinite(rewards).all()
    if judge.features:
        assert np.isfinite(log["reward_loss"])
        now = judge.rewards(features.astype(np.float16).astype(np.float32))
        assert drawn_rewards(replay) == set(now[1:].tolist())
    after = load_file(Path(model) / "weights.safetensors")
    assert all(np.array_equal(before[name], after[name]) for name in before)
