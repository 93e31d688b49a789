"""The training loop: kill and resume, two processes, early stop, bad numbers, what is in the folder."""

import csv
import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from timerewarder.errors import UserError
from timerewarder.rewards.training import Batch, Training, running_average, split, train

FLAGS = [
    f"--image-size={SIZE}", "--epochs=1", "--epoch-frames=2400", "--validate-every=400", "--lr=1e-3", "--device=cpu",
    "--precision=fp32", "--head-dropout=0.2", "--shift=2", "--composites=0.5", "--erase=0.5",
]  # fmt: skip


def fit_process(videos, out):
    command = [sys.executable, "-m", "timerewarder", "fit", str(videos), f"--out={out}", *FLAGS, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def uninterrupted(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "uninterrupted"
    return out, finish(fit_process(videos, out))


def test_killed_and_resumed_equals_uninterrupted(videos, uninterrupted, tmp_path):
    out = tmp_path / "killed"
    process = fit_process(videos, out)
    while not (out / "training" / "state.json").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped_at = json.loads((out / "training" / "state.json").read_text())["progress"]["frames"]
    assert 0 < stopped_at < 2400, "the kill came too late to test anything"
    assert not (out / "config.json").exists()
    with pytest.raises(UserError, match="not a complete model"):
        tr.load(out)

    finish(fit_process(videos, out))
    expected, found = (load_file(folder / "weights.safetensors") for folder in (uninterrupted[0], out))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    logs = [list(csv.DictReader((folder / "log.csv").open())) for folder in (uninterrupted[0], out)]
    assert [row["loss"] for row in logs[0]] == [row["loss"] for row in logs[1]]


def test_what_a_fit_leaves(uninterrupted):
    out, printed = uninterrupted
    assert printed["videos"] == 24
    assert printed["training"]["encoded_frames"] == 2400
    assert not list((out / "training").glob("*.safetensors"))
    assert list((out / "training" / "tensorboard").glob("events*"))
    rows = list(csv.DictReader((out / "log.csv").open()))
    assert [int(row["frames"]) for row in rows] == list(range(400, 2401, 400))
    assert float(rows[-1]["val_mae"]) < float(rows[0]["val_mae"])


def test_two_processes_through_accelerate(videos, heldout, tmp_path):
    launch = f"-m torch.distributed.run --nproc_per_node=2 --master_port={free_port()} -m timerewarder fit"
    command = [
        sys.executable,
        *launch.split(),
        str(videos),
        f"--out={tmp_path / 'two'}",
        *FLAGS,
        "--epoch-frames=4000",
        "--json",
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) == 1  # only one process speaks
    reward = tr.load(tmp_path / "two")
    assert reward.record["training"]["encoded_frames"] == 4000
    assert reward.record["training"]["steps"] == 125  # 32 frames a step: 16 in each process
    assert tr.evaluate(reward, heldout)["voc_from_first"] > 0.9


def test_same_fit_again_loads_the_model(videos, tmp_path):
    brief = {**QUICK, "epoch_frames": 800, "validate_every": 400}
    first = tr.fit(videos, tmp_path / "m", **brief)
    stamp = (tmp_path / "m" / "weights.safetensors").stat().st_mtime_ns
    again = tr.fit(videos, tmp_path / "m", **brief)
    assert (tmp_path / "m" / "weights.safetensors").stat().st_mtime_ns == stamp
    assert np.array_equal(first.score(crossing(9)), again.score(crossing(9)))
    with pytest.raises(UserError, match=r"other settings \(bins\).*--overwrite"):
        tr.fit(videos, tmp_path / "m", bins=10, **brief)
    with pytest.raises(UserError, match=r"other settings \(videos\)"):
        tr.fit([videos / "crossing_00.npy", videos / "crossing_01.npy"], tmp_path / "m", **brief)
    assert tr.fit(videos, tmp_path / "m", overwrite=True, bins=10, **brief).config.bins == 10


def test_a_folder_that_is_no_model_is_left_alone(videos, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="choose another --out"):
            tr.fit(videos, tmp_path, overwrite=overwrite, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


class Fragile(nn.Module):
    """A network whose loss is not a number from the fifth step on."""

    def __init__(self):
        super().__init__()
        self.weight, self.steps = nn.Parameter(torch.ones(1)), 0

    def forward(self, batch):
        self.steps += 1
        return self.weight.sum() * (1.0 if self.steps < 5 else float("nan"))


def test_nan_loss_stops_with_step_batch_and_checkpoint(tmp_path):
    batch = Batch({"frames": torch.zeros(1, 2, 2, 3, dtype=torch.uint8)}, "drawer_07 frames [3, 9]")
    options = Training(lr=0.1, validate_every=2, epochs=1, epoch_frames=100, device="cpu", ema=0)
    with pytest.raises(UserError) as error:
        train(Fragile(), lambda rng: batch, None, options, tmp_path / "m" / "training")
    message = str(error.value)
    assert "loss is nan at step 4 on drawer_07 frames [3, 9]" in message
    assert "last good checkpoint" in message
    saved = json.loads((tmp_path / "m" / "training" / "state.json").read_text())
    assert saved["progress"]["step"] == 4
    weights = load_file(tmp_path / "m" / "training" / saved["files"]["state"])
    assert torch.isfinite(weights["network.weight"]).all()


def test_diverging_fit_is_one_clear_error(videos, tmp_path):
    with pytest.raises(UserError, match=r"loss is (nan|inf) at step \d+ on crossing_.* frames .*lower --lr"):
        tr.fit(videos, tmp_path / "m", **{**QUICK, "lr": 1e30, "clip_norm": 0.0})
    assert not (tmp_path / "m" / "config.json").exists()


def test_one_video_alone_fits_with_a_warning(videos):
    with pytest.warns(UserWarning, match="nothing is left to validate on"):
        reward = tr.fit(videos / "crossing_03.npy", **QUICK)
    assert reward.record["validation_videos"] == []
    assert reward.score(crossing(3)).sum() > 0.5


def test_early_stop(videos):
    reward = tr.fit(videos, **{**QUICK, "lr": 0.0, "epochs": 50.0, "patience": 2, "validate_every": 320})
    assert reward.record["training"]["encoded_frames"] == 320 * 3


def test_minutes_bound_the_training(videos):
    started = time.monotonic()
    reward = tr.fit(videos, minutes=0.03, **{**QUICK, "epochs": 1e6})
    assert time.monotonic() - started < 60
    assert reward.record["training"]["kept"]["seconds"] >= 0


def test_split_is_disjoint_and_complete():
    for videos in (1, 2, 5, 100):
        training, held = split(np.full(videos, 10), Training(seed=3))
        assert sorted([*training, *held]) == list(range(videos))
        assert len(held) == {1: 0, 2: 1, 5: 1, 100: 10}[videos]
    assert len(split(np.full(9, 10), Training(validation=0.0))[1]) == 0


def test_running_average_by_hand():
    average, update = [torch.tensor([0.0])], running_average(0.5)
    update(average, [torch.tensor([1.0])], torch.tensor(1))  # decay min(0.5, 2/11)
    assert average[0].item() == pytest.approx(9 / 11)
    update(average, [torch.tensor([0.0])], torch.tensor(1000))
    assert average[0].item() == pytest.approx(4.5 / 11)


def test_missing_device_is_an_error(videos):
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="--device cuda is not available"):
            tr.fit(videos, **{**QUICK, "device": "cuda"})
