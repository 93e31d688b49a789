"""What every method must do. A new method is tested by its line in METHODS."""

import json

import numpy as np
import pytest
import torch

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from tests.rewards.chat_server import ChatServer
from timerewarder.errors import UserError
from timerewarder.models.checkpoint import FORMAT, load_tensors, save_tensors
from timerewarder.rewards import METHODS


@pytest.fixture(scope="module")
def chat_server():
    server = ChatServer()
    yield server
    server.close()


@pytest.fixture(scope="module", params=METHODS)
def reward(request, videos, chat_server):
    asking = {"model": "m", "base_url": chat_server.url, "image_size": SIZE, "examples": 1, "max_calls": 10_000}
    return tr.fit(videos, method=request.param, **(asking if request.param == "gvl" else QUICK))


@pytest.fixture(params=[2, 3, 17])
def frames(request):
    return crossing(300, request.param)


def test_shape_and_type(reward, frames):
    rewards = reward.score(frames)
    assert rewards.shape == (len(frames),)
    assert rewards.dtype == np.float32
    assert rewards[0] == 0
    assert np.isfinite(rewards).all()


def test_score_is_pure(reward, frames):
    before, weights = frames.copy(), {name: t.clone() for name, t in reward.state_dict().items()}
    assert np.array_equal(reward.score(frames), reward.score(frames))
    assert np.array_equal(before, frames)
    assert all(torch.equal(weights[name], t) for name, t in reward.state_dict().items())


def test_streamed_equals_scored(reward, frames):
    if not reward.streams:
        with pytest.raises(UserError, match="whole episodes"):
            reward.stream()
        return
    stream = reward.stream()
    for _ in range(2):  # a second episode starts afresh
        stream.reset(frames[0])
        streamed = [0.0] + [stream.step(frame) for frame in frames[1:]]
        assert np.allclose(streamed, reward.score(frames), atol=1e-5)


def test_each_frame_is_encoded_once(reward, frames):
    encoded = []
    handle = reward.encoder.register_forward_hook(lambda _module, inputs, _out: encoded.append(len(inputs[0])))
    reward.score(frames)
    if reward.streams:
        stream = reward.stream()
        stream.reset(frames[0])
        stream.step(frames[1])
    handle.remove()
    assert encoded == [len(frames), 1, 1][: 1 + 2 * reward.streams]


def test_saved_and_loaded_scores_identically(reward, frames, tmp_path):
    reward.save(tmp_path / "model")
    loaded = tr.load(tmp_path / "model")
    assert type(loaded) is type(reward)
    assert loaded.config == reward.config
    assert loaded.record == reward.record
    assert np.array_equal(loaded.score(frames), reward.score(frames))


def test_progress_is_rewarded_and_going_back_is_not(reward):
    if not reward.is_ordered:
        pytest.skip(f"{reward.method} does not look at the order of frames")
    for seed in range(400, 405):
        frames = crossing(seed)
        forward, backward = reward.score(frames).sum(), reward.score(frames[::-1]).sum()
        assert backward < forward
        if reward.is_value:
            assert forward > 0.5 * reward.scale
            assert backward < -0.3 * reward.scale


def test_orders_held_out_videos(reward, heldout, failures):
    metrics = tr.evaluate(reward, heldout, failures)
    assert 0 <= metrics["success_auroc"] <= 1
    if not reward.is_value:
        assert metrics["voc"] is metrics["voc_reversed"] is metrics["frozen_sum"] is None
        return
    assert metrics["voc"] > 0.95
    assert metrics["voc_from_first"] > 0.95
    assert metrics["voc_reversed"] < -0.95
    assert metrics["success_auroc"] > 0.95
    assert metrics["frozen_sum"] < 0.1 * reward.scale


def test_black_frames_are_finite(reward):
    assert np.isfinite(reward.score(np.zeros((5, 40, 60, 3), np.uint8))).all()


def test_frames_of_any_size(reward):
    assert reward.score(crossing(1, 6, size=90)[:, :70]).shape == (6,)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (np.zeros((4, 8, 8, 3), np.float32), "uint8"),
        (np.zeros((4, 3, 8, 8), np.uint8), "channels"),
        (np.zeros((8, 8, 3), np.uint8), "time axis"),
        (np.zeros((0, 8, 8, 3), np.uint8), "frame"),
    ],
)
def test_bad_frames_are_refused(reward, frames, message):
    with pytest.raises(UserError, match=message):
        reward.score(frames)


def test_stream_needs_a_first_frame(reward):
    if not reward.streams:
        return
    with pytest.raises(UserError, match="reset"):
        reward.stream().step(crossing(1)[0])


def test_distance_matrix(reward):
    frames = crossing(500, 15)
    distances = reward.distances(reward.encode(frames))
    if distances is None:
        return
    truth = (torch.arange(15)[None, :] - torch.arange(15)[:, None]) / 14
    assert distances.shape == (15, 15)
    assert (distances - truth).abs().mean() < 0.15


def test_bad_checkpoints_are_refused(reward, tmp_path):
    reward.save(tmp_path)
    description = json.loads((tmp_path / "config.json").read_text())

    def refused(message, **changes):
        (tmp_path / "config.json").write_text(json.dumps({**description, **changes}))
        with pytest.raises(UserError, match=message):
            tr.load(tmp_path)

    refused("upgrade", format=FORMAT + 1)
    refused("unknown method", method="magic")
    refused("unknown key 'colour'", config={**description["config"], "colour": "red"})
    weights = tmp_path / "weights.safetensors"
    tensors = load_tensors(weights)
    save_tensors(weights, {**tensors, "stray": torch.zeros(1)})
    refused("does not fit")
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())
    save_tensors(weights, {**tensors, name: torch.full_like(tensors[name], torch.nan)})
    refused(f"no number, in {name}: copy it again")
    (tmp_path / "weights.safetensors").write_bytes(b"cut")
    with pytest.raises(UserError, match="cannot be read"):
        tr.load(tmp_path)
    (tmp_path / "weights.safetensors").unlink()
    with pytest.raises(UserError, match="missing"):
        tr.load(tmp_path)
    with pytest.raises(UserError, match="no model"):
        tr.load(tmp_path / "nowhere")
