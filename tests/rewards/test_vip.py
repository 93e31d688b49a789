"""VIP: its loss by hand, the proof that it is unbounded, how windows are drawn, values, and the end of a divergence."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from timerewarder.data.store import open_store
from timerewarder.errors import UserError
from timerewarder.rewards import preset_config, vip
from timerewarder.rewards.training import Batch, Diverged, Training, train

SHORT = {**QUICK, "epoch_frames": 640, "validate_every": 160}


def untrained(**options):
    torch.manual_seed(0)
    return vip.VIP(vip.Config(image_size=16, **options))


def plain(reward):
    """The same reward with phi(o) = the first features of o."""
    with torch.no_grad():
        reward.embedding.weight.copy_(torch.eye(*reward.embedding.weight.shape))
        reward.embedding.bias.zero_()
    return reward


def features(*rows):
    """(T, 512): the given numbers, then zeros."""
    return torch.tensor([[*row, *[0.0] * (512 - len(row))] for row in rows])


# The loss


def test_loss_by_hand():
    first, now, after = torch.tensor([-3.0, -1.0]), torch.tensor([-2.0, -1.0]), torch.tensor([-1.0, 0.0])
    # -(r + gamma V' - V): -(-1 - 0.5 + 2) = -0.5 and -(-1 - 0 + 1) = 0
    expected = 0.5 * (3 + 1) / 2 + math.log(1e-8 + (math.exp(-0.5) + 1) / 2)
    assert vip.vip_loss(first, now, after, gamma=0.5).item() == pytest.approx(expected, abs=1e-6)
    assert expected == pytest.approx(0.78093, abs=1e-5)


@pytest.mark.parametrize("negatives", [0, 1, 2])
def test_whole_loss_by_brute_force(negatives):
    reward = untrained(dim=3, windows=4, negatives=negatives, gamma=0.9, l1=0.1, l2=0.2)
    embedded = torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(1))
    phi = embedded.double().numpy()

    def value(o, g):
        return -math.sqrt(sum((a - b) ** 2 for a, b in zip(o, g, strict=True)))

    def term(pairs):
        steps = [math.exp(-(-1 + 0.9 * value(after, g) - value(now, g))) for now, after, g in pairs]
        return math.log(1e-8 + sum(steps) / len(steps))

    expected = 0.1 * np.mean([value(window[0], window[3]) for window in phi]) * -1
    expected += term([(window[1], window[2], window[3]) for window in phi])
    if negatives:
        expected += term(
            [(phi[n][1], phi[n][2], phi[(n - by) % 4][3]) for by in range(1, negatives + 1) for n in range(4)]
        )
    expected += 0.1 * np.abs(phi).sum(-1).mean() + 0.2 * np.sqrt((phi**2).sum(-1)).mean()
    assert reward.loss(embedded).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("c", [0.5, 1.0, 5.0])
def test_the_loss_falls_as_values_grow(c):
    """The chain of the paper's proof: 1 - gamma^N c, as long as 1e-8 does not count."""
    gamma, length = 0.98, 60
    left = torch.arange(length, -1, -1, dtype=torch.float64)
    values = -c * (1 - gamma**left) / (1 - gamma)
    loss = vip.vip_loss(values[:1].expand(length), values[:-1], values[1:], gamma)
    assert loss.item() == pytest.approx(1 - gamma**length * c, abs=1e-4)
    assert torch.allclose(vip.inflation(-values[:-1], left[:-1], gamma), torch.full((length,), c, dtype=torch.float64))


def test_the_least_that_a_logarithm_sees_ends_the_fall():
    assert vip.log_mean_exp(torch.tensor([-1e6, -1e6])).item() == pytest.approx(math.log(1e-8))


def test_the_loss_does_not_overflow():
    huge = torch.tensor([-1e30, -1e5])
    assert torch.isfinite(vip.vip_loss(huge, huge * 0.5, huge, 0.98))


def test_frames_that_are_their_goal_have_a_gradient():
    embedded = torch.zeros(2, 4, 3, requires_grad=True)  # all distances 0, where a norm has a corner
    untrained(dim=3, negatives=1).loss(embedded).backward()
    assert torch.isfinite(embedded.grad).all()


def test_distances_are_not_rounded_to_16_bits():
    reward = untrained(dim=3)
    frames = torch.from_numpy(np.stack([crossing(1, 8, 16)] * 4)).flatten(0, 1)[:, None]
    with torch.autocast("cpu", torch.bfloat16):
        assert reward.encoder.backbone[0](torch.zeros(1, 3, 16, 16)).dtype == torch.bfloat16
        assert reward({"frames": frames}).dtype == torch.float32


# Windows


@given(spans=st.lists(st.integers(2, 40), min_size=1, max_size=5), count=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_windows_are_in_order_and_inside(spans, count, seed):
    video, index = vip.draw_windows(np.array(spans), count, np.random.default_rng(seed))
    first, now, after, goal = index.T
    assert video.shape == (count,)
    assert index.shape == (count, 4)
    assert (first >= 0).all()
    assert (first <= now).all()
    assert (after == now + 1).all()
    assert (after <= goal).all()
    assert (goal < np.array(spans)[video]).all()


def test_windows_follow_the_public_code_s_law():
    _, index = vip.draw_windows(np.array([4]), 20_000, np.random.default_rng(0))
    found = {tuple(row): n / 20_000 for row, n in zip(*np.unique(index, axis=0, return_counts=True), strict=True)}
    law = {
        (first, now, now + 1, goal): 1 / 2 / (3 - first) / (goal - first)
        for first in (0, 1)
        for goal in range(first + 1, 4)
        for now in range(first, goal)
    }
    assert sum(law.values()) == pytest.approx(1)
    assert found == pytest.approx(law, abs=0.02)


def test_two_frames_have_one_window():
    assert (vip.draw_windows(np.array([2]), 5, np.random.default_rng(0))[1] == [0, 0, 1, 1]).all()


def test_rest_at_the_end_is_not_drawn(tmp_path):
    frames = crossing(1, 6)
    np.save(tmp_path / "v.npy", np.concatenate([frames, np.repeat(frames[-1:], 30, 0)]))
    store = open_store(tmp_path, SIZE).stopped_at_rest()
    reward = vip.VIP(vip.Config(image_size=SIZE, windows=50))
    batch = vip.sample_windows(reward, store, np.random.default_rng(0))
    assert batch.tensors["frames"].shape == (200, 1, SIZE, SIZE, 3)
    assert batch.origin == "v frames [0, 1, 2, 3, 4, 5]"


# Values


def test_reward_by_hand():
    reward = plain(untrained(dim=2))
    reward.goals = torch.tensor([[0.0, 0.0]])
    frames = features((3, 4), (0, 4), (0, 1), (6, 8))
    assert reward.compare(frames).tolist() == pytest.approx([0, 1, 3, -9])
    reward.rise = torch.tensor(4.0)
    assert reward.scale == 4
    assert reward.distances(frames)[0].tolist() == pytest.approx([0, 0.25, 1, -1.25])


def test_several_goals_have_the_mean_of_their_values():
    reward = plain(untrained(dim=2))
    reward.goals = torch.tensor([[0.0, 0.0], [0.0, 10.0]])
    assert reward.potential(features((0, 4), (0, 12))).tolist() == pytest.approx([-5, -7])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Videos of 2 to 30 frames."""
    folder = tmp_path_factory.mktemp("mixed")
    for number, length in enumerate([2, 2, 3, 5, 9, 12, 17, 30]):
        np.save(folder / f"v{number}.npy", crossing(number, length))
    return folder


@pytest.fixture(scope="module")
def small(mixed):
    return tr.fit(mixed, method="vip", goals=3, history=1, dim=8, **SHORT)


def test_videos_of_any_length(small):
    assert small.goals.shape == (3, 8)
    assert np.isfinite(small.score(crossing(1, 2))).all()


def test_goals_are_of_training_videos(small, mixed):
    names = small.record["goals"]
    assert len(names) == 3
    assert not set(names) & set(small.record["validation_videos"])
    ends = [small.embed(small.windows(small.encode(np.load(mixed / f"{name}.npy"))))[-1] for name in names]
    assert torch.allclose(small.goals, torch.stack(ends), atol=1e-4)


def test_scale_is_what_demonstrations_sum_to(small, mixed):
    trained = [file for file in mixed.glob("*.npy") if file.stem not in small.record["validation_videos"]]
    sums = [small.score(np.load(file)).sum() for file in trained]
    assert small.scale == pytest.approx(np.abs(np.mean(sums)), rel=1e-3)


def test_values_that_do_not_rise_are_spoken_of(mixed):
    reward = plain(vip.VIP(vip.Config(image_size=SIZE, dim=2)))
    with torch.no_grad():
        reward.embedding.weight.zero_()  # all frames alike
    with pytest.warns(UserWarning, match="learned nothing"):
        reward.remember(open_store(mixed, SIZE))
    assert reward.scale > 0
    assert torch.isfinite(reward.distances(reward.encode(crossing(1, 4)))).all()


def test_one_video_alone(tmp_path):
    np.save(tmp_path / "v.npy", crossing(1, 8))
    with pytest.warns(UserWarning, match="nothing is left to validate on"):
        reward = tr.fit(tmp_path, method="vip", **{**SHORT, "epoch_frames": 64})
    assert reward.record["goals"] == ["v"]


# Validation and divergence


class Brightness(nn.Module):
    """The brightness of a picture, 0 to 255, as the first of 512 features."""

    def forward(self, images):
        scaled = images.flatten(1)[:, :256] * 0.229 + 0.485  # undoes what the encoder does to the red channel
        return torch.cat([255 * scaled.mean(1, keepdim=True), torch.zeros(len(images), 511)], 1)


@pytest.fixture
def grey(tmp_path):
    """Two videos of three grey pictures."""
    for name, levels in {"up": (0, 2, 5), "down": (20, 10, 3)}.items():
        np.save(tmp_path / f"{name}.npy", np.stack([np.full((16, 16, 3), level, np.uint8) for level in levels]))
    return open_store(tmp_path, 16)


def by_brightness(**options):
    reward = plain(untrained(dim=1, gamma=0.5, **options))
    reward.encoder.backbone = Brightness()
    return reward


def test_validation_orders_towards_goals_of_other_videos(grey):
    found = vip.validate_order(by_brightness(), grey)
    # up: 0, 2, 5 towards 3 is -3, -1, -2, a rank correlation of 1/2; down: 20, 10, 3 towards 5 is -15, -5, -2
    assert found["val_disorder"] == pytest.approx(1 - (0.5 + 1) / 2)
    # from their own goals they start 5 and 17 away; two steps that are left are worth 1 + 0.5
    assert found["val_inflation"] == pytest.approx((5 + 17) / 2 / 1.5, rel=1e-4)
    assert math.isfinite(found["val_loss"])


def test_validation_orders_towards_the_given_goal(grey, tmp_path):
    Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(tmp_path / "goal.png")
    found = vip.validate_order(by_brightness(goal=str(tmp_path / "goal.png")), grey)
    # up: 0, 2, 5 towards 9 rises; down: 20, 10, 3 towards 9 is -11, -1, -6, a rank correlation of 1/2
    assert found["val_disorder"] == pytest.approx(1 - (1 + 0.5) / 2)


def test_values_that_grow_too_large_are_a_divergence(grey):
    with pytest.raises(Diverged, match=r"7\.33 times the discounted steps.*--divergence 7\.3\b"):
        vip.validate_order(by_brightness(divergence=7.3), grey)
    vip.validate_order(by_brightness(divergence=7.4), grey)
    vip.validate_order(by_brightness(divergence=0.0), grey)
    reward = by_brightness(divergence=0.0)
    with torch.no_grad():
        reward.embedding.bias.fill_(float("nan"))
    with pytest.raises(Diverged, match="nan times"):
        vip.validate_order(reward, grey)


def test_a_loss_that_is_no_number_is_a_divergence():
    reward = untrained(dim=2)
    with torch.no_grad():
        reward.embedding.weight.fill_(float("inf"))
    with pytest.raises(Diverged, match="its loss is nan"):
        reward({"frames": torch.zeros(32, 1, 16, 16, 3, dtype=torch.uint8)})


@pytest.fixture(scope="module")
def diverged(videos, tmp_path_factory):
    """The paper's loss alone, with too large steps."""
    config = vip.Config(
        image_size=16, negatives=0, l1=0, l2=0,
        training=Training(epochs=1, epoch_frames=20_000, validate_every=320, lr=1e-2, device="cpu", patience=0),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("fit") / "training"
    with pytest.warns(UserWarning, match="vip diverged") as warned:
        reward = vip.fit(videos, config, folder)
    return reward, config, folder, str(warned[-1].message)


def test_a_divergence_ends_the_training_with_the_best_checkpoint(diverged, videos, tmp_path):
    reward, config, _, message = diverged
    training = reward.record["training"]
    assert training["stopped"] == message
    assert training["encoded_frames"] < 20_000
    assert training["kept"]["step"] < training["steps"]
    assert training["kept"]["val_inflation"] < config.divergence
    held = open_store([videos / f"{name}.npy" for name in reward.record["validation_videos"]], 16)
    again = vip.validate_order(reward, held.stopped_at_rest())
    assert again["val_disorder"] == pytest.approx(training["kept"]["val_disorder"], abs=1e-4)
    reward.save(tmp_path)
    assert tr.load(tmp_path).record["training"]["stopped"] == message


def test_a_diverged_training_does_not_go_on_when_resumed(diverged, videos):
    reward, config, folder, _ = diverged
    with pytest.warns(UserWarning, match="vip diverged"):
        again = vip.fit(videos, config, folder)
    assert again.record == reward.record
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in reward.state_dict().items())


def test_without_a_checkpoint_a_divergence_is_an_error(videos):
    with pytest.raises(UserError, match="vip diverged"):
        tr.fit(videos, method="vip", divergence=1e-6, **SHORT)


def test_any_network_may_end_its_training(tmp_path):
    """The hook in the training loop: raised by the loss, not by the validation."""

    class Slope(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(1.0))

        def forward(self, batch):
            if self.weight < 0.75:
                raise Diverged("too low")
            return self.weight

    def sample(rng):
        return Batch({"frames": torch.zeros(1, 1, 1, 3)}, "nothing")

    network = Slope()
    options = Training(
        epochs=1, epoch_frames=100, validate_every=1, lr=0.1, warmup_epochs=0, ema=0, weight_decay=0, device="cpu"
    )
    progress = train(network, sample, lambda network: {"height": network.weight.item()}, options, tmp_path / "t")
    assert progress.step == 3
    assert progress.stopped == "too low; the training ended at step 3 with the best weights, of step 3"
    assert network.weight.item() == pytest.approx(0.7, abs=1e-4)
    with pytest.raises(Diverged, match=r"^too low$"):
        train(Slope(), sample, None, options)


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": 0}, "--windows"),
        ({"dim": 0}, "--dim"),
        ({"negatives": 8}, "0 to 7"),
        ({"negatives": -1}, "0 to 7"),
        ({"gamma": 1.0}, "--gamma"),
        ({"gamma": 0.0}, "--gamma"),
        ({"l1": -1.0}, "--l1"),
        ({"l2": float("nan")}, "--l2"),
        ({"divergence": -1.0}, "--divergence"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        vip.Config(**options)


def test_paper_preset_is_vip_s_table():
    paper = preset_config("vip", "paper")
    assert (paper.encoder, paper.windows, paper.negatives, paper.dim) == ("resnet34", 32, 0, 1024)
    assert (paper.gamma, paper.l1, paper.l2, paper.training.optimizer) == (0.98, 0.001, 0.001, "adam")
    assert paper.training.epochs * paper.training.epoch_frames / (4 * paper.windows) == 10_000  # steps
