"""Methods on the same videos: what is measured is what the single verbs give, and nothing is done twice."""

import json
from dataclasses import replace

import numpy as np
import pytest

import timerewarder as tr
from tests.conftest import QUICK
from timerewarder.errors import UserError
from timerewarder.evaluation.comparison import (
    COSTS,
    UNASKED,
    Data,
    Entry,
    choose_methods,
    compare,
    configure,
    peak_megabytes,
    read_options,
)
from timerewarder.rewards import METHODS

BRIEF = {**QUICK, "epoch_frames": 640, "validate_every": 320}
FAILS = next(iter(UNASKED))  # needs an endpoint, which nobody names here


@pytest.fixture(scope="module")
def data(videos, heldout, failures):
    return Data((str(videos),), (str(heldout),), (str(failures),))


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    """Folder and entries of a comparison in which one method has a value, one has none if there is such, one fails."""
    out = tmp_path_factory.mktemp("compare") / "run"
    valueless = [name for name, method in METHODS.items() if not method.reward.is_value]
    methods = (FAILS, "single-frame", *valueless[:1])
    return out, list(compare(methods, data, out, BRIEF, {"single-frame": {"bins": 8}}))


# --- what is measured -------------------------------------------------------------------------------------------------


def test_a_method_that_fails_does_not_lose_the_others(compared):
    _, (failed, *good) = compared
    assert failed.method == FAILS
    assert "--model" in failed.error
    assert failed.metrics == failed.costs == failed.rewards == {}
    assert good
    assert all(entry.error is None for entry in good)


def test_entries_are_what_evaluate_and_score_give(compared, data):
    out, (_, *good) = compared
    shown = {
        kind: next(tr.read_videos(places)) for kind, places in (("held-out", data.test), ("failure", data.failures))
    }
    for entry in good:
        reward = tr.load(out / "models" / entry.method)
        expected = tr.evaluate(reward, data.test, data.failures)
        expected.pop("frames_per_second")
        assert entry.metrics == pytest.approx(expected, abs=1e-5)
        assert entry.is_value == reward.is_value
        assert entry.encoder == "small"
        assert entry.train_videos == 24
        for kind, video in shown.items():
            np.testing.assert_allclose(entry.rewards[kind], reward.score(video.frames), atol=1e-6)


def test_options_reach_the_methods_that_have_them(compared):
    out, (_, *good) = compared
    for entry in good:
        config = tr.load(out / "models" / entry.method).config
        assert (config.image_size, config.training.epoch_frames) == (32, 640)
    assert tr.load(out / "models" / "single-frame").config.bins == 8


def test_costs_are_those_of_the_fit_and_the_files(compared):
    out, (_, *good) = compared
    for entry in good:
        folder = out / "models" / entry.method
        assert list(entry.costs) == list(COSTS)
        assert entry.costs["fit_seconds"] > tr.load(folder).record["training"]["kept"]["seconds"]
        assert entry.costs["frames_per_second"] > 0
        files = [folder / "config.json", folder / "weights.safetensors"]
        assert entry.costs["model_megabytes"] == sum(file.stat().st_size for file in files) / 1e6
        assert 50 < entry.costs["peak_megabytes"] < 20_000  # Python and PyTorch are in it


def test_a_model_can_be_reported_alone(compared, data):
    out, _ = compared
    evaluation = json.loads((out / "models" / "single-frame" / "evaluation.json").read_text())
    assert evaluation["videos"] == list(data.test)


# --- running again ----------------------------------------------------------------------------------------------------


def test_what_is_finished_is_not_done_again(compared, data):
    out, (_, *good) = compared
    before = {path: path.stat().st_mtime_ns for path in (out / "models").rglob("*")}
    again = list(compare([entry.method for entry in good], data, out, BRIEF, {"single-frame": {"bins": 8}}))
    assert again == good
    assert {path: path.stat().st_mtime_ns for path in (out / "models").rglob("*")} == before


def test_other_videos_are_measured_with_the_same_model(compared, data, heldout):
    out, (_, *good) = compared
    folder = out / "models" / "single-frame"
    weights = (folder / "weights.safetensors").stat().st_mtime_ns
    fewer = replace(data, test=tuple(str(heldout / f"crossing_10{n}.npy") for n in range(2)), failures=())
    (entry,) = compare(["single-frame"], fewer, out, BRIEF, {"single-frame": {"bins": 8}})
    assert (entry.metrics["videos"], entry.metrics["success_auroc"]) == (2, None)
    assert list(entry.rewards) == ["held-out"]
    assert entry.costs["fit_seconds"] == good[0].costs["fit_seconds"]  # of the fit, which was not repeated
    assert (folder / "weights.safetensors").stat().st_mtime_ns == weights


@pytest.mark.parametrize(("change", "key"), [({"seed": 5}, "seed"), ({"epoch_frames": 320}, "epoch_frames")])
def test_other_settings_need_another_folder(compared, data, change, key):
    out, _ = compared
    with pytest.raises(UserError, match=rf"holds a comparison with other settings \({key}\): choose another --out"):
        next(compare(["single-frame"], data, out, {**BRIEF, **change}))


def test_other_training_videos_need_another_folder(compared, data, heldout):
    out, _ = compared
    with pytest.raises(UserError, match=r"other settings \(train\)"):
        next(compare(["single-frame"], replace(data, train=(str(heldout),)), out, BRIEF))


# --- choices and mistakes ---------------------------------------------------------------------------------------------


def test_all_methods_are_those_without_an_endpoint():
    every = choose_methods("all")
    assert set(METHODS) - set(every) == set(UNASKED) & set(METHODS)
    assert choose_methods(f"all,{FAILS}") == (*every, FAILS)
    assert choose_methods(" order, timerewarder,,order") == ("order", "timerewarder")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("", "no methods given: pass --methods all"),
        (" , ", "no methods given"),
        ("timerewardr", "unknown method 'timerewardr'; did you mean timerewarder"),
        ("all,sparse", "unknown method 'sparse'"),
    ],
)
def test_bad_methods_are_refused(names, message):
    with pytest.raises(UserError, match=message):
        choose_methods(names)


def test_shared_options_pass_by_methods_without_them():
    assert configure("single-frame", {"pairs": 3, "minutes": 2}, {}).training.minutes == 2
    assert configure("timerewarder", {"pairs": 3}, {}).pairs == 3
    assert configure("timerewarder", {"pairs": 3}, {"pairs": 5}).pairs == 5
    for method in METHODS:
        configure(method, {"encoder": "small", "minutes": 1.0, "seed": 3}, {})
    with pytest.raises(UserError, match="unknown key 'pairs'"):
        configure("single-frame", {}, {"pairs": 3})


def test_an_option_of_no_method_is_refused(data, tmp_path):
    with pytest.raises(UserError, match="no method has an option 'epoch'; did you mean epochs"):
        next(compare(["order"], data, tmp_path / "out", {"epoch": 1}))
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(data, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="is not a comparison: choose another --out"):
        next(compare(["order"], data, tmp_path, BRIEF))
    (tmp_path / "compare.json").write_text("[]")
    with pytest.raises(UserError, match="is not that of a comparison"):
        next(compare(["order"], data, tmp_path, BRIEF))


def test_options_of_single_methods_come_from_a_file(tmp_path):
    assert read_options(None) == {}
    file = tmp_path / "options.json"
    file.write_text('{"order": {"places": 4}}')
    assert read_options(file) == {"order": {"places": 4}}
    for text, message in (
        ("[]", "options by method"),
        ('{"order": 4}', "options by method"),
        ('{"ordr": {}}', "order"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=message):
            read_options(file)


def test_peak_memory_is_in_megabytes():
    held = np.ones(200_000_000, np.uint8)
    assert len(held) / 1e6 < peak_megabytes() < 100_000


def test_entries_survive_json():
    entry = Entry("a", None, False, {"voc": None}, {"fit_seconds": 1.5}, {"held-out": [0.0, 0.25]}, 3)
    assert Entry(**json.loads(json.dumps(entry.__dict__))) == entry
