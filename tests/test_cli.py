"""The command line as a user types it: what every verb leaves behind, its help, and what bad input gets."""

import contextlib
import csv
import functools
import inspect
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import av
import numpy as np
import pytest
from PIL import Image

import timerewarder
from tests.conftest import SIZE, crossing
from tests.data.sample_videos import cut, encode, scene
from timerewarder.agents.presets import preset_named
from timerewarder.cli import VERBS, main
from timerewarder.models.checkpoint import FORMAT
from timerewarder.models.encoders import EncoderName
from timerewarder.progress import console
from timerewarder.report.page import METRICS
from timerewarder.rewards import METHODS

QUICK = [
    f"--image-size={SIZE}", "--epochs=1", "--epoch-frames=1600", "--validate-every=400", "--lr=1e-3",
    "--device=cpu", "--precision=fp32",
]  # fmt: skip
EVALUATION_KEYS = [*METRICS, "videos", "frames", "frames_per_second"]
OUTLINE = r"[^\w(){}\[\].,:;|/+*='-]+"  # boxes, in whatever characters the terminal has, and spaces


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


def run(*arguments):
    """A command, here: exit code and both outputs."""
    out, err, before, code = io.StringIO(), io.StringIO(), console.file, 0
    console.file = err
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)  # as in a new process: a warning was not given before
            main([str(argument) for argument in arguments])
    except SystemExit as exit:
        code = exit.code
    finally:
        console.file = before
    return Finished(code, out.getvalue(), err.getvalue())


def process(*arguments, before=()):
    """The command line of the same in a process of its own."""
    return [*before, sys.executable, "-m", "timerewarder", *map(str, arguments)]


def printed(finished):
    """The JSON object in the last line of the output."""
    assert finished.code == 0, finished.err
    return json.loads(finished.out.splitlines()[-1])


def the_error(finished):
    """The one line about a mistake; progress bars may stand before it, nothing after."""
    assert finished.code == 2, finished.err
    assert "Traceback" not in finished.err
    lines = finished.err.splitlines()
    assert [line for line in lines if line.startswith("error:")] == lines[-1:]
    assert finished.out == ""
    return lines[-1]


def state(folder):
    """Every file below a folder with its time and size."""
    return {path: (s.st_mtime_ns, s.st_size) for path in sorted(folder.rglob("*")) if (s := path.stat())}


@pytest.fixture(scope="module")
def model(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "model"
    found = printed(run("fit", videos, "--out", out, *QUICK, "--json"))
    assert (found["model"], found["method"], found["videos"]) == (str(out), "timerewarder", 24)
    assert found["training"]["encoded_frames"] == 1600
    return out


# --- what the verbs do ------------------------------------------------------------------------------------------------


def test_evaluate(model, heldout, failures):
    found = printed(run("evaluate", model, heldout, "--failures", failures, "--json"))
    assert list(found) == EVALUATION_KEYS
    assert found["videos"] == 6
    assert found["success_auroc"] > 0.9
    without = run("evaluate", model, heldout)
    assert re.search(r"^success_auroc +None$", without.out, re.M)
    assert re.search(rf"^voc +{found['voc']:.4f}$", without.out, re.M)


def test_evaluate_in_a_process_of_its_own(model, heldout):
    finished = subprocess.run(
        process("evaluate", model, heldout, "--json"), capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) == 1  # bars go to stderr
    assert list(json.loads(finished.stdout)) == EVALUATION_KEYS
    assert json.loads(finished.stdout)["success_auroc"] is None


def test_score(model, heldout, tmp_path):
    encode(tmp_path / "take one.mp4", crossing(7, 9, size=48), fps=5)
    sources = [heldout / "crossing_100.npy", tmp_path / "take one.mp4"]
    found = printed(run("score", model, *sources, "--out", tmp_path / "scores", "--json"))
    assert list(found["final_progress"]) == ["crossing_100", "take one"]
    reward = timerewarder.load(model)
    for source in sources:
        (video,) = timerewarder.read_videos(source)
        stem = next(path.stem for path in (tmp_path / "scores").glob("*.csv") if path.stem[:4] == video.name[:4])
        table = list(csv.DictReader((tmp_path / "scores" / f"{stem}.csv").open()))
        assert list(table[0]) == ["frame", "time", "reward", "progress"]
        assert [int(row["frame"]) for row in table] == list(range(len(video.frames)))
        rewards = reward.score(video.frames)
        assert [float(row["reward"]) for row in table] == pytest.approx(rewards.tolist(), abs=1e-6)
        assert [float(row["progress"]) for row in table] == pytest.approx(rewards.cumsum().tolist(), abs=1e-5)
        assert found["final_progress"][video.name] == pytest.approx(float(rewards.sum()), abs=1e-5)
        with av.open(str(tmp_path / "scores" / f"{stem}.mp4")) as container:
            assert sum(1 for _ in container.decode(video=0)) == len(video.frames)
        for picture in (f"{stem}.png", f"{stem}_distances.png"):
            with Image.open(tmp_path / "scores" / picture) as image:
                assert min(image.size) > 100
    assert len(list((tmp_path / "scores").iterdir())) == 8


def test_report(model, heldout, failures, tmp_path):
    run_folder = tmp_path / "run"
    shutil.copytree(model, run_folder / "model")
    (run_folder / "model" / "evaluation.json").unlink(missing_ok=True)
    assert "has not been evaluated: name held-out videos with --videos" in the_error(run("report", run_folder))
    found = printed(run("report", run_folder, "--videos", heldout, "--clips=2", "--json"))
    assert found["clips"] == 4  # two held-out videos, and the same reversed
    assert found["success_auroc"] is None
    found = printed(
        run("report", run_folder, "--failures", failures, "--clips=1", "--json")
    )  # held-out videos as before
    assert (found["clips"], found["videos"], found["success_auroc"] > 0.9) == (3, 6, True)
    page = (run_folder / "report.html").read_text()
    assert found["page"] == str(run_folder / "report.html")
    for shown in ("crossing_100", "failed_200", "epoch_frames", *METRICS):
        assert shown in page
    assert page.count("data:video/mp4;base64,") == 3
    again = printed(run("report", run_folder, "--out", tmp_path / "other.html", "--clips=0", "--json"))
    assert again["clips"] == 0
    assert "data:video/mp4" not in (tmp_path / "other.html").read_text()


def test_compare(videos, heldout, failures, tmp_path):
    """One method fails for want of an endpoint: the other is measured, and what it left is not measured again."""
    out = tmp_path / "run"
    (tmp_path / "options.json").write_text('{"single-frame": {"bins": 8}}')
    command = ["compare", "--train", videos, "--test", heldout, "--failures", failures, "--out", out]
    command += ["--minutes=0.01", "--options", tmp_path / "options.json"]
    line = the_error(run(*command, "--methods=gvl,single-frame"))
    assert re.search(rf"1 of 2 methods failed \(gvl: .*--model.*\); {out}/compare.html shows the others$", line), line
    rows = {row["method"]: row for row in csv.DictReader((out / "compare.csv").open())}
    assert rows["gvl"]["error"]
    assert float(rows["single-frame"]["voc"]) <= 1
    assert timerewarder.load(out / "models" / "single-frame").config.bins == 8
    before = state(out / "models")
    finished = run(*command, "--methods=single-frame", "--json")
    found = printed(finished)
    assert found["page"] == str(out / "compare.html")
    assert list(found["rows"]) == ["single-frame"]
    assert found["rows"]["single-frame"]["voc"] == pytest.approx(float(rows["single-frame"]["voc"]), rel=1e-5)
    assert state(out / "models") == before
    for name in METRICS:
        assert set(name.split("_")) <= set(finished.err.split())  # the table
    page = (out / "compare.html").read_text()
    assert page.count("data:video/mp4;base64,") == 2
    assert (out / "compare.svg").read_text().count("<!-- single-frame -->") == 1


def test_features(model, videos, heldout, failures, tmp_path):
    out = tmp_path / "features"
    command = ["features", model, "--train", videos, "--heldout", heldout, "--failures", failures, "--out", out]
    found = printed(run(*command, "--clips=2", "--json"))
    assert sorted(path.name for path in out.iterdir()) == ["features.csv", "features.png", "features.svg"]
    rows = list(csv.DictReader((out / "features.csv").open()))
    assert {(row["kind"], row["video"]) for row in rows} == {
        ("train", "crossing_00"), ("train", "crossing_01"), ("held-out", "crossing_100"), ("held-out", "crossing_101"),
        ("failure", "failed_200"), ("failure", "failed_201"),
    }  # fmt: skip
    shares = found["explained_variance"]["model"]
    assert 1 >= shares[0] >= shares[1] >= 0


def test_demos(tmp_path):
    out = tmp_path / "demos"
    command = ["demos", "--task", "drawer-open", "--episodes=1", "--size=32", "--out", out, "--json"]
    found = printed(run(*command))
    assert (found["episodes"], found["new"], found["successes"]) == (1, 1, 1)
    assert sorted(path.name for path in out.iterdir()) == [
        "episode_00000.mp4", "episode_00000.safetensors", "index.json",
    ]  # fmt: skip
    assert printed(run(*command))["new"] == 0


def test_quickstart_and_again(tmp_path):
    out = tmp_path / "quick"
    command = ["quickstart", "--out", out, "--minutes=0.03", "--episodes=2", "--json"]
    first = run(*command)
    found = printed(first)
    assert list(found) == ["page", *EVALUATION_KEYS]
    assert Path(found["page"]).stat().st_size > 10_000
    assert str(out / "report.html") in " ".join(first.err.split())
    for name in METRICS:
        assert name in first.err  # the table
    made = [*(out / name for name in ("videos", "heldout", "failures")), out / "model" / "training"]
    weights = out / "model" / "weights.safetensors"
    before = [*map(state, made), weights.stat().st_mtime_ns]
    again = printed(run(*command))
    assert [*map(state, made), weights.stat().st_mtime_ns] == before
    assert again["voc"] == found["voc"]


def test_quickstart_refuses_before_it_records(tmp_path):
    line = the_error(run("quickstart", "--out", tmp_path / "quick", "--minutes=-1"))
    assert "--minutes -1.0" in line
    assert not (tmp_path / "quick").exists()


def test_fit_takes_a_models_configuration(model, videos, tmp_path):
    """The options of one model make another, whole or changed on the command line."""
    found = run(
        "fit", videos, "--out", tmp_path / "m", "--config", model / "config.json", "--bins=8", "--epoch-frames=160"
    )
    assert found.code == 0, found.err
    first, second = (timerewarder.load(folder).config for folder in (model, tmp_path / "m"))
    assert second.bins == 8
    assert second.image_size == first.image_size == SIZE
    (tmp_path / "options.json").write_text('{"bins": 6, "training": {"epoch_frames": 160, "epochs": 1}}')
    flags = [f"--image-size={SIZE}", "--device=cpu", "--method=single-frame", "--lr=1e-3"]
    found = run("fit", videos, "--out", tmp_path / "n", "--config", tmp_path / "options.json", *flags)
    assert found.code == 0, found.err
    assert timerewarder.load(tmp_path / "n").config.bins == 6


def test_fit_again_loads_the_model(model, videos):
    before = state(model)
    assert run("fit", videos, "--out", model, *QUICK).code == 0
    assert state(model) == before


def test_ctrl_c_says_how_to_go_on(videos, tmp_path):
    out = tmp_path / "model"
    command = process("fit", videos, "--out", out, *QUICK, "--epochs=1000", "--patience=0")
    heeded = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a suite in the background ignores it
    fitting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeded)
    while not (out / "training" / "state.json").exists() and fitting.poll() is None:
        time.sleep(0.02)
    fitting.send_signal(signal.SIGINT)
    stdout, stderr = fitting.communicate(timeout=120)
    assert fitting.returncode == 130, stderr
    assert stdout == ""
    assert stderr.splitlines()[-1] == "interrupted; run the same command again to go on (`train`: with --resume)"
    assert not (out / "config.json").exists()


# --- help -------------------------------------------------------------------------------------------------------------


def options_in_help(*arguments):
    """Option or positional argument -> its text in the help, without the box."""
    finished = run(*arguments, "--help")
    assert finished.code == 0, finished.err
    entries = re.split(r"\n\W{1,3}(?=--?[a-z]|[A-Z.]{4,} )", finished.out)[1:]
    return {re.match(r"-*([\w.-]+)", entry)[1]: re.sub(OUTLINE, " ", entry) for entry in entries}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("fit", "train")])
def test_help_explains_every_option_with_its_default(verb):
    found = options_in_help(verb)
    shown = {"model": "MODEL", "models": "MODEL...", "videos": "VIDEO...", "runs": "RUN...", "repo_id": "REPO"}
    options = dict(inspect.signature(VERBS[verb]).parameters)
    if "limits" in options:
        options.update(inspect.signature(type(options.pop("limits").default)).parameters)
    for name, parameter in options.items():
        text = found.get(name.replace("_", "-")) or found[shown[name]]
        assert len(re.findall(r"[a-z]{2,}", text)) > 2, f"{verb} {name}: {text}"
        if parameter.default is inspect.Parameter.empty:
            assert "(required)" in text or name in ("models", "videos", "runs")
        else:
            assert f"(default: {parameter.default}" in text or parameter.default == ()


@pytest.mark.parametrize("method", METHODS)
def test_help_of_fit_explains_every_option_of_every_method(method):
    found = options_in_help("fit", "--method", method)
    config = METHODS[method].config()
    for name, value in {**vars(config), **vars(getattr(config, "training", config))}.items():
        if name != "training":
            text = found[name.replace("_", "-")]
            assert f"(default: {value})" in text, text
            assert len(re.findall(r"[a-z]{2,}", text)) > 3, text
    assert f"(default: {method})" in found["method"]


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize("obs", ["pixels", "state"])
def test_help_of_train_explains_every_option_with_the_default_of_the_preset(preset, obs):
    found = options_in_help("train", "--preset", preset, "--obs", obs)
    config = preset_named(preset, obs)
    for name, value in {**vars(config), **vars(config.agent)}.items():
        if name != "agent":
            text = found[name.replace("_", "-")]
            assert f"(default: {value})" in text, text
            assert len(re.findall(r"[a-z]{2,}", text)) > 2, text
    assert {"task", "reward", "out", "resume", "keep-replay"} <= found.keys()
    cloning = options_in_help("train", "--method", "bc")
    assert "demos" in cloning
    assert "reward" not in cloning


def test_compare_offers_every_encoder():
    text = options_in_help("compare")["encoder"]
    assert all(name in text for name in get_args(EncoderName))


def test_help_shows_the_defaults_of_the_preset():
    assert "(default: clip-vit-b16)" in options_in_help("fit", "--preset", "paper")["encoder"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_overview_names_every_verb(arguments):
    finished = run(*arguments)
    assert finished.code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} +[A-Z].*\.$", finished.out, re.M)


def test_version():
    assert run("--version").out == f"timerewarder {timerewarder.__version__}\n"


def test_help_is_quick_to_import():
    """The overview and the version do not wait for PyTorch."""
    script = "import sys; from timerewarder.cli import main; main(['--version']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True).returncode == 0


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(model, tmp_path_factory):
    """A folder of everything that can be wrong."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "empty").mkdir()
    for name in ("a", "b"):
        encode(folder / "mixed" / f"{name}.mp4", crossing(ord(name), 12))
    cut(encode(folder / "mixed" / "broken.mp4", scene(12)), 0.5)
    for name, frames in {"one": crossing(0)[:1], "float": crossing(0) / 255, "flat": crossing(0)[..., 0]}.items():
        (folder / name).mkdir()
        np.save(folder / name / "video.npy", frames)
    shutil.copy(folder / "one" / "video.npy", folder / "late.npy")
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.tex").write_text("years of work")
    (folder / "file").write_text("a file")
    (folder / "unknown.json").write_text('{"clip_frame": 8}')
    (folder / "broken.json").write_text("{")
    (folder / "list.json").write_text("[]")
    for name in ("newer", "weightless", "partless"):
        shutil.copytree(model, folder / name)
    description = json.loads((model / "config.json").read_text())
    (folder / "newer" / "config.json").write_text(json.dumps({**description, "format": FORMAT + 1}))
    (folder / "weightless" / "weights.safetensors").unlink()
    del description["encoder"]
    (folder / "partless" / "config.json").write_text(json.dumps(description))
    return folder


# command -> what the error must say. {out} is a new path, {bad} the folder above.
REFUSED = {
    "fit {bad}/nowhere --out {out}": r"{bad}/nowhere does not exist: check the path",
    "fit {videos} {bad}/nowhere --out {out}": r"{bad}/nowhere does not exist",
    "fit {bad}/empty --out {out}": r"{bad}/empty holds no videos: put mp4, .* into it",
    "fit {bad}/file --out {out}": r"{bad}/file is not a video: give mp4, ",
    "fit {bad}/mixed --out {out}": r"1 of 3 videos cannot be read: {bad}/mixed/broken.mp4 \(is cut off.*--skip-bad",
    "fit {bad}/one --out {out}": r"{bad}/one/video.npy \(has one frame; at least 2 are needed\)",
    "fit {bad}/float --out {out}": r"{bad}/float/video.npy \(frames must be uint8.*multiply by 255 and cast to uint8",
    "fit {bad}/flat/video.npy --out {out}": r"{bad}/flat/video.npy .*\(T, H, W, 3\)",
    "fit {bad}/one --skip-bad --out {out}": r"{bad}/one/video.npy .*give at least one that can",
    "fit --out {out}": r"no videos given: name mp4, ",
    "fit {videos} --out {bad}/thesis": r"{bad}/thesis exists and is not a model: choose another --out",
    "fit {videos} --out {bad}/thesis --overwrite": r"{bad}/thesis is not a model, so --overwrite does not touch it",
    "fit {videos} --out {bad}/file": r"{bad}/file cannot be a model folder .* is a file: choose another --out",
    "fit {videos} --out {bad}/file/model": r"{bad}/file/model .*{bad}/file is a file: choose another --out",
    "fit {videos} --out {bad}/newer": r"{bad}/newer has checkpoint format .*: upgrade timerewarder",
    "fit {videos} --out {bad}/weightless": r"{bad}/weightless/weights.safetensors is missing: .*fit with --overwrite",
    "fit {videos} --out {model} --bins=5": r"{model} holds a model with other settings \(bins.*\): .*add --overwrite",
    "fit {bad}/nowhere --out {model} --overwrite": r"{bad}/nowhere does not exist",  # and the old model stays
    "fit {bad}/mixed --out {model} --overwrite": r"{bad}/mixed/broken.mp4",
    "fit {videos} --out {out} --config {bad}/unknown.json": r"unknown key 'clip_frame'; did you mean clip_frames",
    "fit {videos} --out {out} --config {bad}/broken.json": r"{bad}/broken.json is not valid JSON",
    "fit {videos} --out {out} --config {bad}/list.json": r"{bad}/list.json: expected an object",
    "fit {videos} --out {out} --config {bad}/no.json": r"{bad}/no.json does not exist",
    "fit {videos} --out {out} --preset papers": r"unknown preset 'papers' of timerewarder; did you mean paper\?",
    "fit {videos} --out {out} --method vipp": r"unknown method 'vipp'; did you mean vip",
    "fit {videos} --out {out} --method magic": r"unknown method 'magic'; known: timerewarder, ",
    "fit {videos} --out {out} --fps 0": r"fps must be above 0 and at most 1000, not 0",
    "fit {videos} --out {out} --minutes=-1": r"--minutes -1.0 is not a length of time: give a positive number",
    "fit {videos} --out {out} --minutes nan": r"--minutes nan is not a length of time",
    "fit {videos} --out {out} --epochs 0": r"--epochs 0.0 is not a length of time: give a positive number",
    "fit {videos} --out {out} --epochs inf": r"--epochs inf is not a length of time",
    "fit {videos} --out {out} --seed=-1": r"--seed -1 is too small: give at least 0",
    "fit {videos} --out {out} --seed=9999999999999999999": r"--seed 9999999999999999999 is too large",
    "fit {videos} --out {out} --weight-decay=-1": r"--weight-decay -1.0 is too small",
    "fit {videos} --out {out} --warmup-epochs=-1": r"--warmup-epochs -1.0 is too small",
    "fit {videos} --out {out} --clip-norm=-1": r"--clip-norm -1.0 is too small",
    "fit {videos} --out {out} --shift=-1": r"--shift must be at least 0",
    "fit {videos} --out {out} --head-dropout 2": r"--head-dropout a share",
    "fit {videos} --out {out} --method from-init --bins 1": r"--bins at least 2",
    "fit {videos} --out {out} --method from-init --pairs 0": r"--pairs must be at least 1",
    "fit {videos} --out {out} --method single-frame --frames 0": r"--frames must be at least 1",
    "fit {videos} --out {out} --method order --places 1": r"--places must be at least 2",
    "fit {videos} --out {out} --clip-frames 7": r"--clip-frames 7 must be an even number",
    "fit {videos} --out {out} --image-size 3": r"--image-size 3 is out of range",
    "fit {videos} --out {out} --no-negatives": r"add --antisymmetric no",
    "fit {videos} --out {out} --encoder clip-vit-b16 --encoder-weights {bad}/empty": r"--encoder-weights",
    "evaluate {model}": r"no videos given: name mp4, ",
    "evaluate {bad}/nowhere {videos}": r"there is no model at {bad}/nowhere: give the folder",
    "evaluate {bad}/thesis {videos}": r"{bad}/thesis is not a complete model",
    "evaluate {bad}/newer {videos}": r"{bad}/newer has checkpoint format .*: upgrade timerewarder",
    "evaluate {bad}/partless {videos}": r"{bad}/partless/config.json lacks encoder: copy the folder again",
    "evaluate {bad}/weightless {videos}": r"weights.safetensors is missing",
    "evaluate {model} {bad}/empty": r"{bad}/empty holds no videos",
    "evaluate {model} {videos} --failures {bad}/nowhere": r"{bad}/nowhere does not exist",
    "evaluate {model} {videos} --fps=-2": r"fps must be above 0",
    "score {model} --out {out}": r"no videos given",
    "score {model} {bad}/mixed --out {out}": r"{bad}/mixed/broken.mp4: is cut off.*--skip-bad",
    "score {model} {videos} {bad}/late.npy --out {out}": r"{bad}/late.npy: has one frame",
    "score {model} {heldout}/crossing_100.npy --out {bad}/file": r"cannot use {bad}/file .*: choose another path",
    "score {model} {heldout}/crossing_100.npy --out {bad}/file/x": r"cannot use {bad}/file/x .*: choose another path",
    "score {model} {heldout}/crossing_100.npy --out /proc/x": r"cannot use /proc/x .*: choose another path",
    "compare --methods timerewardr --train {videos} --test {heldout} --out {out}": r"did you mean timerewarder\?",
    "compare --methods , --train {videos} --test {heldout} --out {out}": r"no methods given: pass --methods all",
    "compare --methods all --train {bad}/nowhere --test {heldout} --out {out}": r"{bad}/nowhere does not exist",
    "compare --methods all --train {videos} --test {bad}/mixed --out {out}": r"{bad}/mixed/broken.mp4 .*--skip-bad",
    "compare --methods all --train {videos} --test {heldout} --failures {bad}/empty --out {out}": r"{bad}/empty holds",
    "compare --methods all --train --test {heldout} --out {out}": r"no videos given",
    "compare --methods all --train {videos} --test {heldout} --out {bad}/thesis": r"{bad}/thesis .* not a comparison: ",
    "compare --methods all --train {videos} --test {heldout} --out {model}": r"{model} exists and is not a comparison",
    "compare --methods all --train {videos} --test {heldout} --out {bad}/file": r"cannot use {bad}/file",
    "compare --methods all --train {videos} --test {heldout} --out {out} --minutes 0": r"--minutes 0.0 is not a length",
    "compare --methods all --train {videos} --test {heldout} --out {out} --seed=-1": r"--seed.*at least 0",
    "compare --methods all --train {videos} --test {heldout} --out {out} --fps 0": r"fps must be above 0",
    "compare --methods all --train {videos} --test {heldout} --out {out} --options {bad}/list.json": r"options by ",
    "compare --methods all --train {videos} --test {heldout} --out {out} --options {bad}/no.json": r"does not exist",
    "train --task drawr-open --method vip --demos {videos} --out {out}": r"drawer-open",
    "train --task drawer-open --method vip --demos {videos} --out {bad}/thesis": r"thesis exists and is not a training",
    "features {model} --out {out}": r"no videos given: name some with --train DIR, --heldout DIR or --failures DIR",
    "features --train {videos} --out {out}": r"no models given: name folders",
    "features {model} --train {videos} --clips 0 --out {out}": r"--clips 0 shows nothing: give how many",
    "features {model} {model} --train {videos} --out {out}": r"a model is named twice",
    "features {model} {bad}/nowhere --train {videos} --out {out}": r"there is no model at {bad}/nowhere",
    "features {model} --train {bad}/empty --out {out}": r"{bad}/empty holds no videos",
    "features {model} --train {bad}/mixed --out {out}": r"{bad}/mixed/broken.mp4",
    "features {model} --train {videos} --out {bad}/file": r"cannot use {bad}/file",
    "report {bad}/nowhere": r"there is no model in {bad}/nowhere: give a folder that `timerewarder fit`",
    "report {bad}/empty": r"there is no model in {bad}/empty",
    "report {bad}/file": r"there is no model in {bad}/file",
    "report {bad}/newer --videos {videos}": r"upgrade timerewarder",
    "report run-a run-b --videos {videos}": r"--videos and --failures are for the page of a model",
    "report {model} --clips=-1": r"--clips -1 is negative: give how many",
    "demos --task drawer-opn --episodes 1 --out {out}": r"unknown task 'drawer-opn': did you mean drawer-open",
    "demos --task drawer-open --episodes 0 --out {out}": r"episodes must be at least 1",
    "demos --task drawer-open --episodes 1 --camera side --out {out}": r"unknown camera 'side': choose one of ",
    "demos --task drawer-open --episodes 1 --out {bad}/thesis": r"{bad}/thesis exists and is no folder of ",
    "demos --task drawer-open --episodes 1 --out {bad}/file/x": r"cannot use {bad}/file/x .*: choose another path",
    "fitt {videos} --out {out}": r"unknown verb 'fitt'; did you mean fit\?",
    "policy {videos} --out {out}": r"unknown verb 'policy'; known: demos, fit, ",
    "train --task drawr-open --reward sparse --out {out}": r"unknown task .drawr-open.: did you mean drawer-open",
    "train --task drawer-open --reward {bad}/none --out {out}": r"there is no model at {bad}/none: ",
    "train --task drawer-open --reward sparse --resume --out {out}": r"there is no run to resume in {out}: ",
    "train --task drawer-open --reward sparse --preset papr --out {out}": r"unknown preset 'papr'; did you mean paper",
    "train --task drawer-open --reward sparse --preset cpu --preset papr --out {out}": r"unknown preset 'papr'",
    "train --method bc --task drawer-open --demos {videos} --out {out}": r"{videos} has no index.json: ",
}


@pytest.mark.parametrize("command", REFUSED)
def test_bad_input_is_one_clear_line_and_leaves_nothing(command, bad, model, videos, heldout, tmp_path):
    places = {"bad": bad, "model": model, "videos": videos, "heldout": heldout, "out": tmp_path / "out"}
    before = [state(folder) for folder in (bad, model, videos)]
    arguments = [argument.format(**places) for argument in command.split()]
    verb, *rest = arguments
    line = the_error(run(verb, *(QUICK if verb == "fit" else []), *rest))
    pattern = REFUSED[command]
    for name, place in places.items():
        pattern = pattern.replace(f"{{{name}}}", re.escape(str(place)))
    assert re.search(pattern, line), line
    assert not (tmp_path / "out").exists()
    assert [state(folder) for folder in (bad, model, videos)] == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fit {videos} --out {out} --bin 3", "--bin"),
        ("fit {videos} --out {out} --encoder smal", "clip-vit-b16"),
        ("fit {videos} --out {out} --bins many", "--bins"),
        ("fit {videos}", "--out"),
        ("evaluate", "MODEL"),
        ("evaluate {model} {videos} --failure {videos}", "--failures"),
        ("score {model} {videos}", "--out"),
        ("demos --task drawer-open --out {out}", "--episodes"),
        ("demos --task drawer-open --episodes 1 --out {out} --policy drunk", "expert"),
        ("compare --train {videos} --test {videos} --out {out}", "--methods"),
        ("compare --methods all --train {videos} --test {videos} --out {out} --encoder smal", "resnet34"),
        ("features {model} --train {videos}", "--out"),
        ("quickstart --out {out} --magic", "--magic"),
    ],
)
def test_a_wrong_option_is_named(command, words, model, videos, tmp_path):
    finished = run(*(part.format(videos=videos, model=model, out=tmp_path / "out") for part in command.split()))
    assert finished.code == 2
    assert finished.out == ""
    assert words in finished.err
    assert "--help" in finished.err
    assert not (tmp_path / "out").exists()


def test_bad_videos_are_left_out_with_a_warning(bad, model, heldout, tmp_path):
    broken = bad / "mixed" / "broken.mp4"
    for command in (
        ["fit", bad / "mixed", "--out", tmp_path / "model", *QUICK, "--epoch-frames=160"],
        ["evaluate", model, bad / "mixed"],
        ["score", model, bad / "mixed", "--out", tmp_path / "scores"],
    ):
        finished = run(*command, "--skip-bad", "--json")
        assert printed(finished)["videos"] == 2
        warned = [line for line in finished.err.splitlines() if line.startswith("warning:")]
        assert len(warned) == 1
        assert str(broken) in warned[0]
        assert "is cut off" in warned[0]
    # The page of that evaluation passes over the same video.
    assert printed(run("report", model, "--out", tmp_path / "page.html", "--json"))["clips"] == 4


def test_one_video_alone_fits_with_a_warning(videos, tmp_path):
    finished = run("fit", videos / "crossing_00.npy", "--out", tmp_path / "m", *QUICK, "--epoch-frames=160")
    assert finished.code == 0
    assert re.search(r"^warning: nothing is left to validate on", finished.err, re.M)


@pytest.mark.parametrize("verb", ["fit", "score"])
def test_no_space_left(verb, model, videos, heldout, tmp_path):
    """On a file system that is really full: 20 kB, too little for a plot and for weights."""
    small = tmp_path / "small"
    small.mkdir()
    alone = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    alone += [f'mount -t tmpfs -o size=20k none "{small}" && exec "$@"']
    if not shutil.which("unshare") or subprocess.run([*alone, "sh", "true"], capture_output=True).returncode:
        pytest.skip("may not mount a small file system here")
    command = ["fit", videos, *QUICK] if verb == "fit" else ["score", model, heldout / "crossing_100.npy"]
    command = process(*command, "--out", small / "out", before=[*alone, "sh"])
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 2, finished.stderr
    pattern = r"^error: no space left while writing .*\.(png|safetensors): free some disk space and run again$"
    assert re.search(pattern, finished.stderr, re.M), finished.stderr
