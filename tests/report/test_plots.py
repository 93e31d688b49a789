from __future__ import annotations

import dataclasses

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from PIL import Image

from timerewarder.report.plots import DOWN, UP, plot_curve, plot_distances, progress_limits


def share_of(path, colour: str) -> float:
    """Share of the pixels of a picture that have exactly this colour."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    with Image.open(path) as image:
        return float((np.asarray(image.convert("RGB")) == rgb).all(axis=-1).mean())


def test_curve_shows_bars_in_the_colour_of_their_sign(make_clip, tmp_path):
    forward = make_clip()
    backward = dataclasses.replace(forward, rewards=-forward.rewards, progress=-forward.progress)
    plot_curve(forward, tmp_path / "up.png")
    plot_curve(backward, tmp_path / "down.png")
    assert share_of(tmp_path / "up.png", UP) > 0.02 > share_of(tmp_path / "up.png", DOWN) == 0
    assert share_of(tmp_path / "down.png", DOWN) > 0.02 > share_of(tmp_path / "down.png", UP) == 0


def test_curve_is_of_print_size_and_without_leftovers(make_clip, tmp_path):
    plot_curve(make_clip("a $x_$ \udcff </b>"), tmp_path / "deep" / "curve.png")
    with Image.open(tmp_path / "deep" / "curve.png") as image:
        assert image.size == (1400, 780)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["curve.png"]


def test_distances_plot_shows_prediction_beside_truth(make_clip, tmp_path):
    distances = make_clip().distances
    plot_distances(distances, tmp_path / "good.png", "good")
    plot_distances(0 * distances, tmp_path / "blind.png", "blind")
    with Image.open(tmp_path / "good.png") as good, Image.open(tmp_path / "blind.png") as blind:
        assert good.size == blind.size
        difference = np.abs(np.asarray(good, int)[..., :3] - np.asarray(blind, int)[..., :3]).sum(axis=-1) > 30
    middle = difference.shape[1] // 2
    assert difference[60:, : middle - 100].mean() > 0.5
    assert difference[60:, middle:].mean() == 0


def test_plots_take_values_that_are_not_numbers(make_clip, tmp_path):
    clip = make_clip()
    rewards, progress = clip.rewards.copy(), clip.progress.copy()
    rewards[3], progress[3:] = np.nan, np.inf
    plot_curve(dataclasses.replace(clip, rewards=rewards, progress=progress), tmp_path / "curve.png")
    plot_distances(np.full((12, 12), np.nan), tmp_path / "distances.png", "none")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert (tmp_path / "distances.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("progress", "low", "high"), [([0.0, 0.5], 0, 1), ([0.0, -1.0], -1, 1), ([0.0, 2.0], 0, 2), ([np.nan], 0, 1)]
)
def test_limits_always_hold_zero_to_one(progress, low, high):
    margin = 0.06 * (high - low)
    assert progress_limits(np.array(progress)) == pytest.approx((low - margin, high + margin))


def test_drawing_leaves_no_global_figure_and_no_changed_setting(make_clip, tmp_path):
    settings = dict(matplotlib.rcParams)
    plot_curve(make_clip(), tmp_path / "curve.png")
    assert Gcf.get_all_fig_managers() == []
    assert dict(matplotlib.rcParams) == settings
