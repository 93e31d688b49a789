"""The part that rewards which learn online share, on a method as small as can be."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.conftest import crossing
from timerewarder.errors import UserError
from timerewarder.models.checkpoint import load_tensors, save_tensors
from timerewarder.rewards.online import OnlineReward, Seen
from timerewarder.rewards.reward import FrameConfig


@dataclass(frozen=True, kw_only=True)
class Config(FrameConfig):
    online_updates: int = 3
    online_batch: int = 8
    online_lr: float = 0.125


class Slope(OnlineReward):
    """Its loss is `slope * mean(after)`: the gradient is the mean of what it is shown, whatever it has learned."""

    method = "slope"

    def __init__(self, config):
        super().__init__(config)
        self.slope = nn.Linear(1, 1, bias=False)
        self.seen = []
        nn.init.constant_(self.slope.weight, 1.0)

    @property
    def learner(self):
        return self.slope

    def online_loss(self, seen, rng):
        self.seen.append(seen)
        return self.slope(seen.after[:, :1]).mean()


def slope(lengths=(3, 2), **options):
    """A reward whose demonstrations are rows that carry their own number."""
    reward = Slope(Config(image_size=16, **options))
    reward.demonstrations = torch.arange(sum(lengths), dtype=torch.float32)[:, None]
    reward.lengths = torch.tensor(lengths)
    return reward.eval()


def always(value):
    """The agent sees one thing only."""
    return lambda rng, count: Seen(*(torch.full((count, 1), value) for _ in range(3)))


# Demonstrations


@given(st.lists(st.integers(2, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_an_expert_step_is_within_one_video(lengths, seed):
    ends = np.cumsum(lengths)
    first, before, after = (
        part.squeeze(1).int().numpy() for part in slope(lengths).draw_experts(np.random.default_rng(seed), 50)
    )
    video = np.searchsorted(ends, after, side="right")
    assert np.array_equal(first, (ends - lengths)[video])
    assert np.array_equal(before, after - 1)
    assert (before >= first).all()


@pytest.mark.parametrize("lengths", [(2,), (2, 5), (4, 2, 3), (2, 2, 2)])
def test_every_expert_step_is_as_likely_as_any_other(lengths):
    count, steps = 20_000, sum(lengths) - len(lengths)
    drawn = slope(lengths).draw_experts(np.random.default_rng(0), count).after.squeeze(1).int().numpy()
    seen, times = np.unique(drawn, return_counts=True)
    starts = np.cumsum(lengths) - lengths
    assert seen.tolist() == sorted(set(range(sum(lengths))) - set(starts.tolist()))
    deviation = np.sqrt(count * (1 / steps) * (1 - 1 / steps))
    assert np.abs(times - count / steps).max() <= 4 * deviation


# Learning


@pytest.mark.parametrize(("value", "direction"), [(2.0, -1), (-0.5, 1)])
def test_steps_of_adam_worked_by_hand(value, direction):
    """Under a constant gradient g every step of Adam is lr * sign(g); the loss before step k is g * slope."""
    reward = slope()
    logged = reward.learn(always(value), np.random.default_rng(0))
    slopes = [1.0 + direction * 0.125 * k for k in range(4)]
    assert reward.slope.weight.item() == pytest.approx(slopes[-1], abs=1e-6)
    assert logged == {"reward_loss": pytest.approx(value * np.mean(slopes[:3]), abs=1e-6)}
    reward.learn(always(value), np.random.default_rng(0))  # goes on where it was, momentum included
    assert reward.slope.weight.item() == pytest.approx(1.0 + direction * 0.125 * 6, abs=1e-6)


def test_batches_are_as_large_as_asked_for():
    reward = slope(online_updates=2, online_batch=5)
    reward.learn(always(1.0), np.random.default_rng(0))
    assert [part.shape for seen in reward.seen for part in seen] == [(5, 1)] * 6


def test_no_updates_learn_nothing():
    reward = slope(online_updates=0)
    assert reward.learn(always(1.0), np.random.default_rng(0)) == {}
    assert reward.slope.weight.item() == 1.0


def test_nothing_but_the_learner_changes_and_modes_are_as_before():
    reward = slope()
    before = {name: tensor.clone() for name, tensor in reward.state_dict().items()}
    reward.learn(always(1.0), np.random.default_rng(0))
    changed = {name for name, tensor in reward.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"slope.weight"}
    assert all(parameter.grad is None for parameter in reward.encoder.parameters())
    assert not any(module.training for module in reward.modules())


def test_a_loss_that_is_no_number_stops_before_it_does_harm():
    reward = slope()
    with pytest.raises(UserError, match="slope is nan: lower --online-lr"):
        reward.learn(always(float("nan")), np.random.default_rng(0))
    assert reward.slope.weight.item() == 1.0


# Episodes as frames


def test_observe_shows_consecutive_frames_of_the_episode():
    frames = crossing(1, 5)
    reward = slope(online_batch=64)
    features = reward.encode(frames)
    reward.observe(frames, np.random.default_rng(0))
    later = set()
    for first, before, after in reward.seen:
        index = (after[:, None] == features[None]).all(-1).int().argmax(1)
        assert torch.equal(after, features[index])
        assert torch.equal(before, features[index - 1])
        assert torch.equal(first, features[:1].expand(64, -1))
        later |= set(index.tolist())
    assert later == {1, 2, 3, 4}


def test_observe_an_episode_of_two_frames():
    frames = crossing(1, 2)
    reward = slope()
    features = reward.encode(frames)
    reward.observe(frames, np.random.default_rng(0))
    assert torch.equal(reward.seen[0].before, features[:1].expand(8, -1))
    assert torch.equal(reward.seen[0].after, features[1:].expand(8, -1))


def test_observe_refuses_what_shows_no_step():
    with pytest.raises(UserError, match="at least two frames"):
        slope().observe(crossing(1)[:1], np.random.default_rng(0))
    with pytest.raises(UserError, match="uint8"):
        slope().observe(crossing(1).astype(np.float32), np.random.default_rng(0))


def test_history_is_refused():
    with pytest.raises(UserError, match="--history does not fit slope"):
        Slope(Config(image_size=16, history=1))


# To stop and go on


def changing(rng, count):
    """What the agent sees differs from step to step, so that Adam's averages matter."""
    values = torch.from_numpy(rng.normal(size=(count, 1)).astype(np.float32))
    return Seen(values, values, values)


def test_restored_equals_uninterrupted(tmp_path):
    whole, stopped, resumed = slope(), slope(), slope()
    for episode in range(4):
        whole.learn(changing, np.random.default_rng(episode))
    for episode in range(2):
        stopped.learn(changing, np.random.default_rng(episode))
    save_tensors(tmp_path / "online.safetensors", stopped.online_state())
    resumed.restore_online(load_tensors(tmp_path / "online.safetensors"))
    for episode in range(2, 4):
        resumed.learn(changing, np.random.default_rng(episode))
    expected, found = whole.online_state(), resumed.online_state()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not torch.equal(stopped.slope.weight, whole.slope.weight)


def test_the_state_before_any_learning_restores_too():
    fresh, other = slope(), slope()
    other.restore_online(fresh.online_state())
    for reward in (fresh, other):
        reward.learn(changing, np.random.default_rng(0))
    assert torch.equal(fresh.slope.weight, other.slope.weight)


def test_a_state_stays_as_it_was():
    reward = slope()
    reward.learn(changing, np.random.default_rng(0))
    state = reward.online_state()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    reward.learn(changing, np.random.default_rng(1))
    assert all(torch.equal(state[name], kept[name]) for name in kept)
