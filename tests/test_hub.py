"""The Hugging Face Hub: a model goes there and comes back the same, against a small server that speaks its protocol."""

import json
import re

import numpy as np
import pytest
from huggingface_hub import ModelCard

import timerewarder as tr
from tests.conftest import QUICK, crossing
from tests.hub_server import python, serving
from timerewarder.api import evaluate_model
from timerewarder.data.videos import write_video
from timerewarder.rewards.card import METRICS

REPO = "me/drawer-open"


@pytest.fixture(scope="module")
def model(videos, heldout, failures, tmp_path_factory):
    out = tmp_path_factory.mktemp("hub") / "model"
    tr.fit(videos, out, **{**QUICK, "epoch_frames": 800, "validate_every": 400})
    evaluate_model(out, heldout, failures)
    return out


THERE_AND_BACK = """
import json, re, sys
from pathlib import Path
import numpy as np
import timerewarder as tr
from huggingface_hub import hf_hub_download, list_repo_files
from timerewarder.cli import main

model, frames, rewards = sys.argv[1:]
print(tr.load(model).push_to_hub("me/drawer-open"))
main(["push", model, "me/drawer-open", "--license", "mit"])  # a second time: the repository is there already
back = tr.load("me/drawer-open")
np.save(rewards, back.score(np.load(frames)))
card = Path(hf_hub_download("me/drawer-open", "README.md")).read_text()
names = {}
exec(re.search(r"```python\\n(.*?)```", card, re.S)[1], names)  # what it tells a reader to run, with a video of his
result = {
    "card": card,
    "evaluation": back.evaluation,
    "example": [names["rewards"].shape, str(names["rewards"].dtype), float(names["step"] - names["rewards"][1])],
    "files": list_repo_files("me/drawer-open"),
}
back.evaluation = None
back.push_to_hub("me/drawer-open")
print(json.dumps({**result, "evaluation of a model without": tr.load("me/drawer-open").evaluation}))
"""


def test_there_and_back(model, heldout, tmp_path):
    np.save(tmp_path / "frames.npy", crossing(5))
    write_video(tmp_path / "empty" / "video.mp4", crossing(7, 12), 10)
    with serving() as server:
        script = ["-c", THERE_AND_BACK, model, tmp_path / "frames.npy", tmp_path / "rewards.npy"]
        finished = python(tmp_path, server.address, *script)
        assert finished.returncode == 0, finished.stderr
        files = server.repos[REPO]
    assert finished.stdout.startswith(f"{server.address}/{REPO}/commit/")
    result, here = json.loads(finished.stdout.splitlines()[-1]), tr.load(model)
    assert set(result["files"]) == {"config.json", "weights.safetensors", "evaluation.json", "README.md"}
    for name in ("config.json", "weights.safetensors"):
        assert files[name] == (model / name).read_bytes()
    assert np.array_equal(np.load(tmp_path / "rewards.npy"), here.score(crossing(5)))
    check_card(result["card"], here)
    assert result["example"] == [[12], "float32", pytest.approx(0, abs=1e-5)]
    check_evaluation(result["evaluation"], here.evaluation)
    assert "crossing_" not in json.dumps(result)
    assert str(heldout) not in json.dumps(result)
    assert set(files) == {"config.json", "weights.safetensors", "README.md"}  # the old evaluation went with its model
    assert result["evaluation of a model without"] is None


def check_card(card, reward):
    """The model card: metadata, how well the model did, and what it saw."""
    record, metrics = reward.record, reward.evaluation["metrics"]
    data = ModelCard(card).data
    assert (data.library_name, data.license, data.model_name) == ("timerewarder", "mit", "drawer-open")
    assert {result.metric_type: result.metric_value for result in data.eval_results} == {
        name: metrics[name] for name in METRICS
    }
    assert "# drawer-open" in card
    assert f"{record['videos']} videos ({record['frames']} frames)" in card
    for name in METRICS:
        assert f"| {name} | {metrics[name]:.4g} | " in card
    for name in ("val_mae", "val_voc_from_first"):
        assert f"| {name} | {record['training']['kept'][name]:.4g} |" in card
    assert f'tr.load("{REPO}")' in card


def check_evaluation(back, here):
    """The same numbers, without the names and places of the videos."""
    assert back["metrics"] == here["metrics"]
    assert (back["videos"], back["failures"]) == ([], [])
    assert {kind: list(values.values()) for kind, values in back["final_values"].items()} == {
        kind: list(values.values()) for kind, values in here["final_values"].items()
    }
    assert all(name.isdecimal() for values in back["final_values"].values() for name in values)


REFUSALS = """
import json, os, sys
import timerewarder as tr

reward = tr.load(sys.argv[1])
def refusal(call, name, token="hf_test"):
    os.environ["HF_TOKEN"] = token
    try:
        call(name)
    except tr.UserError as error:
        return str(error)
print(json.dumps([
    refusal(reward.push_to_hub, "me/drawer-open", token="hf_wrong"),
    refusal(reward.push_to_hub, "others/drawer-open"),
    refusal(reward.push_to_hub, "me/broken"),
    refusal(reward.push_to_hub, "me/unplugged"),
    refusal(reward.push_to_hub, "me/my drawer"),
    refusal(tr.load, "me/nothing"),
    refusal(tr.load, "me/broken"),
    refusal(tr.load, "me/my drawer"),
]))
"""


def test_refusals_say_what_to_do(model, tmp_path):
    with serving() as server:
        finished = python(tmp_path, server.address, "-c", REFUSALS, model)
        assert finished.returncode == 0, finished.stderr
        assert server.repos == {}
    messages = json.loads(finished.stdout.splitlines()[-1])
    for message, reason in zip(
        messages, ["401", "403", "500", "", "my drawer", "404", "500", "my drawer"], strict=True
    ):
        assert message is not None
        assert "\n" not in message
        assert reason in message
    for message, name in zip(messages[:3], ["me/drawer-open", "others/drawer-open", "me/broken"], strict=True):
        assert message.startswith(f"{name} cannot be uploaded to {server.address} (")
        assert message.endswith("check the name, the network and the login (`hf auth login` or HF_TOKEN)")
    for message in messages[5:]:
        assert re.match(
            r"me/.* does not exist here and cannot be fetched from the Hub as a model \(.*\): check the path",
            message,
        )


def test_nobody_at_the_other_end(heldout, tmp_path):
    with serving() as server:
        address = server.address
    command = ["-m", "timerewarder", "score", REPO, heldout, "--out", tmp_path / "scores"]
    finished = python(tmp_path, address, *command)
    assert finished.returncode == 2
    assert re.fullmatch(r"error: me/drawer-open does not exist here and .*: check the path.*\n", finished.stderr)
    assert not (tmp_path / "scores").exists()
