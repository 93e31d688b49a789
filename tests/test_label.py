"""`label`: the rewards of `score` for every frame of a dataset, in the columns that others read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timerewarder as tr
from tests.conftest import QUICK, crossing
from timerewarder.data.source import Opening
from timerewarder.errors import UserError
from timerewarder.files import read_json
from timerewarder.label import FILE, PLAN, SHARDS, label

LEROBOT = Path(__file__).parent / "data" / "lerobot"
SMALL, IMAGES = LEROBOT / "lerobot_v3_small", LEROBOT / "lerobot_v3_images"


@pytest.fixture(scope="module")
def model(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("label") / "model"
    tr.fit(videos, folder, **{**QUICK, "epoch_frames": 320, "validate_every": 160})  # what it learned does not matter
    return str(folder)


@pytest.mark.parametrize("dataset", [SMALL, IMAGES], ids=["video", "images"])
def test_a_lerobot_dataset_is_labelled_as_score_does(dataset: Path, model: str, tmp_path: Path) -> None:
    result = label(model, dataset, tmp_path / "labels", shard=2)
    table = pq.read_table(tmp_path / "labels" / FILE)
    truth = read_json(dataset.with_name(f"{dataset.name}_truth.json"))
    assert result["frames"] == len(table) == sum(episode["num_frames"] for episode in truth["episodes"])
    assert table["index"].to_pylist() == list(range(len(table)))
    reward = tr.load(model)
    for number, video in enumerate(tr.read_videos(dataset)):
        rows = table.filter(pa.compute.equal(table["episode_index"], number))
        expected = reward.score(video.frames)
        assert rows["frame_index"].to_pylist() == list(range(len(expected)))
        assert rows["reward"].to_numpy() == pytest.approx(expected, abs=1e-5)
        assert rows["progress_sparse"].to_numpy() == pytest.approx(expected.cumsum(), abs=1e-5)


def test_the_columns_are_those_that_lerobot_reads(model: str, tmp_path: Path) -> None:
    label(model, SMALL, tmp_path / "labels")
    schema = pq.read_schema(tmp_path / "labels" / FILE)
    whole, number = pa.int64(), pa.float32()
    assert {field.name: field.type for field in schema} == {
        "index": whole, "episode_index": whole, "frame_index": whole, "progress_sparse": number, "reward": number,
    }  # fmt: skip
    assert schema.metadata == {b"reward_model_path": model.encode()}
    assert sorted(os.listdir(tmp_path / "labels")) == sorted([FILE, PLAN])


def test_only_the_episodes_of_a_task(model: str, tmp_path: Path) -> None:
    episodes = read_json(SMALL.with_name(f"{SMALL.name}_truth.json"))["episodes"]
    task = episodes[-1]["task"]
    label(model, SMALL, tmp_path / "labels", Opening(task=task))
    wanted = [number for number, episode in enumerate(episodes) if episode["task"] == task]
    assert sorted(set(pq.read_table(tmp_path / "labels" / FILE)["episode_index"].to_pylist())) == wanted


def test_video_folders(model: str, heldout: Path, tmp_path: Path) -> None:
    label(model, heldout, tmp_path / "labels", Opening(fps=5))
    table = pq.read_table(tmp_path / "labels" / FILE)
    assert table.column_names == ["video", "frame_index", "time", "progress", "reward"]
    reward = tr.load(model)
    for video in tr.read_videos(heldout, fps=5):
        rows = table.filter(pa.compute.equal(table["video"], video.name))
        assert rows["time"].to_numpy() == pytest.approx(np.arange(len(video.frames)) / 5)
        assert rows["reward"].to_numpy() == pytest.approx(reward.score(video.frames), abs=1e-5)


def test_killed_and_resumed_gives_the_same_file(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    for seed in range(40):
        np.save(folder / f"{seed}.npy", crossing(seed, 60))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    label(model, folder, whole, shard=1)
    command = [sys.executable, "-m", "timerewarder", "label", model, str(folder), "--out", str(broken), "--shard", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while len(list(broken.glob(f"{SHARDS}/[0-9]*.parquet"))) < 2 and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (broken / FILE).exists(), "it was too quick to be killed"
    kept = {path: path.stat().st_mtime_ns for path in broken.glob(f"{SHARDS}/[0-9]*.parquet")}
    assert kept
    subprocess.run(command, check=True, capture_output=True)
    assert (broken / FILE).read_bytes() == (whole / FILE).read_bytes()
    again = (broken / FILE).stat().st_mtime_ns
    label(model, folder, broken, shard=1)
    assert (broken / FILE).stat().st_mtime_ns == again


def test_a_ray_cluster_gives_the_same_file(model: str, tmp_path: Path) -> None:
    label(model, SMALL, tmp_path / "here", shard=2)
    command = [sys.executable, "-m", "timerewarder", "label", model, str(SMALL), "--shard", "2", "--ray"]
    subprocess.run([*command, "--out", str(tmp_path / "ray")], check=True, timeout=400)
    assert (tmp_path / "ray" / FILE).read_bytes() == (tmp_path / "here" / FILE).read_bytes()


def test_bad_videos(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    np.save(folder / "good.npy", crossing(0))
    (folder / "bad.mp4").write_text("no video")
    with pytest.raises(UserError, match=r"bad\.mp4 .*--skip-bad"):
        label(model, folder, tmp_path / "labels")
    with pytest.warns(UserWarning, match=r"skipped .*bad\.mp4"):
        label(model, folder, tmp_path / "skipped", Opening(skip_bad=True))
    assert set(pq.read_table(tmp_path / "skipped" / FILE)["video"].to_pylist()) == {"good"}
    (folder / "good.npy").unlink()
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(UserError, match="no video is left"):
        label(model, folder, tmp_path / "none", Opening(skip_bad=True))
    assert not (tmp_path / "none" / FILE).exists()


def test_mistakes_are_told(model: str, heldout: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--fps"):
        label(model, SMALL, tmp_path / "a", Opening(fps=5))
    with pytest.raises(UserError, match="in a call of its own"):
        label(model, [SMALL, heldout], tmp_path / "a")
    with pytest.raises(UserError, match="--shard"):
        label(model, SMALL, tmp_path / "a", shard=0)
    assert not (tmp_path / "a").exists()
    for address in ("127.0.0.1:9", "nowhere"):
        with pytest.raises(UserError, match=f"no Ray cluster at {address} .*: start one"):
            label(model, SMALL, tmp_path / "ray", ray=address)
    label(model, heldout, tmp_path / "b")
    with pytest.raises(UserError, match=r"something else \(data\)"):
        label(model, SMALL, tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE).write_text("mine")
    with pytest.raises(UserError, match="choose another --out"):
        label(model, heldout, tmp_path / "c")
    assert (tmp_path / "c" / FILE).read_text() == "mine"
