from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import timerewarder as tr
from tests.report.test_page import Page, decode
from timerewarder.data.source import Opening
from timerewarder.evaluation.comparison import COSTS, Data, Entry
from timerewarder.report.comparison import (
    PICTURES,
    command_line,
    curves_of,
    film_strip,
    page_text,
    plot_curves,
    table_text,
)
from timerewarder.report.page import METRICS

SHARED = {"encoder": "small", "minutes": 1.5, "seed": 3}
LENGTHS = {"held-out": 13, "failure": 16}
METRICS_OF_ONE = {name: 0.5 for name in METRICS} | {"videos": 6, "frames": 80}


def entry(method: str = "walker", **changes) -> Entry:
    """What a method with a value leaves: its rewards are 0, 1, 2, ... hundredths."""
    rewards = {kind: [step / 100 for step in range(length)] for kind, length in LENGTHS.items()}
    costs = dict(zip(COSTS, (60.5, 1000.25, 5.0, 512.0), strict=True))
    return replace(Entry(method, "small", True, METRICS_OF_ONE, costs, rewards, 24), **changes)


@pytest.fixture(scope="module")
def shown(heldout, failures):
    return {kind: next(tr.read_videos(places)) for kind, places in (("held-out", heldout), ("failure", failures))}


@pytest.fixture
def entries():
    """One with a value, one without, one that failed."""
    without = dict.fromkeys(METRICS) | {"success_auroc": 0.75, "videos": 6, "frames": 80}
    return [
        entry(),
        entry("matcher", is_value=False, metrics=without),
        Entry("broken", "small", error="no </script> x"),
    ]


@pytest.fixture
def page(entries, shown):
    return Page(page_text(entries, shown, SHARED, "timerewarder compare"))


# --- table ------------------------------------------------------------------------------------------------------------


def test_table_has_a_row_a_method_with_empty_cells_where_nothing_is_meant(entries):
    text = table_text(entries, SHARED, "timerewarder compare --methods a,b")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["method"] for row in rows] == ["walker", "matcher", "broken"]
    assert list(rows[0])[: len(METRICS) + 1] == ["method", *METRICS]
    assert [rows[0][name] for name in METRICS] == ["0.5"] * len(METRICS)
    assert [name for name in METRICS if rows[1][name]] == ["success_auroc"]
    assert {name: rows[0][name] for name in COSTS} == {
        "fit_seconds": "60.5", "frames_per_second": "1000.25", "model_megabytes": "5", "peak_megabytes": "512",
    }  # fmt: skip
    assert [rows[1][name] for name in ("train_videos", "videos", "frames")] == ["24", "6", "80"]
    assert [row["error"] for row in rows] == ["", "", "no </script> x"]
    assert {(row["encoder"], row["minutes"], row["seed"]) for row in rows} == {("small", "1.5", "3")}
    assert {row["command"] for row in rows} == {"timerewarder compare --methods a,b"}
    assert not any(rows[2][name] for name in (*METRICS, *COSTS))


def test_command_can_be_typed():
    data = Data(("a b", "c"), ("d",), ("e",), Opening(5.0, skip_bad=True, camera="top", task="open it"))
    assert command_line("all", data, Path("out"), {"encoder": "small", "seed": 0, "encoder_weights": None}) == (
        "timerewarder compare --methods all --train 'a b' c --test d --failures e --encoder small --seed 0 --fps 5.0 "
        "--camera top --task 'open it' --skip-bad --out out"
    )


# --- page -------------------------------------------------------------------------------------------------------------


def test_page_fetches_nothing(entries, shown, page):
    text = page_text(entries, shown, SHARED, "")
    assert not re.search(r"https?://|url\(|@import|\bimport\s*\(|\bfetch\s*\(|XMLHttpRequest", text)
    assert "{{" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_every_id_the_script_asks_for_exists_once(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'getElementById\("([\w-]+)"\)', page.scripts[1])) <= set(ids)
    sections = set(re.findall(r'section\("([\w-]+)"', page.scripts[1]))
    assert sections == {"metrics", "curves", "costs"} <= set(ids)


def test_page_has_every_metric_with_what_a_constant_reward_gets(page):
    assert [metric["key"] for metric in page.data["metrics"]] == list(METRICS)
    assert [metric["constant"] for metric in page.data["metrics"]] == [m.constant for m in METRICS.values()]
    assert [metric["perfect"] for metric in page.data["metrics"]] == [m.perfect for m in METRICS.values()]


def test_page_has_the_methods_that_worked_and_why_others_did_not(page):
    assert [(method["name"], method["value"]) for method in page.data["methods"]] == [
        ("walker", True),
        ("matcher", False),
    ]
    assert page.data["failed"] == [{"name": "broken", "error": "no </script> x"}]
    assert page.data["methods"][1]["metrics"]["voc"] is None
    assert page.data["methods"][0]["costs"]["fit_seconds"] == 60.5
    assert page.titles == ["2 rewards on the same videos"]
    for words in ("24 videos", "6 others", "small", "1.5 min", "seed 3"):
        assert words in page.data["subtitle"]


def test_both_videos_are_embedded_and_decode_to_their_frames(page, shown):
    for clip, (kind, video) in zip(page.data["clips"], shown.items(), strict=True):
        assert (clip["kind"], clip["name"], clip["fps"]) == (kind, video.name, video.fps)
        decoded = decode(clip["video"])
        assert clip["length"] == len(decoded) == len(video.frames)


def test_curves_are_values_or_else_step_rewards(entries, page):
    walker, matcher = page.data["methods"]
    for kind, length in LENGTHS.items():
        steps = np.arange(length) / 100
        assert walker["curves"][kind] == pytest.approx(np.cumsum(steps), rel=1e-4)
        assert matcher["curves"][kind][0] is None  # nothing is rewarded at the first frame
        assert matcher["curves"][kind][1:] == pytest.approx(steps[1:])
    assert np.isnan(curves_of(entries[1])["failure"][0])


def test_one_method_and_no_failure_still_make_a_page(shown, tmp_path):
    one = entry(rewards={"held-out": [0.0] * LENGTHS["held-out"]}, costs=dict.fromkeys(COSTS))
    only = {"held-out": shown["held-out"]}
    page = Page(page_text([one], only, {}, ""))
    assert page.titles == ["walker on held-out videos"]
    assert [clip["kind"] for clip in page.data["clips"]] == ["held-out"]
    plot_curves([one], only, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_numbers_that_are_none_do_not_break_the_page(shown):
    odd = entry(rewards={kind: [0.0, float("nan"), float("inf")] for kind in LENGTHS})
    curve = Page(page_text([odd], shown, SHARED, "")).data["methods"][0]["curves"]["failure"]
    assert curve == [0, None, None]


# --- figure -----------------------------------------------------------------------------------------------------------


def test_figure_names_every_method(shown, tmp_path):
    entries = [entry(f"method-{number}", is_value=number % 2 == 0) for number in range(5)]
    plot_curves(entries, shown, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]
    for words in (*(entry.method for entry in entries), "success", "failure"):
        assert f"<!-- {words} -->" in text
    assert (text.count("<!-- value -->"), text.count("<!-- step reward -->")) == (3, 2)


def test_film_strip_goes_from_the_first_frame_to_the_last(shown):
    frames = shown["failure"].frames
    strip, middles = film_strip(frames)
    assert len(middles) == PICTURES
    assert (min(middles), max(middles)) == (0, len(frames) - 1)
    assert strip.shape[0] == 84
    picture = strip[:, : strip.shape[1] // PICTURES - 3].astype(int)
    assert abs(picture.mean() - frames[0].mean()) < 3


def test_data_is_valid_json_whatever_a_name_holds(shown):
    text = page_text([entry("</script><b>&\u2028")], shown, SHARED, 'x "y" </script>')
    page = Page(text)
    assert page.data["methods"][0]["name"] == "</script><b>&\u2028"
    assert json.loads(json.dumps(page.data))["command"] == 'x "y" </script>'
