from __future__ import annotations

import csv
import dataclasses
from pathlib import Path, PurePosixPath

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageColor

from timerewarder.report.overlay import PANEL_WIDTH, overlay_frames, safe_name, write_overlay, write_scores, write_table
from timerewarder.report.plots import CURVE


def decode(path) -> tuple[np.ndarray, float]:
    with av.open(str(path)) as container:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
        return frames, float(container.streams.video[0].average_rate)


def test_overlay_has_the_picture_the_panel_and_every_frame(make_clip, tmp_path):
    clip = make_clip()
    write_overlay(clip, tmp_path / "overlay.mp4")
    frames, fps = decode(tmp_path / "overlay.mp4")
    assert frames.shape == (12, 336, 448 + PANEL_WIDTH, 3)
    assert fps == clip.fps
    # The square is 8 of 64 columns wide and 7 times as large here; it moves from the left to the right of the picture.
    assert frames[0, 56:112, :50].mean() > 200 > 50 > frames[-1, 56:112, :50].mean()
    assert frames[-1, 56:112, 400:448].mean() > 200 > 50 > frames[0, 56:112, 400:448].mean()


def test_overlay_draws_the_curve_up_to_the_current_frame_only(make_clip):
    clip = make_clip()
    drawn = []
    for frame in overlay_frames(clip):
        panel = frame[50:, -PANEL_WIDTH:].astype(int)
        like_curve = np.abs(panel - ImageColor.getrgb(CURVE)).sum(axis=-1) < 40
        drawn.append(np.flatnonzero(like_curve.any(axis=0)).max())
    steps = np.diff(drawn)
    # One frame is the same number of pixels everywhere, so the end of the curve advances evenly.
    assert steps.min() > 20
    assert steps.max() - steps.min() <= 2


def test_large_and_very_wide_pictures_are_reduced(make_clip):
    tall = next(overlay_frames(make_clip(size=(1000, 500), length=3)))
    assert tall.shape == (480, 240 + PANEL_WIDTH, 3)
    wide = next(overlay_frames(make_clip(size=(100, 1000), length=3)))
    assert wide.shape == (336, 854 + PANEL_WIDTH, 3)


def test_table_lists_frame_time_reward_and_progress(make_clip, tmp_path):
    clip = make_clip()
    write_table(clip, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["frame", "time", "reward", "progress"]
    assert [int(row["frame"]) for row in rows] == list(range(12))
    np.testing.assert_allclose([float(row["time"]) for row in rows], np.arange(12) / 10)
    np.testing.assert_array_equal(np.array([row["reward"] for row in rows], np.float32), clip.rewards)
    np.testing.assert_array_equal(np.array([row["progress"] for row in rows], np.float32), clip.progress)


def test_scores_are_four_files_beside_each_other(make_clip, tmp_path):
    paths = write_scores(make_clip("task/episode_3"), tmp_path)
    assert paths == {
        "csv": tmp_path / "task/episode_3.csv",
        "png": tmp_path / "task/episode_3.png",
        "mp4": tmp_path / "task/episode_3.mp4",
        "distances": tmp_path / "task/episode_3_distances.png",
    }
    assert set((tmp_path / "task").iterdir()) == set(paths.values())
    assert len(decode(paths["mp4"])[0]) == 12
    for key in ("png", "distances"):
        with Image.open(paths[key]) as image:
            image.verify()


def test_scores_without_distances_are_three_files(make_clip, tmp_path):
    paths = write_scores(dataclasses.replace(make_clip("ep.1"), distances=None), tmp_path)
    assert set(paths.values()) == {tmp_path / "ep.1.csv", tmp_path / "ep.1.png", tmp_path / "ep.1.mp4"}
    assert set(tmp_path.iterdir()) == set(paths.values())


@pytest.mark.parametrize("name", ["episode_000", "drawer-open/episode_000", "ep.mp4", "a/b/c", "épisode", "走"])
def test_plain_names_stay_as_they_are(name):
    assert safe_name(name) == name


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a//b", "./a", "..", ".", "", "/", "a/../b", ".x", "-rf"]
)
def test_names_cannot_leave_the_folder_or_hide(name):
    parts = PurePosixPath(safe_name(name)).parts
    assert parts
    assert not any(part.startswith((".", "-", "/")) for part in parts)


def test_a_plot_of_distances_is_never_another_clips_curve():
    assert safe_name("x") == "x"
    assert safe_name("x_distances") != "x_distances"


@given(st.lists(st.text(max_size=20) | st.text("a b_./:\\\n", max_size=5), min_size=2, max_size=30, unique=True))
def test_different_names_give_different_files(names):
    assert len({safe_name(name) for name in names}) == len(names)


@given(st.text(st.characters(exclude_categories=[]), max_size=400))
def test_any_name_can_be_written(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp() / "names"
    path = folder / (safe_name(name) + "_distances.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert Path(folder).resolve() in path.resolve().parents
    path.unlink()
