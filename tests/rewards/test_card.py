"""The model card: valid metadata, honest numbers, and texts of users that stay texts. tests/test_hub.py sends one."""

import json
import re

import pytest
import torch
import yaml
from huggingface_hub import ModelCard

import timerewarder as tr
from timerewarder.rewards import METHODS, load_local
from timerewarder.rewards.card import METRICS, model_card, without_places

EVALUATION = {
    "videos": ["/home/ada/videos"],
    "failures": ["/home/ada/failed"],
    "fps": None,
    "metrics": {**dict.fromkeys(METRICS, 0.5), "videos": 3, "frames": 40, "frames_per_second": 1000.0},
    "final_values": {"held-out": {"ada 1": 0.9, "ada 2": 1.0, "ada 3": 0.8}, "failure": {"bob": 0.1, "zoe": 0.2}},
}
RECORD = {"videos": 7, "frames": 90, "shortest_video": 10, "longest_video": 20, "validation_videos": ["ada"]}


@pytest.fixture
def reward():
    method = METHODS["timerewarder"]
    reward = method.reward(method.config(image_size=32))
    reward.record = dict(RECORD)
    return reward


def sections(card):
    """Metadata, and the text under each heading."""
    _, metadata, body = re.split(r"^---$", card, maxsplit=2, flags=re.M)
    parts = re.split(r"^## (.*)$", body, flags=re.M)
    return yaml.safe_load(metadata), dict(zip(parts[1::2], parts[2::2], strict=True))


def test_without_an_evaluation(reward):
    metadata, parts = sections(model_card(reward, "ada/my_model"))
    assert metadata == {
        "library_name": "timerewarder",
        "pipeline_tag": "robotics",
        "tags": ["reward-model", "robotics", "reinforcement-learning", "video", "timerewarder"],
    }
    assert set(parts) == {"Use", "Training data", "Options"}
    assert "7 videos (90 frames)" in parts["Training data"]
    assert "10 to 20 frames" in parts["Training data"]
    assert "32 x 32 pixels" in parts["Training data"]
    options = json.loads(re.search(r"```json\n(.*?)```", parts["Options"], re.S)[1])
    assert options["image_size"] == 32


def test_metrics_of_the_evaluation(reward):
    reward.evaluation = {**EVALUATION, "metrics": {**EVALUATION["metrics"], "voc": 0.98765, "pair_mae": None}}
    metadata, parts = sections(model_card(reward, "ada/model", "mit"))
    (index,) = metadata["model-index"]
    (result,) = index["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values == {**dict.fromkeys(METRICS.keys() - {"pair_mae"}, 0.5), "voc": 0.98765}
    assert metadata["license"] == "mit"
    assert "On 3 held-out videos (40 frames) and 2 failed attempts." in parts["Evaluation"]
    assert "| voc | 0.9877 |" in parts["Evaluation"]
    assert "pair_mae" not in parts["Evaluation"]
    assert "ada" not in parts["Evaluation"] + parts["Training data"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high", None])
def test_a_number_that_is_none_is_left_out(reward, value):
    reward.evaluation = {**EVALUATION, "metrics": {**EVALUATION["metrics"], "voc": value}}
    card = model_card(reward, "ada/model")
    assert "voc" not in {result.metric_type for result in ModelCard(card).data.eval_results}
    assert "| voc |" not in card


def test_texts_cannot_break_out(reward):
    task = "put | the `cup` <b>down</b>\n---\n# and *stop*"
    reward.record |= {"tasks": [task], "opening": {"fps": 5.0, "camera": "observation.images.top_1", "task": None}}
    object.__setattr__(reward.config, "encoder_weights", "x\n```\n# owned")
    metadata, parts = sections(model_card(reward, "ada/model"))
    assert metadata["library_name"] == "timerewarder"
    assert set(parts) == {"Use", "Training data", "Options"}
    lines = parts["Training data"].strip().splitlines()
    assert lines[-1] == r"- task: put \| the \`cup\` \<b\>down\</b\> --- \# and \*stop\*"
    assert r"- camera observation.images.top\_1" in lines
    assert "- resampled to 5 frames a second" in lines
    fence = re.search(r"^(`+)json$", parts["Options"], re.M)[1]
    assert json.loads(parts["Options"].split(fence)[1].removeprefix("json"))["encoder_weights"] == "x\n```\n# owned"


def test_a_method_for_whole_episodes_is_not_shown_as_a_stream():
    method = METHODS["ot"]
    reward = method.reward(method.config(image_size=32))
    card = model_card(reward, "ada/model")
    assert "reward.score(video.frames)" in card
    assert "stream" not in card
    assert "Training data" not in card


def test_an_evaluation_loses_names_and_places():
    shared = without_places(EVALUATION)
    assert (shared["videos"], shared["failures"]) == ([], [])
    assert shared["final_values"] == {"held-out": {"0": 0.9, "1": 1.0, "2": 0.8}, "failure": {"0": 0.1, "1": 0.2}}
    assert shared["metrics"] == EVALUATION["metrics"]
    assert not re.search("ada|bob|zoe", json.dumps(shared))


def test_load_keeps_the_evaluation(reward, tmp_path):
    reward.save(tmp_path)
    assert load_local(tmp_path).evaluation is None
    (tmp_path / "evaluation.json").write_text(json.dumps(EVALUATION))
    assert load_local(tmp_path).evaluation == EVALUATION


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"metrics": 3, "final_values": {}}', '{"metrics": {}, "final_values": {"held-out": []}}']
)
def test_a_model_loads_without_a_broken_evaluation(reward, tmp_path, text):
    reward.save(tmp_path)
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.warns(UserWarning, match=r"evaluation\.json is not.*: run `timerewarder evaluate` again"):
        loaded = tr.load(tmp_path)
    assert loaded.evaluation is None
    assert torch.equal(next(loaded.parameters()), next(reward.parameters()))
