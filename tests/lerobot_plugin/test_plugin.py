"""The plug-in does what LeRobot asks of a reward model, and gives the rewards of `score`."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import timerewarder as tr
from tests.conftest import crossing
from tests.hub_server import python, serving
from tests.lerobot_plugin.conftest import STANDIN
from timerewarder.errors import UserError
from timerewarder.rewards import METHODS

ROOT = Path(__file__).parents[2]
TOP = "observation.images.top"


@pytest.fixture
def plugin():
    from lerobot.configs.parser import load_plugin

    load_plugin("timerewarder.lerobot_plugin")
    return sys.modules["timerewarder.lerobot_plugin"]


@pytest.fixture
def reward_model(plugin, model):
    from lerobot.rewards import make_reward_model, make_reward_model_config

    return make_reward_model(make_reward_model_config("timerewarder", model=str(model), device="cpu"))


def windows(frames, deltas):
    """All windows of an episode as LeRobot reads them: float (T, K, 3, H, W) in [0, 1], and which are repetitions."""
    moments = np.arange(len(frames))[:, None] + np.asarray(deltas)[None, :]
    pictures = torch.from_numpy(frames[np.clip(moments, 0, None)]).permute(0, 1, 4, 2, 3)
    return {TOP: pictures.float() / 255, f"{TOP}_is_pad": torch.from_numpy(moments < 0)}


def test_found_by_its_names(plugin):
    from lerobot.configs.rewards import RewardModelConfig
    from lerobot.rewards import get_reward_model_class, make_reward_model_config

    assert RewardModelConfig.get_choice_class("timerewarder") is plugin.TimeRewarderConfig
    assert get_reward_model_class("timerewarder") is plugin.TimeRewarderRewardModel
    config = make_reward_model_config("timerewarder", image_key=TOP)
    assert (config.type, config.image_key) == ("timerewarder", TOP)


def test_asks_for_the_frames_that_a_step_needs(plugin, model):
    assert plugin.TimeRewarderConfig(model=str(model)).observation_delta_indices == [-2, -1, 0]  # history 1
    assert plugin.TimeRewarderConfig().observation_delta_indices == [-1, 0]


def test_rewards_are_those_of_score(reward_model, model):
    frames = crossing(300, 12)
    batch = windows(frames, reward_model.config.observation_delta_indices)
    rewards = reward_model.compute_reward(batch)
    assert (rewards.shape, rewards.dtype, rewards.requires_grad) == ((12,), torch.float32, False)
    assert np.allclose(rewards.numpy(), tr.load(model).score(frames), rtol=0, atol=1e-5)
    assert rewards[0] == 0
    assert rewards[1:].abs().min() > 1e-4  # a shift by one frame would show


def test_every_form_of_the_frames(reward_model):
    batch = windows(crossing(301, 6), (-2, -1, 0))
    expected = reward_model.compute_reward(batch)
    bytes_ = (batch[TOP] * 255).round().to(torch.uint8)
    for frames in (bytes_, bytes_.movedim(2, -1), batch[TOP].double(), batch[TOP].requires_grad_()):
        assert torch.equal(reward_model.compute_reward({**batch, TOP: frames}), expected)
    one = {key: value[3] for key, value in batch.items()}  # an item of a dataset
    assert torch.allclose(reward_model.compute_reward(one), expected[3:4], rtol=0, atol=1e-5)
    bare = reward_model.compute_reward({TOP: batch[TOP]})  # nobody says that frame 0 begins an episode
    assert torch.equal(bare[1:], expected[1:])


def test_only_the_last_frames_of_a_long_window_matter(reward_model):
    long = windows(crossing(302, 10), range(-6, 1))
    short = {TOP: long[TOP][:, -3:], f"{TOP}_is_pad": long[f"{TOP}_is_pad"][:, -3:]}
    assert torch.allclose(reward_model.compute_reward(long), reward_model.compute_reward(short), rtol=0, atol=1e-5)


def test_first_frame_of_the_window_stands_for_that_of_the_episode(plugin):
    method = METHODS["from-init"]
    reward = method.reward(method.config(image_size=32)).eval()
    frames = crossing(303, 5)
    whole = plugin.TimeRewarderRewardModel(plugin.TimeRewarderConfig(device="cpu"), reward)
    batch = {"observation.image": torch.from_numpy(frames)[None].permute(0, 1, 4, 2, 3)}
    assert whole.compute_reward(batch).item() == pytest.approx(float(reward.score(frames)[-1]), abs=1e-5)


def test_saved_and_loaded_as_lerobot_does(plugin, reward_model, model, tmp_path):
    from lerobot.rewards import make_reward_model, make_reward_model_config

    reward_model.config.image_key = TOP
    reward_model.save_pretrained(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {"config.json", "model.safetensors"}
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (saved["type"], saved["model"], saved["image_key"]) == ("timerewarder", None, TOP)
    moved = shutil.move(tmp_path / "saved", tmp_path / "moved")  # nothing in it depends on where it or the model was

    batch = windows(crossing(304, 8), (-2, -1, 0))
    expected = reward_model.compute_reward(batch)
    back = plugin.TimeRewarderRewardModel.from_pretrained(moved)
    assert not back.training
    assert back.config.image_key == TOP
    assert back.config.observation_delta_indices == [-2, -1, 0]
    assert torch.equal(back.compute_reward(batch), expected)

    config = make_reward_model_config("timerewarder", pretrained_path=str(moved), device="cpu")
    made = make_reward_model(config, dataset_stats={}, dataset_meta=None)
    assert torch.equal(made.compute_reward(batch), expected)

    ours = tr.load(moved)  # and by timerewarder
    assert np.array_equal(ours.score(crossing(304, 8)), tr.load(model).score(crossing(304, 8)))
    assert ours.record == tr.load(model).record
    ours.save(tmp_path / "ours")
    for name in ("config.json", "weights.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (model / name).read_bytes()


def test_a_model_of_timerewarder_is_a_pretrained_one(plugin, reward_model, model):
    batch = windows(crossing(305, 6), (-2, -1, 0))
    loaded = plugin.TimeRewarderRewardModel.from_pretrained(str(model), config=plugin.TimeRewarderConfig(device="cpu"))
    assert torch.equal(loaded.compute_reward(batch), reward_model.compute_reward(batch))
    assert plugin.TimeRewarderRewardModel.from_pretrained(model).config.image_key is None


FROM_THE_HUB = """
import sys
import numpy as np
import torch
sys.path[:0] = sys.argv[1:2]
from timerewarder.lerobot_plugin import TimeRewarderRewardModel
from timerewarder import load

batch = {"observation.image": torch.from_numpy(np.load(sys.argv[2])).permute(0, 3, 1, 2)[None]}
for name in ("me/of-lerobot", "me/of-timerewarder"):
    model = TimeRewarderRewardModel.from_pretrained(name, revision="main")
    print(model.compute_reward(batch).item(), load(name).score(np.load(sys.argv[2]))[-1])
"""


def test_from_the_hub(reward_model, model, real_lerobot, tmp_path):
    frames = crossing(309, 3)
    np.save(tmp_path / "frames.npy", frames)
    reward_model.save_pretrained(tmp_path / "saved")
    with serving() as server:
        for name, folder in (("me/of-lerobot", tmp_path / "saved"), ("me/of-timerewarder", model)):
            server.repos[name] = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        path = str(tmp_path) if real_lerobot else str(STANDIN)
        finished = python(tmp_path, server.address, "-c", FROM_THE_HUB, path, tmp_path / "frames.npy")
    rewards = np.array(finished.stdout.split()[-4:], float)
    assert np.allclose(rewards, tr.load(model).score(frames)[-1], rtol=0, atol=1e-5)


def test_both_kinds_of_folder_in_one(plugin, reward_model, model, tmp_path):
    shutil.copytree(model, tmp_path / "both")
    other = tr.load(model)
    for parameter in other.parameters():
        parameter.data.zero_()
    wrapped = plugin.TimeRewarderRewardModel(plugin.TimeRewarderConfig(), other)
    wrapped.save_pretrained(tmp_path / "both")  # over a model of timerewarder: what was written last counts
    assert all((parameter == 0).all() for parameter in tr.load(tmp_path / "both").parameters())
    tr.load(model).save(tmp_path / "both")
    assert any((parameter != 0).any() for parameter in tr.load(tmp_path / "both").parameters())


def test_weights_are_strict(plugin, reward_model, tmp_path):
    reward_model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    saved["fitted"]["config"]["history"] = 0
    (tmp_path / "config.json").write_text(json.dumps(saved))
    with pytest.raises(UserError, match=r"model\.safetensors does not fit"):
        plugin.TimeRewarderRewardModel.from_pretrained(tmp_path, strict=False)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing"):
        plugin.TimeRewarderRewardModel.from_pretrained(tmp_path)


def test_is_not_trained_by_lerobot(reward_model):
    assert not reward_model.is_trainable
    with pytest.raises(NotImplementedError):
        reward_model.forward({})
    reward_model.reset()


def test_processors_leave_frames_as_they_are(plugin, reward_model):
    from lerobot.rewards import make_reward_pre_post_processors

    stats = {TOP: {"mean": torch.full((3, 1, 1), 0.5), "std": torch.full((3, 1, 1), 0.1)}}
    before, after = make_reward_pre_post_processors(reward_model.config, dataset_stats=stats)
    batch = windows(crossing(306, 5), (-2, -1, 0))
    processed = before({**batch, "index": torch.arange(5), "action": torch.zeros(5, 4)})
    for key, value in batch.items():
        assert torch.equal(processed[key], value)
    rewards = reward_model.compute_reward(processed)
    assert torch.equal(after(rewards), reward_model.compute_reward(batch))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: {TOP: images[:, 0]}, r"at least 2 frames, not \(2, 3, 32, 32\)"),
        (lambda images: {TOP: images[:, :1]}, r"at least 2 frames, not \(2, 1, 3, 32, 32\)"),
        (lambda images: {TOP: images[:, :, :1]}, "3 colours"),
        (lambda images: {TOP: images * 255}, r"lie in \[0, 1\], not 0 to 2"),
        (lambda images: {TOP: (images - 0.5) / 0.1}, r"lie in \[0, 1\], not -5"),
        (lambda images: {TOP: images * float("nan")}, r"lie in \[0, 1\]"),
        (lambda images: {TOP: images.long()}, "uint8, not torch.int64"),
        (lambda images: {TOP: images, "observation.images.wrist": images}, r"several cameras \(.*top, .*wrist\)"),
        (lambda images: {"observation.state": images}, "no camera"),
    ],
)
def test_says_what_is_wrong_with_a_batch(reward_model, change, message):
    images = windows(crossing(307, 3), (-1, 0))[TOP][1:]
    with pytest.raises(UserError, match=message) as raised:
        reward_model.compute_reward(change(images))
    assert "\n" not in str(raised.value)


def test_camera_is_chosen(reward_model):
    batch = windows(crossing(308, 4), (-2, -1, 0))
    both = {**batch, "observation.images.wrist": torch.zeros_like(batch[TOP])}
    reward_model.config.image_key = TOP
    assert torch.equal(reward_model.compute_reward(both), reward_model.compute_reward(batch))
    reward_model.config.image_key = "observation.images.front"
    with pytest.raises(UserError, match=r"no observation\.images\.front: .* observation\.images\.top, observation"):
        reward_model.compute_reward(both)


def test_refuses_models_that_it_cannot_serve(plugin, tmp_path):
    with pytest.raises(UserError, match=r"set --reward_model\.model"):
        plugin.TimeRewarderRewardModel(plugin.TimeRewarderConfig())
    with pytest.raises(UserError, match="there is no model at"):
        plugin.TimeRewarderRewardModel(plugin.TimeRewarderConfig(model=str(tmp_path / "nothing")))
    method = METHODS["ot"]
    with pytest.raises(UserError, match="ot rewards whole episodes"):
        plugin.TimeRewarderRewardModel(plugin.TimeRewarderConfig(), method.reward(method.config(image_size=32)))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.reward.streams])
def test_configuration_of_every_method_survives(plugin, name, tmp_path):
    from lerobot.configs.rewards import RewardModelConfig

    method = METHODS[name]
    reward = method.reward(method.config(image_size=32))
    config = plugin.TimeRewarderConfig(fitted=reward.description)
    config.save_pretrained(tmp_path)
    back = RewardModelConfig.from_pretrained(tmp_path)
    assert back.fitted == json.loads(json.dumps(reward.description))
    assert dataclasses.replace(back, fitted={}) == dataclasses.replace(config, fitted={})


def test_example_of_the_docs(model, tmp_path, monkeypatch):
    """The one that needs no dataset."""
    text = (ROOT / "docs" / "lerobot-plugin.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)[1]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, "runs/drawer")
    names: dict = {}
    exec(compile(example, "lerobot-plugin.md", "exec"), names)
    assert names["rewards"].shape == (16,)
    assert np.array_equal(tr.load("saved").score(crossing(1)), tr.load(model).score(crossing(1)))


def test_without_lerobot(tmp_path):
    (tmp_path / "lerobot.py").write_text("")  # in front of the real one, and empty
    script = "import sys; sys.path.insert(0, sys.argv[1]); import timerewarder.lerobot_plugin"
    finished = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=120)
    assert finished.returncode == 1
    assert "pip install 'timerewarder[lerobot-plugin]', with Python 3.12 or later" in finished.stderr.splitlines()[-1]
