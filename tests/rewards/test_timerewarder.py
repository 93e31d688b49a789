"""TimeRewarder's own options: rewards by hand, ablations, history, presets, the backbones of transformers."""

import numpy as np
import pytest
import torch

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from timerewarder.data import hands
from timerewarder.data.hands import find_hands
from timerewarder.data.store import open_store
from timerewarder.errors import UserError
from timerewarder.evaluation.metrics import video_metrics
from timerewarder.rewards import preset_config
from timerewarder.rewards.fitting import order_correlation
from timerewarder.rewards.timerewarder import Config, PairHead, TimeRewarder, sample_pairs


def untrained(**options):
    torch.manual_seed(0)
    return TimeRewarder(Config(image_size=SIZE, **options)).eval()


@pytest.mark.parametrize("head", ["concat", "difference"])
@pytest.mark.parametrize("norm", [False, True])
def test_head_is_a_linear_layer_on_both(head, norm):
    config = Config(head=head, head_norm=norm)
    layer = PairHead(6, 4, config)
    before, after = torch.randn(5, 6), torch.randn(5, 6)
    joined = torch.cat([before, after], -1) if head == "concat" else after - before
    expected = layer.linear(layer.norm(joined) if norm else joined)
    assert torch.allclose(layer(before, after), expected, atol=1e-6)
    assert layer(before[:, None], after[None]).shape == (5, 5, 4)


def test_reward_is_the_decoded_distance_of_adjacent_frames():
    frames = crossing(0, 6)
    for mode, scale in (("halved", 0.5), ("full", 1.0)):
        reward = untrained(antisymmetric=mode)
        features = reward.encode(frames)
        forward, backward = (
            reward.code.decode(reward.head(a, b))
            for a, b in ((features[:-1], features[1:]), (features[1:], features[:-1]))
        )
        assert reward.score(frames)[1:] == pytest.approx(scale * (forward - backward).detach().numpy(), abs=1e-6)
    plain = untrained(antisymmetric="no")
    assert plain.score(frames)[1:] == pytest.approx(forward.detach().numpy(), abs=1e-6)


def test_antisymmetric_reward_of_standing_still_is_zero():
    frozen = np.repeat(crossing(0)[:1], 10, axis=0)
    assert untrained().score(frozen).sum() == 0
    assert untrained(antisymmetric="no").score(frozen).sum() != 0


def test_distances_agree_with_rewards():
    reward, frames = untrained(history=2), crossing(0, 9)
    distances = reward.distances(reward.encode(frames)).detach().numpy()
    assert np.diagonal(distances, 1) == pytest.approx(reward.score(frames)[1:], abs=1e-6)
    assert distances == pytest.approx(-distances.T, abs=1e-6)


def test_windows_are_padded_with_the_first_frame():
    reward, features = untrained(history=2), torch.arange(4.0)[:, None]
    assert reward.windows(features).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]


ABLATIONS = [
    {"pairing": "independent"},
    {"negatives": False, "antisymmetric": "no"},
    {"sampling": "uniform"},
    {"target": "regression"},
    {"bins": 8},
    {"support": "signed_sqrt"},
    {"length_norm": "dataset_max"},
    {"head": "difference", "head_norm": True, "head_dropout": 0.2},
    {"antisymmetric": "full"},
    {"shift": 3},
    {"history": 2},
    {"optimizer": "adam", "ema": 0.0},
]


@pytest.mark.parametrize("options", ABLATIONS, ids=lambda options: ",".join(options))
def test_every_option_learns(options, videos, heldout):
    reward = tr.fit(videos, **QUICK, **options)
    metrics = tr.evaluate(reward, heldout)
    # One order of a pair alone leaves (o_1, o_1) untrained: put last, it alone takes a third off a perfect order.
    assert metrics["voc_from_first"] > (0.8 if options.get("negatives", True) else 0.6)
    assert metrics["pair_mae"] < 0.35
    if not options.get("negatives", True):
        assert (reward.score(crossing(7)[::-1]) >= 0).all()  # cannot say that going back is bad


def test_dataset_max_makes_a_step_mean_the_same_everywhere(tmp_path):
    for index, length in enumerate([10, 40]):
        np.save(tmp_path / f"{index}.npy", crossing(index, length))
    with pytest.warns(UserWarning, match="nothing"):
        reward = tr.fit(tmp_path, length_norm="dataset_max", validation=0.0, **QUICK)
    assert reward.unit(10) == reward.unit(40) == 40
    short, long = (reward.score(crossing(i, n)).sum() for i, n in ((0, 10), (1, 40)))
    assert short < 0.5 * long


def test_history_disambiguates_there_and_back(tmp_path):
    """A single frame cannot tell the way there from the way back; a window can (paper, section 4.3)."""
    for seed in range(12):
        one_way = crossing(seed, 12)
        np.save(tmp_path / f"{seed}.npy", np.concatenate([one_way, one_way[-2::-1]]))
    test = crossing(50, 12)
    test = np.concatenate([test, test[-2::-1]])
    order = {}
    for history in (0, 2):
        reward = tr.fit(tmp_path, history=history, **{**QUICK, "epochs": 2.5})
        order[history] = order_correlation(reward.distances(reward.encode(test))[0].detach().numpy())
    assert order[0] < 0.6
    assert order[2] > 0.9


def test_presets():
    paper = preset_config("timerewarder", "paper")
    assert (paper.encoder, paper.pairing, paper.pairs, paper.bins) == ("clip-vit-b16", "independent", 16, 20)
    assert (paper.training.epochs, paper.training.warmup_epochs, paper.training.lr) == (100, 5, 2e-5)
    assert paper.training.epoch_frames == 20_000  # 10,000 pairs
    with pytest.raises(UserError, match="did you mean paper"):
        preset_config("timerewarder", "papers")


def write_tiny_clip(folder):
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(0)
    config = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8,
        projection_dim=24,
    )  # fmt: skip
    model = CLIPVisionModelWithProjection(config)
    model.save_pretrained(folder)
    return model.eval()


def test_clip_from_a_local_folder(videos, tmp_path):
    clip = write_tiny_clip(tmp_path / "clip")
    options = {**QUICK, "image_size": None, "epoch_frames": 300, "encoder": "clip-vit-b16"}
    reward = tr.fit(videos, tmp_path / "m", encoder_weights=str(tmp_path / "clip"), preset="paper", **options)
    assert reward.encoder.dim == 24
    frames = crossing(1, 5)
    untouched = TimeRewarder(Config(encoder="clip-vit-b16", encoder_weights=str(tmp_path / "clip")))
    mean, std = (torch.tensor(v) for v in ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)))
    pixels = ((torch.from_numpy(frames) / 255 - mean) / std).permute(0, 3, 1, 2)
    assert torch.allclose(untouched.encode(frames), clip(pixel_values=pixels).image_embeds, atol=1e-5)
    # A saved model needs the folder no more.
    for file in (tmp_path / "clip").iterdir():
        file.unlink()
    assert np.array_equal(tr.load(tmp_path / "m").score(frames), reward.score(frames))


def test_clip_that_cannot_be_had_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="--encoder-weights DIR, or use --encoder small"):
        TimeRewarder(Config(encoder="clip-vit-b16", encoder_weights=str(tmp_path / "nothing")))


@pytest.mark.parametrize(("encoder", "dim", "millions"), [("vit-b16", 512, 86), ("resnet34", 512, 21)])
def test_backbones_from_scratch(encoder, dim, millions, tmp_path):
    reward = TimeRewarder(Config(encoder=encoder, image_size=64))
    assert reward.encoder.dim == dim
    assert sum(p.numel() for p in reward.encoder.parameters()) // 10**6 == millions
    frames = crossing(0, 3)
    rewards = reward.score(frames)
    reward.save(tmp_path)
    assert np.array_equal(tr.load(tmp_path).score(frames), rewards)


def test_encoder_options_that_do_not_fit():
    with pytest.raises(UserError, match="--encoder-weights"):
        TimeRewarder(Config(encoder_weights="somewhere"))
    with pytest.raises(UserError, match="out of range"):
        TimeRewarder(Config(image_size=8))
    with pytest.raises(UserError, match="--history"):
        TimeRewarder(Config(history=-1))


def test_untrained_model_is_no_better_than_chance():
    """The metrics that are evidence do not reward an untrained network."""
    rows = [video_metrics(untrained(), untrained().encode(crossing(seed))) for seed in range(5)]
    assert abs(np.mean([row.pair_mae for row in rows]) - 1 / 3) < 0.2


def pushing(seed: int, together: bool = True) -> np.ndarray:
    """uint8 (T, SIZE, SIZE, 3): a hand crosses the picture; from half-way on an object goes with it, or stays."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(14, 20))
    frames = np.broadcast_to(rng.integers(0, 40, (1, SIZE, SIZE, 3)), (length, SIZE, SIZE, 3)).astype(np.uint8)
    top = int(rng.integers(0, 6))
    for t in range(length):
        left = round(t * (SIZE - 6) / (length - 1))
        frames[t, top : top + 6, left : left + 6] = (240, 200, 60)
        moved = max(0, left - 13) if together else 0
        frames[t, 20:28, 8 + moved : 14 + moved] = (60, 120, 240)
    return frames


def test_composites_make_the_model_look_at_the_object(tmp_path):
    for seed in range(24):
        np.save(tmp_path / f"{seed}.npy", pushing(seed))
    shares = []
    for composites in (0.0, 0.5):
        reward = tr.fit(tmp_path, composites=composites, **QUICK)
        real, mimed = (
            np.mean([reward.score(pushing(seed, together)).sum() for seed in range(100, 106)])
            for together in (True, False)
        )
        assert real > 0.8
        shares.append(mimed / real)
    assert shares[1] < 0.7 * shares[0], "a hand that goes the way alone is worth less"


@pytest.mark.parametrize("name", ["composites", "erase"])
def test_a_share_of_a_batch_are_changed(videos, name, monkeypatch):
    monkeypatch.setattr(hands, "STEPS", 30)  # how well hands are found does not matter
    store = find_hands(open_store(videos, SIZE))
    counts = {}
    for share in (0.0, 0.25, 1.0):
        changed, total = 0, 0
        for seed in range(20):
            batch = sample_pairs(untrained(**{name: share}), store, np.random.default_rng(seed)).tensors
            assert batch["gap"].abs().max() <= 1
            for frame in batch["frames"].numpy():
                whole = any(
                    (store.frames(video, np.arange(n)) == frame).all((1, 2, 3)).any()
                    for video, n in enumerate(store.lengths)
                )
                changed, total = changed + (not whole), total + 1
        counts[share] = changed / total
    assert counts[0.0] == 0
    assert 0 < counts[0.25] < 0.5 * counts[1.0]


def test_erasing_changes_no_gap(videos):
    store = open_store(videos, SIZE)
    plain, erased = (
        sample_pairs(untrained(erase=share), store, np.random.default_rng(5)).tensors["gap"] for share in (0.0, 1.0)
    )
    assert torch.equal(plain, erased)


@pytest.mark.parametrize("options", [{"composites": 1.5}, {"composites": 0.5, "negatives": False}, {"erase": -0.1}])
def test_augmentations_that_cannot_be(options):
    with pytest.raises(UserError, match=f"--{next(iter(options))}"):
        Config(**options)
