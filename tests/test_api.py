"""The Python API beyond what the README shows: options by name, what is written and what is not."""

import json

import numpy as np
import pytest

import timerewarder as tr
from tests.conftest import QUICK, crossing
from timerewarder.api import evaluate_model, with_options
from timerewarder.rewards import preset_config

BRIEF = {**QUICK, "epoch_frames": 320, "validate_every": 160}


def test_public_names():
    for name in tr.__all__:
        assert getattr(tr, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'retrain'"):
        tr.retrain  # noqa: B018


def test_options_reach_the_method_and_its_training():
    config = with_options(preset_config("timerewarder", "paper"), {"bins": 7, "minutes": 3, "encoder": "small"})
    assert (config.bins, config.encoder, config.training.minutes) == (7, "small", 3.0)
    assert config.training.epochs == 100  # the rest is the preset's


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 1}, r"unknown key 'epoch'"),
        ({"clip_frame": 4}, r"unknown key 'clip_frame'; did you mean clip_frames"),
        ({"bins": "many"}, r"bins: expected int, found 'many'"),
        ({"encoder": "big"}, r"encoder: 'big' is not one of small, "),
        ({"method": "magic"}, r"unknown method 'magic'"),
        ({"preset": "mine"}, r"unknown preset 'mine'"),
    ],
)
def test_wrong_options_are_refused(options, message, videos):
    with pytest.raises(tr.UserError, match=message):
        tr.fit(videos, **options)


def test_without_a_folder_nothing_is_written(videos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reward = tr.fit(str(videos), **BRIEF)
    assert reward.record["videos"] == 24
    assert list(tmp_path.iterdir()) == []


def test_a_whole_configuration(videos):
    config = with_options(preset_config("order"), BRIEF)
    reward = tr.fit(videos, method="order", config=config, places=8)
    assert reward.config == with_options(config, {"places": 8})


def test_files_and_folders_are_mixed_at_will(videos, tmp_path):
    np.save(tmp_path / "more.npy", crossing(50))
    reward = tr.fit([videos, str(tmp_path / "more.npy"), videos / "crossing_00.npy"], **BRIEF)
    assert reward.record["videos"] == 25  # one was named twice


def test_an_evaluation_is_kept_with_its_model(videos, heldout, failures, tmp_path, monkeypatch):
    reward = tr.fit(videos, tmp_path / "model", **BRIEF)
    metrics = tr.evaluate(reward, heldout, failures)
    assert not (tmp_path / "model" / "evaluation.json").exists()
    monkeypatch.chdir(heldout.parent)
    kept = evaluate_model(tmp_path / "model", heldout.name, [failures])
    speed = {"frames_per_second": 0}
    assert {**kept, **speed} == {**metrics, **speed}
    saved = json.loads((tmp_path / "model" / "evaluation.json").read_text())
    assert saved["metrics"] == kept
    assert (saved["videos"], saved["failures"]) == ([str(heldout)], [str(failures)])  # found from any folder
    assert saved["final_values"]["failure"].keys() == {f"failed_{seed}" for seed in range(200, 206)}


def test_overwriting_leaves_other_files_alone(videos, tmp_path):
    tr.fit(videos, tmp_path, **BRIEF)
    (tmp_path / "notes.txt").write_text("mine")
    assert tr.fit(videos, tmp_path, overwrite=True, bins=6, **BRIEF).config.bins == 6
    assert tr.load(tmp_path).config.bins == 6
    assert (tmp_path / "notes.txt").read_text() == "mine"
