import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from timerewarder.data.store import open_store
from timerewarder.errors import UserError
from timerewarder.rewards.fitting import order_correlation
from timerewarder.rewards.online import Seen
from timerewarder.rewards.rank2reward import Config, Rank2Reward, mixer, sample_mixed, sample_pairs

SHORT = {**QUICK, "epoch_frames": 1500, "validate_every": 500}


def wandering(seed, length=16):
    """The square stays in the left third of the picture."""
    rng = np.random.default_rng(seed)
    return crossing(seed, 30)[rng.integers(0, 10, size=length)]


@pytest.fixture(scope="module")
def fitted(videos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rank2reward") / "model"
    tr.fit(videos, folder, method="rank2reward", online_lr=1e-3, online_batch=64, **SHORT)
    return folder


@pytest.fixture
def reward(fitted):
    """Before it has seen an agent; each test gets its own."""
    return tr.load(fitted)


@pytest.fixture(scope="module")
def taught(fitted):
    """After some episodes of an agent that does not get far; only looked at."""
    reward, rng = tr.load(fitted), np.random.default_rng(0)
    for seed in range(600, 608):
        reward.observe(wandering(seed), rng)
    return reward


def clear(**options):
    """A reward of features (u, d, 0, ...) whose rank is u and whose discriminator's logit is d."""
    reward = Rank2Reward(Config(image_size=16, hidden=2, **options)).eval()
    for parameter in (*reward.head.parameters(), *reward.discriminator.parameters()):
        parameter.data.zero_()
    reward.head.weight.data[0, 0] = 1
    first, _, last = reward.discriminator.layers
    first.weight.data[0, 1], first.weight.data[1, 1] = 1, -1
    last.weight.data[0] = torch.tensor([1, -1]) / 1.01  # leaky(d) - leaky(-d) = 1.01 d
    return reward


def features(ranks, logits):
    rows = torch.zeros(len(ranks), 512)
    rows[:, 0], rows[:, 1] = torch.tensor(ranks), torch.tensor(logits)
    return rows


def arriving(after):
    """What the agent saw; the discriminator looks at nothing but where it arrived."""
    nothing = torch.full_like(after, math.nan)
    return Seen(nothing, nothing, after)


def sigmoid(x):
    return math.exp(-np.logaddexp(0, -x))


def clipped(probability):
    return min(max(probability, 1e-5), 1 - 1e-5)


# The reward

REALS = st.floats(-40, 40, width=32)


@pytest.fixture(scope="module")
def legible():
    return clear()


@given(st.lists(st.tuples(REALS, REALS), min_size=1, max_size=6))
def test_formula_with_clipping(legible, moments):
    reward, (ranks, logits) = legible, zip(*moments, strict=True)
    reward.discriminator.trained.fill_(False)
    of_rank = [math.log(clipped(sigmoid(u))) for u in ranks]
    of_discriminator = [math.log(clipped(sigmoid(d))) - math.log(1 - clipped(sigmoid(d))) for d in logits]
    with torch.no_grad():
        alone = reward.compare(features(ranks, logits)).tolist()
        reward.discriminator.trained.fill_(True)
        both = reward.compare(features(ranks, logits)).tolist()
    assert alone == pytest.approx([0, *of_rank[1:]], abs=1e-4)
    assert both == pytest.approx(
        [0, *(a + b for a, b in zip(of_rank[1:], of_discriminator[1:], strict=True))], abs=1e-4
    )


def test_the_bounds_of_the_reward():
    reward = clear()
    reward.discriminator.trained.fill_(True)
    with torch.no_grad():
        found = reward.compare(features([0.0, 90.0, -90.0, 0.0], [0.0, 90.0, -90.0, 0.0])).tolist()
    most, least = math.log(1 - 1e-5), math.log(1e-5)
    assert found == pytest.approx([0, most + (most - least), least + (least - most), math.log(0.5)], abs=1e-4)


# The ranker


@pytest.mark.parametrize("ranking", ["pairs", "frames"])
def test_loss_worked_by_hand(ranking):
    reward = Rank2Reward(Config(image_size=SIZE, ranking=ranking)).eval()
    frames, later = crossing(1, 6), [1.0, 0.0, 0.3]
    with torch.no_grad():
        loss = reward({"frames": torch.from_numpy(frames)[:, None], "later": torch.tensor(later)}).item()
        u = reward.rank(reward.encode(frames)).double().numpy().reshape(3, 2)
    expected = []
    for (a, b), y in zip(u, later, strict=True):
        if ranking == "pairs":
            expected.append(-y * np.log(sigmoid(b - a)) - (1 - y) * np.log(sigmoid(a - b)))
        else:
            expected.append(-y * np.log(sigmoid(b)) - (1 - y) * np.log(sigmoid(-b)))
            expected.append(-(1 - y) * np.log(sigmoid(a)) - y * np.log(sigmoid(-a)))
    assert loss == pytest.approx(np.mean(expected), abs=1e-5)


def clocks(folder, lengths):
    """Videos whose frames say which video and which moment they are of."""
    for number, length in enumerate(lengths):
        frames = np.zeros((length, 16, 16, 3), np.uint8)
        frames[..., 0], frames[..., 1] = 20 * number, 10 * np.arange(length)[:, None, None]
        np.save(folder / f"{number}.npy", frames)
    return open_store(folder, 16)


def test_pairs_are_of_one_video_and_uniform(tmp_path):
    store = clocks(tmp_path, (4, 2))
    reward = Rank2Reward(Config(image_size=16, pairs=8000))
    batch = sample_pairs(reward, store, np.random.default_rng(0))
    frames, later = batch.tensors["frames"], batch.tensors["later"].numpy()
    assert frames.shape == (16000, 1, 16, 16, 3)
    assert batch.encoded_frames == 16000
    video, moment = (frames[:, 0, 0, 0, k].numpy().reshape(-1, 2).astype(int) // s for k, s in ((0, 20), (1, 10)))
    assert (video[:, 0] == video[:, 1]).all()
    assert np.array_equal(later, np.select([moment[:, 1] > moment[:, 0], moment[:, 1] < moment[:, 0]], [1, 0], 0.5))
    for number, cells in ((0, 16), (1, 4)):
        of_video = moment[video[:, 0] == number]
        assert len(of_video) == pytest.approx(4000, abs=4 * np.sqrt(2000))
        counts = np.unique(of_video, axis=0, return_counts=True)[1]
        assert len(counts) == cells
        deviation = np.sqrt(len(of_video) * (1 / cells) * (1 - 1 / cells))
        assert np.abs(counts - len(of_video) / cells).max() < 4 * deviation


def test_moments_after_the_clock_stopped_rank_alike(tmp_path):
    store = dataclasses.replace(clocks(tmp_path, (5,)), spans=np.array([3]))
    reward = Rank2Reward(Config(image_size=16, pairs=200))
    batch = sample_pairs(reward, store, np.random.default_rng(0))
    moment = batch.tensors["frames"][:, 0, 0, 0, 1].numpy().reshape(-1, 2) // 10
    resting = (moment >= 2).all(1)
    assert resting.any()
    assert (batch.tensors["later"].numpy()[resting] == 0.5).all()


@given(st.floats(0.1, 5), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_mixing_labels_is_mixing_losses(a, count, seed):
    rng = np.random.default_rng(seed)
    logits, labels = torch.from_numpy(rng.normal(size=count)), torch.from_numpy(rng.integers(0, 2, count).astype(float))
    mixed = mixer(a, count, np.random.default_rng(seed))(labels)
    repeated = np.random.default_rng(seed)
    share, partner = repeated.beta(a, a), repeated.permutation(count)
    one, other = (F.binary_cross_entropy_with_logits(logits, each) for each in (labels, labels[partner]))
    assert F.binary_cross_entropy_with_logits(logits, mixed).item() == pytest.approx(
        (share * one + (1 - share) * other).item()
    )
    assert mixed.mean().item() == pytest.approx(labels.mean().item())


def test_mixup_mixes_pairs_with_pairs_and_their_labels(tmp_path):
    store = clocks(tmp_path, (6, 9))
    reward = Rank2Reward(Config(image_size=16, pairs=5, mixup=0.7))
    mixed = sample_mixed(reward, store, np.random.default_rng(3)).tensors
    repeated = np.random.default_rng(3)
    plain = sample_pairs(reward, store, repeated).tensors
    share, partner = repeated.beta(0.7, 0.7), repeated.permutation(5)
    assert 0.01 < share < 0.99
    assert not np.array_equal(partner, np.arange(5))
    pairs = plain["frames"].unflatten(0, (5, 2)).double()
    expected = (share * pairs + (1 - share) * pairs[partner]).flatten(0, 1)
    assert mixed["frames"].dtype == torch.uint8
    assert (mixed["frames"] - expected).abs().max() <= 0.5 + 1e-3
    expected = share * plain["later"] + (1 - share) * plain["later"][partner]
    assert torch.allclose(mixed["later"].double(), expected.double(), atol=1e-6)


def test_without_mixup_pictures_stay_as_they_are(tmp_path):
    store = clocks(tmp_path, (6, 9))
    reward = Rank2Reward(Config(image_size=16, mixup=0))
    mixed, plain = (sample(reward, store, np.random.default_rng(3)).tensors for sample in (sample_mixed, sample_pairs))
    assert all(torch.equal(mixed[name], plain[name]) for name in plain)


def test_all_that_the_fit_trains_gets_a_gradient():
    """Distributed training waits for the gradient of every parameter that asks for one."""
    reward = Rank2Reward(Config(image_size=SIZE)).train()
    reward({"frames": torch.from_numpy(crossing(1, 6))[:, None], "later": torch.tensor([1.0, 0.0, 0.3])}).backward()
    assert all((p.grad is not None) == p.requires_grad for p in reward.parameters())
    assert all(p.grad is None for p in reward.discriminator.parameters())


def test_ranks_follow_time_and_are_0_on_average(reward):
    with torch.no_grad():
        for seed in range(700, 705):
            assert order_correlation(reward.rank(reward.encode(crossing(seed))).numpy()) > 0.9
        assert reward.rank(reward.demonstrations).mean().item() == pytest.approx(0, abs=1e-4)


def test_a_frame_alone_learns_its_place(videos):
    """Of frames drawn uniformly, a share of (t + 1/2) / T comes before frame t, itself counted half."""
    reward = tr.fit(videos, method="rank2reward", ranking="frames", mixup=0.0, **SHORT)
    with torch.no_grad():
        places = torch.sigmoid(reward.rank(reward.encode(crossing(700, 15)))).numpy()
    assert np.abs(places - (np.arange(15) + 0.5) / 15).mean() < 0.15


# The discriminator


def test_online_loss_worked_by_hand():
    reward = clear(online_mixup=0.0)
    reward.demonstrations, reward.lengths = features([0.0, 0.0], [9.0, 2.0]), torch.tensor([2])
    agent = features([0.0] * 3, [-1.0] * 3)
    loss = reward.online_loss(arriving(agent), np.random.default_rng(0))
    assert loss.item() == pytest.approx((math.log1p(math.exp(-2)) + math.log1p(math.exp(-1))) / 2, abs=1e-6)


def test_online_loss_with_mixup_worked_by_hand():
    reward = clear(online_mixup=0.5)
    reward.demonstrations, reward.lengths = features([0.0, 0.0], [9.0, 2.0]), torch.tensor([2])
    agent = features([0.0] * 3, [-1.0] * 3)
    loss = reward.online_loss(arriving(agent), np.random.default_rng(5))
    repeated = np.random.default_rng(5)
    repeated.integers(0, 1, size=3)  # the only step of the demonstration
    share, partner = repeated.beta(0.5, 0.5), repeated.permutation(6)
    d, y = np.array([2.0] * 3 + [-1.0] * 3), np.array([1.0] * 3 + [0.0] * 3)
    d, y = share * d + (1 - share) * d[partner], share * y + (1 - share) * y[partner]
    assert loss.item() == pytest.approx(np.mean(np.logaddexp(0, d) - y * d), abs=1e-5)


def test_rank_alone_before_the_first_step(reward):
    frames = crossing(300)
    with torch.no_grad():
        expected = F.logsigmoid(reward.rank(reward.encode(frames))).numpy()
    assert not reward.discriminator.trained
    assert np.allclose(reward.score(frames)[1:], expected[1:], atol=1e-6)
    reward.config = dataclasses.replace(reward.config, online_updates=0)
    assert reward.observe(wandering(600), np.random.default_rng(0)) == {}
    assert not reward.discriminator.trained
    reward.config = dataclasses.replace(reward.config, online_updates=1)
    assert reward.observe(wandering(600), np.random.default_rng(0))["reward_loss"] > 0
    assert reward.discriminator.trained
    assert not np.allclose(reward.score(frames)[1:], expected[1:], atol=1e-6)


def test_tells_the_expert_from_the_agent(taught):
    with torch.no_grad():
        logits = {
            maker: [taught.discriminator(taught.encode(maker(seed))).mean().item() for seed in range(620, 626)]
            for maker in (crossing, wandering)
        }
    assert np.mean(logits[crossing]) > np.mean(logits[wandering]) + 0.5
    assert min(taught.score(crossing(s))[1:].mean() for s in range(620, 626)) > max(
        taught.score(wandering(s))[1:].mean() for s in range(620, 626)
    )


def test_reversed_is_still_worth_less(taught):
    for seed in range(620, 626):
        frames = crossing(seed)
        assert taught.score(frames[::-1]).sum() < taught.score(frames).sum()


def test_learning_leaves_the_ranker_and_the_encoder_alone(reward):
    before = {name: tensor.clone() for name, tensor in reward.state_dict().items()}
    reward.observe(wandering(600), np.random.default_rng(0))
    changed = {name for name, tensor in reward.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.startswith("discriminator.")}
    for parameter in (*reward.encoder.parameters(), *reward.head.parameters()):
        assert parameter.grad is None


def test_streamed_and_loaded_as_scored(taught, tmp_path):
    frames = crossing(300)
    expected = taught.score(frames)
    stream = taught.stream()
    stream.reset(frames[0])
    assert np.allclose([stream.step(frame) for frame in frames[1:]], expected[1:], atol=1e-5)
    taught.save(tmp_path / "model")
    assert np.array_equal(tr.load(tmp_path / "model").score(frames), expected)


def test_restored_equals_uninterrupted(fitted):
    whole, stopped, resumed = (tr.load(fitted) for _ in range(3))
    episodes = [wandering(seed) for seed in range(600, 603)]
    for number, frames in enumerate(episodes):
        whole.observe(frames, np.random.default_rng(number))
        if number == 0:
            stopped.observe(frames, np.random.default_rng(number))
            assert resumed.discriminator.trained.item() is False
            resumed.restore_online(stopped.online_state())
            assert resumed.discriminator.trained.item() is True
            assert np.array_equal(resumed.score(frames), stopped.score(frames))
        else:
            resumed.observe(frames, np.random.default_rng(number))
    assert np.array_equal(whole.score(crossing(300)), resumed.score(crossing(300)))


@pytest.mark.parametrize(
    "options",
    [
        {"pairs": 0}, {"hidden": 0}, {"online_batch": 0}, {"online_updates": -1}, {"online_lr": 0.0},
        {"online_lr": math.nan}, {"mixup": -1.0}, {"mixup": math.nan}, {"online_mixup": math.inf},
    ],
)  # fmt: skip
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match=f"--{next(iter(options)).replace('_', '-')}"):
        Config(**options)
