from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.report.test_page import Page
from timerewarder.errors import UserError
from timerewarder.report import curves
from timerewarder.report.curves import (
    COLOURS,
    DASHES,
    LONGEST_LOG,
    MARKERS,
    MEASURES,
    SLOTS,
    mean_curve,
    plot_learning_curves,
    report_policies,
)
from timerewarder.report.policy_runs import is_policy_run, read_policy_runs, read_table

EVALUATION = (
    "env_frames,agent_steps,seconds,episodes,task_return,learned_return,success_once,success_at_end,success_gt3\n"
)
TRAINING = "env_frames,agent_steps,seconds,frames_per_second,task_return,alpha,critic_loss,q\n"
WriteRun = Callable[..., Path]


def evaluation_rows(frames: Sequence[float], successes: Sequence[float], pace: float = 50.0) -> str:
    """Rows in which success_once is a tenth more than success_gt3 and the task return is a hundred times as large."""
    return "".join(
        f"{frame},{frame // 2},{frame / pace},10,{100 * success},{success / 2},{success + 0.1},{success},{success}\n"
        for frame, success in zip(frames, successes, strict=True)
    )


@pytest.fixture
def write_run(tmp_path) -> WriteRun:
    """Write a run folder; `rows` are (frames, successes), or the text below the header of eval.csv."""

    def write(name: str, rows: object = ((10_000, 20_000), (0.5, 1.0)), train: str = "", **changes) -> Path:
        folder = tmp_path / "runs" / name
        (folder / "videos").mkdir(parents=True)
        config = {
            "kind": "policy",
            "task": "drawer-open",
            "reward": "learned",
            "reward_name": "timerewarder",
            "obs": "pixels",
            "preset": "cpu",
            "seed": 0,
            "command": "timerewarder train --task drawer-open",
            "config": {"frames": 20_000, "agent": {"lr": 3e-4}},
        }
        (folder / "config.json").write_text(json.dumps(config | changes))
        text = rows if isinstance(rows, str) else evaluation_rows(*rows)  # type: ignore[misc]
        (folder / "eval.csv").write_text(EVALUATION + text)
        (folder / "train.csv").write_text(TRAINING + train)
        return folder

    return write


@pytest.fixture
def page(tmp_path) -> Callable[..., Page]:
    def write(*runs: Path, **options) -> Page:
        report_policies(runs, tmp_path / "page.html", **options)
        return Page((tmp_path / "page.html").read_text("utf-8"))

    return write


def lines(*pairs: tuple[Sequence[float], Sequence[float]]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    return {seed: (np.array(x, float), np.array(y, float)) for seed, (x, y) in enumerate(pairs)}


# ---- statistics ----


@given(
    values=st.lists(
        st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=2, max_size=5
    )  # seeds x evaluations
)
def test_mean_and_deviation_are_those_of_the_sample(values):
    curve = mean_curve(lines(*(([0, 10, 20, 30], row) for row in values)))
    np.testing.assert_array_equal(curve.places, [0, 10, 20, 30])
    np.testing.assert_allclose(curve.mean, np.mean(values, axis=0), atol=1e-6)
    np.testing.assert_allclose(curve.deviation, np.std(values, axis=0, ddof=1), atol=1e-6)
    assert curve.tails == []


def test_mean_ends_where_the_first_seed_ends_and_the_others_go_on_alone():
    curve = mean_curve(lines(([0, 10, 20, 30], [0, 0.2, 0.4, 1]), ([0, 10], [0, 0.4]), ([10, 20], [0.6, 0.9])))
    np.testing.assert_array_equal(curve.places, [10])
    assert curve.mean[0] == pytest.approx(0.4)
    tails = [(seed, x.tolist(), y.tolist()) for seed, (x, y) in curve.tails]
    assert tails == [
        (0, [0, 10], [0, 0.2]),
        (0, [10, 20, 30], [0.2, 0.4, 1]),
        (1, [0, 10], [0, 0.4]),
        (2, [10, 20], [0.6, 0.9]),
    ]


def test_evaluations_at_different_places_are_interpolated():
    curve = mean_curve(lines(([0, 10, 20], [0, 1, 1]), ([0, 5, 20], [0, 0.5, 0.5])))
    np.testing.assert_array_equal(curve.places, [0, 5, 10, 20])
    np.testing.assert_allclose(curve.mean, [0, 0.5, 0.75, 0.75])


def test_seeds_without_a_common_place_have_no_mean():
    curve = mean_curve(lines(([0, 10], [0, 1]), ([20, 30], [0, 1])))
    assert len(curve.places) == len(curve.mean) == 0
    assert [seed for seed, _ in curve.tails] == [0, 1]


def test_one_seed_has_no_deviation():
    curve = mean_curve(lines(([0, 10], [0, 1])))
    assert curve.deviation is None
    np.testing.assert_array_equal(curve.mean, [0, 1])


# ---- tables ----


def table(tmp_path: Path, text: str) -> dict[str, list[float]]:
    (tmp_path / "table.csv").write_bytes(text.encode())
    return {column: values.tolist() for column, values in read_table(tmp_path / "table.csv").items()}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_half_written_last_line_is_left_out(tmp_path, end):
    whole = f"env_frames,q{end}10,0.5{end}20,0.75{end}"
    expected = {"env_frames": [10, 20], "q": [0.5, 0.75]}
    assert table(tmp_path, whole) == expected
    for torn in ("3", "30,", "30,0.7", "30,0.75", "\x00\x00"):  # even a full row: its last number may go on
        assert table(tmp_path, whole + torn) == expected


def test_lines_that_are_no_row_are_left_out(tmp_path):
    text = "env_frames,q\n10,0.5\n20,0.30,0.6\n\n\x00\x00\nenv_frames,q\n40,1\n,2\n"
    assert table(tmp_path, text) == {"env_frames": [10, 40], "q": [0.5, 1]}


def test_what_a_resumed_run_repeats_counts_once_and_the_later_row_wins(tmp_path):
    text = "env_frames,q\n10,1\n20,2\n30,3\n20,22\n30,33\n40,44\n40,45\n"
    assert table(tmp_path, text) == {"env_frames": [10, 20, 30, 40], "q": [1, 22, 33, 45]}


def test_missing_files_and_empty_tables_are_empty(tmp_path):
    assert read_table(tmp_path / "none.csv") == {}
    assert table(tmp_path, "") == {}
    assert table(tmp_path, "env_frames,q") == {}
    assert table(tmp_path, "env_frames,q\n") == {"env_frames": [], "q": []}


def test_an_empty_cell_is_no_number_but_the_row_stays(tmp_path):
    (tmp_path / "table.csv").write_text("env_frames,q\n10,\n20,nan\n30,3\n")
    np.testing.assert_array_equal(read_table(tmp_path / "table.csv")["q"], [np.nan, np.nan, 3])


# ---- the page's numbers ----


def test_page_holds_mean_and_deviation_over_the_seeds(write_run, page):
    successes = [[0.0, 0.3, 1.0], [0.1, 0.5, 0.8], [0.0, 0.2, 0.9]]
    frames = [10_000, 20_000, 30_000]
    runs = [write_run(f"s{seed}", (frames, row), seed=seed) for seed, row in enumerate(successes)]
    [task] = page(*runs).data["tasks"]
    [group] = task["groups"]
    assert (task["task"], group["label"], group["slot"]) == ("drawer-open", "timerewarder", 0)
    for measure, values in {"success_gt3": np.array(successes), "task_return": 100 * np.array(successes)}.items():
        curve = group["curves"][measure]["frames"]
        assert curve["x"] == frames
        np.testing.assert_allclose(curve["mean"], values.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(curve["sd"], values.std(axis=0, ddof=1), rtol=1e-6)
        assert [line["seed"] for line in curve["lines"]] == [0, 1, 2]
        assert curve["tails"] == []
    assert group["curves"]["success_gt3"]["minutes"]["x"] == pytest.approx([frame / 50 / 60 for frame in frames])


def test_minutes_are_averaged_at_the_same_minute(write_run, page):
    slow = evaluation_rows([1000, 2000], [0.0, 1.0], pace=1000 / 120)  # 2 and 4 minutes
    fast = evaluation_rows([1000, 2000, 3000], [0.5, 0.5, 0.5], pace=1000 / 60)  # 1, 2 and 3 minutes
    runs = [write_run("slow", slow), write_run("fast", fast, seed=1)]
    curve = page(*runs).data["tasks"][0]["groups"][0]["curves"]["success_gt3"]["minutes"]
    assert curve["x"] == pytest.approx([2, 3])
    assert curve["mean"] == pytest.approx([0.25, 0.5])


def test_table_of_runs(write_run, page):
    train = "".join(f"{frame},0,{frame / 25},25,1,0.5,0.1,2\n" for frame in (15_000, 45_000))
    rows = ((10_000, 20_000, 30_000, 40_000), (0.0, 0.8, 0.9, 0.7))
    learned = write_run("learned", rows, train, seed=3, config={"frames": 50_000})
    sparse = write_run("sparse", ((10_000, 20_000), (0.0, 0.7)), reward="sparse", reward_name="sparse", obs="state")
    first, second = page(learned, sparse).data["runs"]
    assert first["results"]["success_gt3"] == {"final": 0.7, "best": 0.9, "reach": 20_000}
    assert first["results"]["success_once"] == {"final": pytest.approx(0.8), "best": 1.0, "reach": 20_000}
    assert first["results"]["task_return"] == {"final": 70, "best": 90, "reach": None}
    assert (first["name"], first["task"], first["reward"], first["obs"]) == (
        "learned",
        "drawer-open",
        "timerewarder",
        "pixels",
    )
    assert (first["preset"], first["seed"], first["label"]) == ("cpu", 3, "timerewarder, pixels")
    assert (first["frames"], first["planned"], first["status"]) == (45_000, 50_000, "unfinished")
    assert (first["seconds"], first["frames_per_second"]) == (1800, 25)
    assert first["log"]["env_frames"] == [15_000, 45_000]
    assert first["log"]["critic_loss"] == [0.1, 0.1]
    assert first["config"]["config"] == {"frames": 50_000}
    assert second["results"]["success_gt3"] == {"final": 0.7, "best": 0.7, "reach": None}
    assert (second["status"], second["frames"]) == ("", 20_000)


def test_a_run_that_was_not_evaluated_yet_is_shown_and_leaves_the_mean_alone(write_run, page, tmp_path):
    done, new = write_run("done"), write_run("new", "", "500,250,20,25,1,0.5,0.1,2\n", seed=1)
    (new / "eval.csv").unlink()
    data = page(done, new).data
    assert [run["status"] for run in data["runs"]] == ["", "not evaluated yet"]
    assert data["runs"][1]["results"]["success_gt3"] == {"final": None, "best": None, "reach": None}
    assert data["runs"][1]["frames"] == 500
    curve = data["tasks"][0]["groups"][0]["curves"]["success_gt3"]["frames"]
    assert (curve["mean"], curve["sd"], len(curve["lines"])) == ([0.5, 1.0], None, 1)
    alone = report_policies([new], tmp_path / "alone.html")
    assert alone["tasks"] == {
        "drawer-open": {"timerewarder": {"seeds": 0, "frames": None, "mean": None, "deviation": None}}
    }


def test_a_measure_that_a_run_does_not_have_is_no_line(write_run, page):
    run = write_run("env", "10000,5000,200,10,3,,1,1,1\n", reward="env", reward_name="env")
    run_curves = page(run).data["tasks"][0]["groups"][0]["curves"]
    assert run_curves["learned_return"]["frames"]["lines"] == []
    assert run_curves["task_return"]["frames"]["mean"] == [3]


def test_behaviour_cloning_is_a_level_and_not_unfinished(write_run, page):
    cloned = {"reward": "bc", "reward_name": "bc"}
    runs = [write_run(f"bc{seed}", ((0,), (success,)), seed=seed, **cloned) for seed, success in enumerate((0.6, 0.8))]
    started = write_run("started", ((0,), (0.0,)))
    data = page(*runs, started).data
    learned, level = data["tasks"][0]["groups"]
    assert (learned["level"], level["level"]) == (False, True)  # an untrained policy is not a reference
    for axis in ("frames", "minutes"):
        assert level["curves"]["success_gt3"][axis]["mean"] == [pytest.approx(0.7)]
    assert [run["status"] for run in data["runs"]] == ["unfinished", "", ""]


def test_a_reward_has_one_colour_and_an_observation_one_dash_everywhere(write_run, page):
    kinds = [("door-open", "vip", "pixels"), ("drawer-open", "env", "pixels"), ("drawer-open", "vip", "state")]
    kinds += [("door-open", "other", "pixels"), ("drawer-open", "timerewarder", "state")]
    runs = [write_run(f"r{i}", task=task, reward_name=reward, obs=obs) for i, (task, reward, obs) in enumerate(kinds)]
    groups = [group for task in page(*runs).data["tasks"] for group in task["groups"]]
    looks = {group["label"]: (group["slot"], group["dash"]) for group in groups}
    assert looks["env, pixels"] == (SLOTS["env"], 0)
    assert looks["timerewarder, state"] == (0, 1)
    assert looks["vip, pixels"][0] == looks["vip, state"][0]
    assert (looks["vip, pixels"][1], looks["vip, state"][1]) == (0, 1)
    assert len({slot for slot, _ in looks.values()}) == 4


def test_presets_are_never_averaged(write_run, page):
    runs = [write_run("cpu"), write_run("paper", ((10_000, 20_000), (0.0, 0.0)), preset="paper", seed=1)]
    groups = page(*runs).data["tasks"][0]["groups"]
    assert [group["label"] for group in groups] == ["timerewarder, cpu", "timerewarder, paper"]
    assert groups[0]["dash"] != groups[1]["dash"]


def test_a_long_log_is_thinned_from_first_to_last_row(write_run, page):
    train = "".join(f"{frame},0,1,25,1,0.5,1e-7,2\n" for frame in range(1, LONGEST_LOG + 500))
    log = page(write_run("long", train=train)).data["runs"][0]["log"]
    assert len(log["env_frames"]) == LONGEST_LOG
    assert (log["env_frames"][0], log["env_frames"][-1]) == (1, LONGEST_LOG + 499)
    assert log["critic_loss"][0] == 1e-7


# ---- videos ----


def content(video: dict) -> bytes:
    return base64.b64decode(video["video"].removeprefix("data:video/mp4;base64,"), validate=True)


def add_videos(run: Path, sizes: dict[int, int]) -> None:
    for frames, size in sizes.items():
        (run / "videos" / f"frames_{frames:08d}.mp4").write_bytes(bytes([frames % 251]) * size)


def test_the_first_and_the_last_video_are_inside(write_run, page):
    run = write_run("run")
    add_videos(run, {9_000: 10, 10_000: 20, 100_000: 30})
    (run / "videos" / "other.mp4").write_bytes(b"other")
    for frames in (9_000, 100_000):
        (run / "videos" / f"all_{frames:08d}.mp4").write_bytes(b"all")
    videos = page(run).data["runs"][0]["videos"]
    told = [(video["frames"], video["all"], len(content(video))) for video in videos]
    assert told == [(9_000, False, 10), (100_000, False, 30), (100_000, True, 3)]


def test_videos_that_do_not_fit_are_left_out_first_ones_first(write_run, page, monkeypatch):
    monkeypatch.setattr(curves, "VIDEO_BYTES", 100)
    one, two = write_run("one"), write_run("two", seed=1)
    add_videos(one, {1: 30, 2: 40})
    add_videos(two, {1: 10, 2: 50})
    data = page(one, two).data
    assert [[video["frames"] for video in run["videos"]] for run in data["runs"]] == [[2], [1, 2]]
    assert data["left_out"] == 1


# ---- the page as a file ----


def test_result_names_the_page_and_the_final_values(write_run, tmp_path):
    runs = [write_run("a", seed=0), write_run("b", ((10_000, 20_000, 30_000), (0.5, 0.6, 1.0)), seed=1)]
    result = report_policies([*runs, runs[0], f"{runs[0]}/../a"])
    assert json.loads(json.dumps(result)) == {
        "page": str(tmp_path / "runs" / "report.html"),
        "runs": 2,
        "tasks": {
            "drawer-open": {
                "timerewarder": {
                    "seeds": 2,
                    "frames": 20_000,
                    "mean": pytest.approx(0.8),
                    "deviation": pytest.approx(np.std([1.0, 0.6], ddof=1)),
                }
            }
        },
    }
    assert (tmp_path / "runs" / "report.html").exists()
    assert report_policies(runs[:1])["page"] == str(runs[0] / "report.html")


def test_page_fetches_nothing_and_its_script_finds_its_elements(write_run, page, tmp_path):
    written = page(write_run("run"))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not re.search(r"https?://|url\(|@import|\bimport\s*\(|\bfetch\s*\(|XMLHttpRequest|innerHTML|\{\{", text)
    ids = [attributes["id"] for _, attributes in written.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    script = written.scripts[1]
    assert set(re.findall(r'getElementById\("([\w-]+)"\)', script)) <= set(ids)
    assert set(re.findall(r'section\("([\w-]+)"', script)) <= set(ids)
    for function in ("html", "svg", "show", "brief", "scale", "path", "responsive", "yAxis", "xAxis", "onPointer"):
        assert len(re.findall(rf"^function {function}\(", script, re.MULTILINE)) == 1


def test_every_line_has_a_look_on_the_page_and_in_print(write_run, page):
    written = page(write_run("run"))
    markers = re.search(r"const markers = \[(.*?)\];", written.scripts[1], re.DOTALL)
    dashes = re.search(r"const dashes = \[(.*?)\];", written.scripts[1])
    assert markers
    assert dashes
    assert len(re.findall(r'"[^"]+"', markers[1])) == len(COLOURS) == len(MARKERS)
    assert len(dashes[1].split(", ")) == len(DASHES)
    assert written.data["colours"] == [list(pair) for pair in COLOURS]
    assert max(SLOTS.values()) < len(COLOURS)


def test_names_cannot_become_markup(write_run, page):
    evil = "</script><script>alert(1)</script>{{ style }}{{ data }}"
    plain, written = page(write_run("plain")), page(write_run("evil", task=evil, reward_name=evil, command=evil))
    assert [tag for tag, _ in written.elements] == [tag for tag, _ in plain.elements]
    assert written.data["tasks"][0]["task"] == evil
    assert written.scripts[1] == plain.scripts[1]


def test_the_page_opens_with_the_asked_measure(write_run, page):
    data = page(write_run("run"), measure="task_return").data
    assert data["measure"] == "task_return"
    assert [measure["key"] for measure in data["measures"]] == list(MEASURES)


# ---- bad input ----


def test_is_policy_run_knows_its_own(write_run, tmp_path):
    assert is_policy_run(write_run("run"))
    assert is_policy_run(str(write_run("other")))
    assert not is_policy_run(write_run("model", kind="reward"))
    for name, text in {"broken": '{"kind": "pol', "list": '["policy"]', "binary": "\xff\x00"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text, encoding="latin-1")
        assert not is_policy_run(tmp_path / name)
    assert not is_policy_run(tmp_path)
    assert not is_policy_run(tmp_path / "missing")


def test_what_is_no_run_is_named_with_the_remedy(write_run, tmp_path):
    run, model, empty = write_run("run"), tmp_path / "model", tmp_path / "empty"
    model.mkdir()
    empty.mkdir()
    (model / "config.json").write_text(json.dumps({"format": 1, "method": "timerewarder", "config": {}}))
    cases = {
        tmp_path / "missing": r"missing is no folder: give folders",
        empty: r"empty is no training run: give folders",
        model: r"model is a reward model, not a training run: report it",
    }
    for folder, message in cases.items():
        with pytest.raises(UserError, match=message):
            report_policies([run, folder], tmp_path / "page.html")
    with pytest.raises(UserError, match="no run to report"):
        report_policies([])
    assert not (tmp_path / "page.html").exists()


def test_a_folder_of_runs_stands_for_them_and_pages_are_passed_over(write_run):
    folder = write_run("a").parent
    write_run("b", seed=1)
    (folder / "notes").mkdir()
    for _ in range(2):  # the second time report.html is there
        told = report_policies([folder / "a", folder / "b", *folder.glob("*.html")])
        assert told["runs"] == report_policies([folder])["runs"] == 2
        assert told["page"] == str(folder / "report.html")


def test_references_have_no_learned_return(write_run):
    learned, env = read_policy_runs([write_run("learned"), write_run("env", reward="env", reward_name="env")])[::-1]
    assert (learned.reward, env.reward) == ("timerewarder", "env")
    assert len(learned.line("learned_return")[0]) == len(env.line("task_return")[0]) == 2
    assert len(env.line("learned_return")[0]) == 0


def test_runs_with_other_options_are_no_seeds_of_the_same_line(write_run):
    config = {"frames": 20_000, "threads": 1, "alpha": 0.1, "agent": {"lr": 3e-4, "discount": 0.97}}
    others = {
        "b": {"config": {**config, "frames": 40_000, "threads": 2}},  # these do not matter
        "c": {"config": {**config, "agent": {"lr": 3e-4, "discount": 0.99}}},
        "d": {"config": config, "reward_model": "plain", "reward_weights": "5678"},
    }
    runs = [write_run("a", config=config, reward_model="model", reward_weights="1234")]
    for seed, (name, changes) in enumerate(others.items(), 1):
        runs.append(write_run(name, seed=seed, **{"reward_model": "model", "reward_weights": "1234", **changes}))
    assert report_policies(runs[:2])["tasks"]["drawer-open"]["timerewarder"]["seeds"] == 2
    lines = report_policies(runs)["tasks"]["drawer-open"]
    assert {name: line["seeds"] for name, line in lines.items()} == {
        "timerewarder, discount 0.97, model model": 2,
        "timerewarder, discount 0.99, model model": 1,
        "timerewarder, discount 0.97, model plain": 1,
    }


def test_the_same_seed_twice_is_refused(write_run):
    runs = [write_run("a"), write_run("b")]
    with pytest.raises(UserError, match=r"a and .*b are both drawer-open, timerewarder, pixels, cpu, seed 0: leave"):
        report_policies(runs)
    assert len(read_policy_runs([runs[0], write_run("c", reward_name="ours")])) == 2


@pytest.mark.parametrize(("key", "value"), [("task", None), ("seed", "0"), ("obs", 3), ("config", [])])
def test_a_configuration_without_a_needed_key_is_named(write_run, key, value):
    with pytest.raises(UserError, match=rf"config.json has no valid '{key}'"):
        report_policies([write_run("run", **{key: value})])


def test_a_table_without_frames_is_named(write_run):
    run = write_run("run")
    (run / "eval.csv").write_text("step,success_gt3\n1,1\n")
    with pytest.raises(UserError, match=r"eval.csv has no column env_frames"):
        report_policies([run])


def test_unknown_measures_and_formats_are_refused(write_run, tmp_path):
    run = write_run("run")
    with pytest.raises(UserError, match="unknown measure 'success_gt'; did you mean success_gt3"):
        report_policies([run], measure="success_gt")
    with pytest.raises(UserError, match=r"figure.gif is no name for a figure: end it in \.png"):
        plot_learning_curves([run], tmp_path / "figure.gif")


# ---- the printed figure ----


def share_of(path: Path, colour: str) -> float:
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    with Image.open(path) as image:
        return float((np.asarray(image.convert("RGB")) == rgb).all(axis=-1).mean())


@pytest.mark.parametrize("measure", ["success_gt3", "task_return"])
def test_figure_shows_every_reward_in_its_colour(write_run, tmp_path, measure):
    runs = [write_run(f"tr{seed}", ((0, 10_000, 20_000 + 5000 * seed), (0, 0.5, 1)), seed=seed) for seed in range(2)]
    runs += [write_run(f"env{i}", reward_name="env", task=task) for i, task in enumerate("abc")]
    runs.append(write_run("none", "", reward_name="sparse"))
    plot_learning_curves(runs, tmp_path / "figure.png", measure)
    assert share_of(tmp_path / "figure.png", COLOURS[SLOTS["timerewarder"]][0]) > 1e-3
    assert share_of(tmp_path / "figure.png", COLOURS[SLOTS["env"]][0]) > 1e-3
    assert share_of(tmp_path / "figure.png", COLOURS[SLOTS["sparse"]][0]) == 0  # not evaluated: nothing to name


def test_the_same_runs_give_the_same_svg_with_every_name_in_it(write_run, tmp_path):
    runs = [write_run("a"), write_run("b", ((0,), (0.9,)), reward="bc", reward_name="bc", task="door-$x_")]
    for name in ("one.svg", "two.svg"):
        plot_learning_curves(runs, tmp_path / "deep" / name)
    one, two = ((tmp_path / "deep" / name).read_text("utf-8") for name in ("one.svg", "two.svg"))
    assert one == two
    assert all(f"<!-- {text} -->" in one for text in ("drawer-open", "door-$x_", "timerewarder", "bc"))
