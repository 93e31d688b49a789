"""Collecting demonstrations: what a folder holds, going on after a kill, and what is refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from timerewarder.data.videos import read_videos
from timerewarder.envs import demos
from timerewarder.envs.demos import collect
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.errors import UserError

TASK = "button-press-topdown"  # the quickest to solve
SMALL = {"size": 32, "workers": 1}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four demonstrations, collected without interruption."""
    out = tmp_path_factory.mktemp("demos") / "four"
    summary = collect(TASK, 4, out, seed=3, **SMALL)
    assert summary["episodes"] == summary["new"] == summary["successes"] == 4
    return out


def test_a_folder_holds_videos_side_files_and_an_index(four: Path) -> None:
    names = [f"episode_{k:05d}.{suffix}" for k in range(4) for suffix in ("mp4", "safetensors")]
    assert sorted(contents(four)) == [*names, "index.json"]
    index = json.loads((four / "index.json").read_text())
    settings = index["settings"]
    assert settings["task"] == TASK
    assert (settings["camera"], settings["horizon"], settings["ranges"]) == ("paper-corner", 125, "wide")
    assert index["seconds_per_frame"] == 0.025
    videos = list(read_videos(four))
    assert len(videos) == len(index["episodes"]) == 4
    assert len({row["seed"] for row in index["episodes"]}) == 4
    for video, row in zip(videos, index["episodes"], strict=True):
        assert row["file"].startswith(video.name)
        assert row["success"] is True
        assert row["task"] == TASK
        assert row["policy"] == "expert"
        assert video.frames.shape == (row["length"], 32, 32, 3)
        assert video.fps == settings["fps"]


def test_a_demonstration_ends_at_its_first_success_and_can_be_replayed(four: Path) -> None:
    index = json.loads((four / "index.json").read_text())
    row = index["episodes"][1]
    frames = next(video.frames for video in read_videos(four) if video.name == "episode_00001")
    side = load_file(four / row["trajectory"])
    assert side["success"].tolist() == [False] * (row["length"] - 1) + [True]
    assert side["actions"].shape == (row["length"] - 1, 4)
    assert side["observations"].shape == (row["length"], 39)
    env = MetaWorld(TASK, size=32)
    observation, _ = env.reset(seed=row["seed"])
    for t in range(row["length"]):
        assert np.array_equal(observation, side["observations"][t])
        assert np.array_equal(env.simulator_state(), side["simulator"][t])
        assert np.abs(env.render().astype(int) - frames[t]).mean() < 6  # mp4 halves the colours' resolution
        if t < row["length"] - 1:
            observation, reward, _, _, _ = env.step(side["actions"][t])
            assert side["task_rewards"][t + 1] == np.float32(reward)
    env.close()


def test_the_number_of_processes_does_not_matter(four: Path, tmp_path: Path) -> None:
    collect(TASK, 4, tmp_path / "two", seed=3, size=32, workers=2)
    assert contents(tmp_path / "two") == contents(four)


def test_a_worker_that_cannot_start_is_told_with_the_remedy(tmp_path: Path) -> None:
    script, out = tmp_path / "unguarded.py", tmp_path / "out"
    script.write_text(f"from timerewarder.envs.demos import collect\ncollect({TASK!r}, 4, {str(out)!r}, workers=2)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith("timerewarder.errors.UserError")
    assert "if __name__" in told
    assert not out.exists()


KILLED = """
import os, signal, sys
from timerewarder.envs import demos

renames, rename = 0, os.replace

def rename_or_die(*paths):
    global renames
    renames += 1
    if renames == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*paths)

os.replace = rename_or_die
demos.collect(sys.argv[2], 4, sys.argv[3], seed=3, size=32, workers=1)
"""


# Every file appears by being renamed: the index, then for each episode two scratch files, the same two under their
# final names, and the index again. So these are the moments within the second episode.
@pytest.mark.parametrize("moment", [8, 10, 11])
def test_a_killed_collection_goes_on_to_the_same_result(four: Path, tmp_path: Path, moment: int) -> None:
    out = tmp_path / "killed"
    done = subprocess.run([sys.executable, "-c", KILLED, str(moment), TASK, str(out)], stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    assert len(json.loads((out / "index.json").read_text())["episodes"]) == 1
    kept = (out / "episode_00000.mp4").stat().st_mtime_ns
    collect(TASK, 4, out, seed=3, **SMALL)
    assert contents(out) == contents(four)
    assert (out / "episode_00000.mp4").stat().st_mtime_ns == kept


def test_more_episodes_extend_a_folder_and_enough_return_at_once(
    four: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "growing"
    collect(TASK, 2, out, seed=3, **SMALL)
    assert collect(TASK, 4, out, seed=3, **SMALL)["new"] == 2
    assert contents(out) == contents(four)
    monkeypatch.setattr(demos, "MetaWorld", None)  # nothing is simulated any more
    assert collect(TASK, 4, out, seed=3, **SMALL)["new"] == 0


def test_a_lost_episode_is_made_again(four: Path, tmp_path: Path) -> None:
    out = tmp_path / "lost"
    collect(TASK, 4, out, seed=3, **SMALL)
    (out / "episode_00002.mp4").unlink()
    collect(TASK, 4, out, seed=3, **SMALL)
    assert contents(out) == contents(four)


def test_other_settings_are_refused_and_nothing_is_overwritten(four: Path) -> None:
    before = contents(four)
    with pytest.raises(UserError, match=r"policy 'expert' instead of 'noisy', seed 3 instead of 4"):
        collect(TASK, 4, four, seed=4, policy="noisy", **SMALL)
    assert contents(four) == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match="choose another folder"):
        collect(TASK, 1, tmp_path, **SMALL)
    with pytest.raises(UserError, match="choose another folder"):
        collect(TASK, 1, tmp_path / "thesis.tex", **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_failures_never_succeed_and_go_to_the_horizon(tmp_path: Path) -> None:
    summary = collect(TASK, 3, tmp_path / "failures", policy="noisy", keep="failure", **SMALL)
    assert summary["successes"] == 0
    for row in json.loads((tmp_path / "failures" / "index.json").read_text())["episodes"]:
        assert row["length"] == 63  # the first frame and 62 steps
        assert not load_file(tmp_path / "failures" / row["trajectory"])["success"].any()


def test_full_length_stands_still_after_success(tmp_path: Path) -> None:
    collect(TASK, 1, tmp_path, full_length=True, **SMALL)
    side = load_file(tmp_path / "episode_00000.safetensors")
    assert len(side["success"]) == 63
    solved = int(side["success"].argmax())
    assert 0 < solved < 50
    assert not side["actions"][solved:, :3].any()
    assert np.abs(np.diff(side["observations"][solved + 8 :, :3], axis=0)).max() < 2e-3


def test_random_motion_and_keeping_all(tmp_path: Path) -> None:
    summary = collect(TASK, 2, tmp_path, policy="random", keep="all", **SMALL)
    assert summary["attempts"] == summary["episodes"] == 2
    actions = load_file(tmp_path / "episode_00000.safetensors")["actions"]
    assert actions.std() > 0.2
    assert np.abs(np.diff(actions, axis=0)).mean() < np.abs(actions).mean()  # smooth


def test_a_policy_that_never_gives_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demos, "GIVE_UP", 2)
    with pytest.raises(UserError, match=r"no failure in 2 attempts \(nothing was written\).*noisy"):
        collect(TASK, 1, tmp_path / "none", keep="failure", **SMALL)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "draw-open"}, "unknown task"),
        ({"episodes": 0}, "at least 1"),
        ({"seed": -1}, "negative"),
        ({"policy": "lazy"}, "unknown policy 'lazy'"),
        ({"keep": "some"}, "cannot keep 'some'"),
        ({"camera": "drone"}, "unknown camera"),
        ({"ranges": "huge"}, "unknown start ranges"),
        ({"render": "slow"}, "unknown render mode"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"fps": 0.0}, "fps must be"),
        ({"size": 0}, "at least 1 pixel"),
    ],
)
def test_bad_arguments_write_nothing(tmp_path: Path, wrong: dict[str, object], message: str) -> None:
    arguments = {"task": TASK, "episodes": 1, "out": tmp_path / "out", **SMALL, **wrong}
    with pytest.raises(UserError, match=message):
        collect(**arguments)
    assert not (tmp_path / "out").exists()
