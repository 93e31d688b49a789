"""Goal pictures: what a path gives, which videos give them otherwise, and that a bad path is known at once."""

import numpy as np
import pytest
import torch
from PIL import Image

import timerewarder as tr
from tests.conftest import QUICK, SIZE, crossing
from timerewarder.data.store import open_store
from timerewarder.data.videos import write_video
from timerewarder.errors import UserError
from timerewarder.rewards import vip
from timerewarder.rewards.goals import GoalConfig, draw_goals, goal_windows, read_goals
from timerewarder.rewards.training import Training

GOALS = pytest.mark.parametrize("method", ["vip", "progressor"])


def test_no_path_gives_no_goals():
    assert read_goals(None, 0) == {}


def test_a_picture_is_a_goal(tmp_path):
    frame = crossing(1, 5)[-1]
    Image.fromarray(frame).save(tmp_path / "Goal.PNG")
    goals = read_goals(str(tmp_path / "Goal.PNG"), 2)
    assert list(goals) == ["Goal.PNG"]
    assert np.array_equal(goals["Goal.PNG"], frame[None])


def test_a_folder_of_pictures_gives_its_last_one(tmp_path):
    frames = crossing(1, 11)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f"frame{number}.png")  # 10 is after 9
    assert np.array_equal(next(iter(read_goals(str(tmp_path), 0).values())), frames[-1:])
    assert np.array_equal(next(iter(read_goals(str(tmp_path), 2).values())), frames[-3:])


def test_a_folder_of_one_picture_is_enough(tmp_path):
    Image.fromarray(crossing(1, 5)[-1]).save(tmp_path / "only.png")
    assert next(iter(read_goals(str(tmp_path), 3).values())).shape == (1, SIZE, SIZE, 3)


def test_a_video_gives_its_last_frame(tmp_path):
    frames = np.zeros((70, 32, 48, 3), np.uint8)  # more than a chunk of the reader
    frames[-1] = 200
    write_video(tmp_path / "v.mp4", frames, fps=10)
    goal = read_goals(str(tmp_path / "v.mp4"), 0)["v"]
    assert goal.shape == (1, 32, 48, 3)
    assert goal.mean() > 150
    assert read_goals(str(tmp_path / "v.mp4"), 4)["v"].shape == (5, 32, 48, 3)


def test_every_video_of_a_folder_gives_a_goal(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", crossing(ord(name), 4))
    goals = read_goals(str(tmp_path), 0)
    assert list(goals) == ["a", "b"]
    assert np.array_equal(goals["b"], crossing(ord("b"), 4)[-1:])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nowhere.png", None, "does not exist"),
        ("broken.png", b"no picture", "cannot be read as an image"),
        ("broken.mp4", b"no video", "give a picture or a video that can be read"),
        ("notes.txt", b"text", "is not a video"),
    ],
)
def test_bad_paths_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"(?s)--goal.*{message}") as error:
        read_goals(str(tmp_path / name), 0)
    assert "skip-bad" not in str(error.value)


def test_goals_are_last_frames_that_the_seed_draws(videos):
    store = open_store(videos, SIZE)
    drawn = draw_goals(store, GoalConfig(goals=3), history=1)
    assert len(drawn) == 3
    for name, frames in drawn.items():
        assert np.array_equal(frames, np.load(videos / f"{name}.npy")[-2:])
    assert list(drawn) == list(draw_goals(store, GoalConfig(goals=3), history=1))
    assert list(drawn) != list(draw_goals(store, GoalConfig(goals=3, training=Training(seed=5)), history=1))
    assert len(draw_goals(store, GoalConfig(goals=1000), history=0)) == len(store)


def test_a_goal_is_seen_with_its_past():
    reward = vip.VIP(vip.Config(image_size=SIZE, history=2))
    frames = crossing(1, 9)
    windows = goal_windows(reward, {"all": frames, "last": frames[-3:], "alone": frames[-1:]})
    features = reward.encode(frames)
    assert torch.allclose(windows[0], features[-3:].flatten(), atol=1e-5)
    assert torch.allclose(windows[1], windows[0], atol=1e-5)
    assert torch.allclose(windows[2], features[-1].repeat(3), atol=1e-5)


@GOALS
def test_no_goals_at_all_are_refused(method, videos):
    with pytest.raises(UserError, match="--goals 0"):
        tr.fit(videos, method=method, goals=0, **QUICK)


@GOALS
def test_a_bad_goal_costs_neither_time_nor_the_old_model(method, videos, tmp_path):
    out = tmp_path / "model"
    tr.fit(videos, out, method=method, **{**QUICK, "epoch_frames": 100, "validate_every": 50})
    before = (out / "weights.safetensors").read_bytes()
    for folder, options in ((tmp_path / "new", {}), (out, {"overwrite": True})):
        with pytest.raises(UserError, match="--goal"):
            tr.fit(videos, folder, method=method, goal=str(tmp_path / "nowhere.png"), **QUICK, **options)
    assert not (tmp_path / "new").exists()
    assert (out / "weights.safetensors").read_bytes() == before


@GOALS
def test_a_given_goal_is_the_reward_s(method, videos, tmp_path):
    frame = crossing(7, 8)[-1]
    Image.fromarray(frame).save(tmp_path / "goal.png")
    options = {**QUICK, "epoch_frames": 100, "validate_every": 50}
    reward = tr.fit(videos, tmp_path / "model", method=method, goal=str(tmp_path / "goal.png"), **options)
    assert reward.record["goals"] == ["goal.png"]
    features = reward.encode(frame[None])
    expected = reward.embed(features) if method == "vip" else features
    assert torch.allclose(reward.goals, expected, atol=1e-5)
    (tmp_path / "goal.png").unlink()  # a model has its goal, whatever becomes of the picture
    frames = crossing(8, 6)
    assert np.array_equal(tr.load(tmp_path / "model").score(frames), reward.score(frames))
