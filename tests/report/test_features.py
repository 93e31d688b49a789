from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image

from timerewarder.errors import UserError
from timerewarder.evaluation.features import Projection, Trajectory
from timerewarder.report.features import FAILURE, SUCCESS, labels, panels_of, plot_features, write_table


def projection(*kinds: str) -> Projection:
    """A straight way for each kind, to the right and a little up."""
    way = np.linspace([-1, 0], [1, 0.5], 20)
    return Projection((0.7, 0.2), [Trajectory(kind, f"{kind} one", way + 0.1 * i) for i, kind in enumerate(kinds)])


def pixels(path) -> set[int]:
    """The colours of a picture as 0xRRGGBB."""
    with Image.open(path) as image:
        return set(np.unique(np.asarray(image.convert("RGB"), int) @ [0x10000, 0x100, 1]).tolist())


def darkest(colour_map) -> int:
    red, green, blue = (round(255 * part) for part in colour_map(1.0)[:3])
    return red << 16 | green << 8 | blue


@pytest.mark.parametrize(
    ("kinds", "panels"),
    [
        (
            ["train", "held-out", "failure"],
            {"training": ["train"], "held-out": ["held-out"], "success and failure": ["held-out", "failure"]},
        ),
        (["train", "failure"], {"training": ["train"], "success and failure": ["train", "failure"]}),
        (["held-out"], {"held-out": ["held-out"]}),
        (["failure"], {"failure": ["failure"]}),
    ],
)
def test_columns_are_what_the_videos_allow(kinds, panels):
    assert panels_of(kinds) == panels


def test_table_has_a_row_a_frame(tmp_path):
    write_table({"a": projection("train"), "b": projection("train", "failure")}, tmp_path / "features.csv")
    rows = list(csv.DictReader((tmp_path / "features.csv").open()))
    assert len(rows) == 60
    assert list(rows[0]) == ["model", "kind", "video", "frame", "pc1", "pc2"]
    assert rows[19] == {"model": "a", "kind": "train", "video": "train one", "frame": "19", "pc1": "1", "pc2": "0.5"}
    assert {row["kind"] for row in rows if row["model"] == "b"} == {"train", "failure"}


def test_success_and_failure_have_their_own_colours(tmp_path):
    plot_features({"a": projection("train", "held-out")}, tmp_path / "success.png")
    plot_features({"a": projection("train", "failure")}, tmp_path / "both.png")
    assert darkest(SUCCESS) in pixels(tmp_path / "success.png")
    assert darkest(FAILURE) not in pixels(tmp_path / "success.png")
    assert {darkest(SUCCESS), darkest(FAILURE)} <= pixels(tmp_path / "both.png")


def test_figure_has_a_row_a_model(tmp_path):
    kinds = ("train", "held-out", "failure")
    plot_features({"a $x": projection(*kinds), "b": projection(*kinds)}, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]
    for words in ("a $x", "b", "PC 1 (70%)", "training", "held-out", "success and failure"):
        assert f"<!-- {words}" in text
    assert text.count("<!-- PC 1 (70%) -->") == 6


def test_models_are_called_by_their_folders_unless_two_would_be_called_the_same(tmp_path):
    for name in ("x/model", "y/model", "z"):
        (tmp_path / name).mkdir(parents=True)
    given = [str(tmp_path / name) for name in ("x/model", "y/model", "z")]
    assert labels(given) == [given[0], given[1], "z"]
    assert labels(["user/hub-model"]) == ["user/hub-model"]
    with pytest.raises(UserError, match="named twice"):
        labels(["z", "z"])
