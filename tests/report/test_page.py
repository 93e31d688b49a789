from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from timerewarder.report.page import COUNTS, LARGEST_MATRIX, METRICS, write_page

EVALUATION = {
    "voc": 0.99,
    "voc_from_first": 0.98,
    "voc_reversed": -0.97,
    "frozen_sum": 0.01,
    "pair_mae": 0.04,
    "adjacent_sign_accuracy": 0.96,
    "success_auroc": None,
    "videos": 3,
    "frames": 36,
    "frames_per_second": 512.5,
}


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.titles: list[str] = []
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag in ("script", "title"):
            (self.scripts if tag == "script" else self.titles).append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside == "title":
            self.titles[-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[0], parse_constant=pytest.fail)


@pytest.fixture
def page(make_clip, tmp_path):
    """Write a page, with what a test wants to be different, and parse it."""

    def write(**changes) -> Page:
        options = {
            "title": "moving squares",
            "metrics": EVALUATION,
            "clips": [make_clip(), make_clip("drops", "failure"), make_clip("square", "reversed")],
            "config": {"method": "timerewarder", "encoder": {"name": "small"}},
            "log": [{"step": 1, "frames": 32, "loss": 3.0}, {"step": 2, "frames": 64, "loss": 2.5, "val_loss": 2.6}],
        }
        write_page(tmp_path / "report.html", **options | changes)
        assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
        return Page((tmp_path / "report.html").read_text("utf-8"))

    return write


def decode(uri: str) -> np.ndarray:
    header, content = uri.split(",", 1)
    assert header == "data:video/mp4;base64"
    with av.open(io.BytesIO(base64.b64decode(content, validate=True))) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_page_fetches_nothing(page, tmp_path):
    written = page()
    assert not re.search(
        r"https?://|url\(|@import|\bimport\s*\(|\bfetch\s*\(|XMLHttpRequest",
        (tmp_path / "report.html").read_text("utf-8"),
    )
    for tag, attributes in written.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_every_id_the_script_asks_for_exists_once(page, tmp_path):
    written = page()
    ids = [attributes["id"] for _, attributes in written.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'getElementById\("([\w-]+)"\)', written.scripts[1])) <= set(ids)
    assert set(re.findall(r'section\("([\w-]+)"', written.scripts[1])) <= set(ids)


def test_every_clip_is_embedded_and_decodes_to_its_frames(page, make_clip):
    clips = [make_clip(), make_clip("odd", "failure", length=5, size=(51, 77)), make_clip("large", size=(720, 400))]
    embedded = page(clips=clips).data["clips"]
    assert [clip["name"] for clip in embedded] == ["square", "odd", "large"]
    assert [clip["kind"] for clip in embedded] == ["held-out", "failure", "held-out"]
    videos = [decode(clip["video"]) for clip in embedded]
    assert [video.shape[:2] for video in videos] == [(12, 252), (5, 252), (12, 360)]
    for clip, shown, video in zip(clips, embedded, videos, strict=True):
        assert shown["fps"] == clip.fps
        np.testing.assert_allclose(shown["rewards"], clip.rewards, atol=1e-5)
        np.testing.assert_allclose(shown["progress"], clip.progress, atol=1e-5)
        for frame, picture in zip(clip.frames, video, strict=True):
            assert abs(float(frame.mean()) - float(picture.mean())) < 3
        assert abs(int(video[0].argmax()) - int(video[-1].argmax())) > 0
        with Image.open(io.BytesIO(base64.b64decode(shown["poster"].split(",")[1]))) as poster:
            assert poster.size == video.shape[2:0:-1]


def test_names_and_texts_cannot_become_markup(page, make_clip):
    evil = "</script><script>alert(1)</script><!-- {{ data }} & \udcff"
    plain = page()
    written = page(
        title=evil,
        subtitle=evil,
        model=evil,
        command=evil,
        metrics={evil: 1.0},
        clips=[make_clip(evil, evil)],
        config={evil: evil},
        log=[{evil: 1.0}],
        final_values={evil: {evil: 1.0}},
    )
    assert [tag for tag, _ in written.elements] == [tag for tag, _ in plain.elements]
    assert written.scripts[1] == plain.scripts[1]
    assert "innerHTML" not in written.scripts[1]
    assert written.titles[0].startswith(evil[:-1])
    data = written.data
    assert {data["title"], data["command"], data["clips"][0]["name"], data["metrics"][0]["label"]} == {evil}
    assert data["config"] == {evil: evil}
    assert data["finals"] == {evil: {evil: 1.0}}


def test_numbers_that_json_does_not_have_become_null(page, make_clip):
    clip = make_clip()
    rewards, progress, distances = clip.rewards.copy(), clip.progress.copy(), clip.distances.copy()
    rewards[1], progress[2], distances[0, 1] = np.nan, np.inf, -np.inf
    data = page(
        clips=[dataclasses.replace(clip, rewards=rewards, progress=progress, distances=distances)],
        metrics={"voc": float("nan")},
        log=[{"frames": 1, "loss": np.float32("inf"), "val_loss": None}],
        config={"limit": float("-inf"), "deep": [{"x": np.float64("nan")}]},
        final_values={"held-out": {"square": float("nan")}},
    ).data  # `data` fails on NaN and Infinity
    assert data["clips"][0]["rewards"][:3] == [0, None, pytest.approx(1 / 11, abs=1e-5)]
    assert data["clips"][0]["progress"][2] is None
    assert data["metrics"][0]["value"] is None
    assert data["log"] == [{"frames": 1, "loss": None, "val_loss": None}]
    assert data["config"] == {"limit": None, "deep": [{"x": None}]}
    assert np.frombuffer(base64.b64decode(data["clips"][0]["distances"]["steps"]), "<i2")[1] == -32768


def test_metrics_come_with_their_meaning_and_what_a_constant_reward_gets(page):
    data = page(metrics={**EVALUATION, "my_metric": 7}).data
    rows = {row["key"]: row for row in data["metrics"]}
    assert set(rows) == set(METRICS) | {"my_metric"}
    for key in METRICS:
        assert rows[key]["value"] == EVALUATION[key]
        low, high = rows[key]["scale"]
        assert all(low <= rows[key][column] <= high for column in ("perfect", "constant"))
        assert rows[key]["meaning"].endswith(".")
    # The reason for the controls: a constant reward is perfect on VOC and on nothing else.
    assert [key for key, metric in METRICS.items() if metric.perfect == metric.constant] == ["voc"]
    assert rows["my_metric"] == {"key": "my_metric", "label": "my_metric", "value": 7}
    assert {row["label"]: row["value"] for row in data["counts"]} == {COUNTS[key]: EVALUATION[key] for key in COUNTS}


def test_distances_survive_to_a_thousandth(page, make_clip):
    clip = make_clip()
    distances = 1.7 * clip.distances
    embedded = page(clips=[dataclasses.replace(clip, distances=distances, unit=23)]).data["clips"][0]
    assert embedded["unit"] == 23
    matrix = embedded["distances"]
    assert matrix["frames"] == list(range(12))
    steps = np.frombuffer(base64.b64decode(matrix["steps"]), "<i2").reshape(12, 12)
    np.testing.assert_allclose(steps * matrix["unit"], distances, atol=1e-3)


def test_a_long_videos_matrix_is_thinned_from_first_to_last_frame(page, make_clip):
    length = LARGEST_MATRIX + 100
    clip = make_clip(length=length)
    matrix = page(clips=[clip]).data["clips"][0]["distances"]
    assert len(matrix["frames"]) == len(set(matrix["frames"])) == LARGEST_MATRIX
    assert (matrix["frames"][0], matrix["frames"][-1]) == (0, length - 1)
    steps = np.frombuffer(base64.b64decode(matrix["steps"]), "<i2").reshape(LARGEST_MATRIX, LARGEST_MATRIX)
    expected = clip.distances[np.ix_(matrix["frames"], matrix["frames"])]
    np.testing.assert_allclose(steps * matrix["unit"], expected, atol=1e-3)


def test_known_kinds_come_first_and_in_order(page, make_clip):
    clips = [make_clip(kind=kind) for kind in ("mine", "reversed", "failure", "held-out")]
    kinds = page(clips=clips).data["kinds"]
    assert [kind["kind"] for kind in kinds] == ["held-out", "failure", "reversed", "mine"]
    assert [kind["ideal"] for kind in kinds] == [1, None, -1, None]


def test_final_values_are_those_of_the_clips_unless_given(page):
    finals = page().data["finals"]
    assert finals == {
        kind: {name: pytest.approx(1)}
        for kind, name in (("held-out", "square"), ("failure", "drops"), ("reversed", "square"))
    }
    given = {"held-out": {"a": 0.9, "b": 1.1}, "failure": {"c": 0.1}}
    assert page(final_values=given).data["finals"] == given


def test_configuration_may_hold_paths_dataclasses_and_arrays(page):
    @dataclasses.dataclass(frozen=True)
    class Config:
        folder: Path = Path("runs/x")
        sizes: tuple[int, ...] = (84, 84)
        shift: np.ndarray = dataclasses.field(default_factory=lambda: np.array([1, 2]))
        fast: bool = True

    config = page(config={"fit": Config()}).data["config"]
    assert config == {"fit": {"folder": "runs/x", "sizes": [84, 84], "shift": [1, 2], "fast": True}}


def test_a_page_about_nothing_is_still_a_page(page):
    data = page(metrics={}, clips=[], config={}, log=[]).data
    assert data["clips"] == data["metrics"] == data["log"] == []
    assert data["finals"] == {}
