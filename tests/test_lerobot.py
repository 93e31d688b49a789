"""LeRobot datasets through the verbs and from the Hub."""

import csv
import json
import re
from pathlib import Path

import pytest

import timerewarder as tr
from tests.conftest import SIZE, crossing
from tests.data.lerobot_sets import IMAGES, SMALL, TOP, numbers_of, write_dataset
from tests.data.sample_videos import encode, numbers
from tests.hub_server import python, serving
from tests.test_cli import run
from tests.test_readme import commands
from timerewarder.api import absolute
from timerewarder.data.source import Opening
from timerewarder.data.store import open_store
from timerewarder.evaluation.comparison import Data

PAGE = (Path(__file__).parents[1] / "docs" / "lerobot.md").read_text(encoding="utf-8")
BRIEF = f"--image-size={SIZE} --epochs=1 --epoch-frames=320 --validate-every=160 --lr=1e-3 --device=cpu".split()
TASK = "open the drawer"
CHOICE = ("--camera", TOP, "--task", "Open the drawer")


def succeed(*arguments):
    finished = run(*arguments, "--json")
    assert finished.code == 0, finished.err
    return json.loads(finished.out.splitlines()[-1])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    out = tmp_path_factory.mktemp("lerobot") / "model"
    record = succeed("fit", SMALL, "--out", out, *CHOICE, *BRIEF)
    assert (record["videos"], record["frames"]) == (6, 277)
    assert set(record["validation_videos"]) < {f"lerobot_v3_small/episode_{index:06d}" for index in range(6)}
    return out


def test_fit_again_finds_its_model(model):
    before = (model / "weights.safetensors").stat().st_mtime_ns
    succeed("fit", SMALL, "--out", model, *BRIEF)  # the same frames: there is one camera and one task
    assert (model / "weights.safetensors").stat().st_mtime_ns == before
    refused = run("fit", IMAGES, "--out", model, *BRIEF)
    assert (refused.code, "other settings (videos)" in refused.err) == (2, True)


def test_evaluate_keeps_the_choice_and_report_repeats_it(model, tmp_path):
    measured = succeed(
        "evaluate", model, IMAGES, "--failures", encode(tmp_path / "plain.mp4", crossing(1, 12)), *CHOICE, "--fps", "5"
    )
    assert (measured["videos"], measured["frames"]) == (3, 26 + 17 + 16)
    saved = json.loads((model / "evaluation.json").read_text())
    assert {name: saved[name] for name in ("fps", "skip_bad", "camera", "task")} == {
        "fps": 5.0,
        "skip_bad": False,
        "camera": TOP,
        "task": "Open the drawer",
    }
    page = succeed("report", model, "--clips", "1")
    assert (page["clips"], page["voc"]) == (3, measured["voc"])
    assert "lerobot_v3_images/episode_000000" in (model / "report.html").read_text()
    again = succeed("report", model, "--videos", SMALL, "--clips", "1")  # the rate and the camera stay
    assert (again["videos"], again["frames"]) == (6, 25 + 26 + 27 + 22 + 22 + 17)
    assert json.loads((model / "evaluation.json").read_text())["camera"] == TOP
    assert tr.evaluate(tr.load(model), SMALL, camera=TOP, task=TASK, fps=5)["voc"] == again["voc"]


def test_report_reads_records_from_before_there_were_cameras(model):
    succeed("evaluate", model, IMAGES)
    saved = json.loads((model / "evaluation.json").read_text())
    for name in ("skip_bad", "camera", "task"):
        del saved[name]
    (model / "evaluation.json").write_text(json.dumps(saved))
    assert succeed("report", model, "--clips", "1")["clips"] == 2


def test_features(model, tmp_path):
    drawn = succeed("features", model, "--train", SMALL, "--out", tmp_path, "--clips", "2", *CHOICE)
    assert drawn["models"] == 1
    assert "lerobot_v3_small/episode_000001" in (tmp_path / "features.csv").read_text()


def test_compare_shows_what_was_chosen(tmp_path):
    dataset = str(write_dataset(tmp_path / "set", (4, 5), [("open",), ("wave",)], ("top", "wrist")))
    data = Data((dataset,), (dataset,), opening=Opening(camera="wrist", task="wave"))
    (shown,) = data.shown().values()
    assert (shown.name, numbers(shown.frames)) == ("set/episode_000001", numbers_of(1, 5)[::-1])


@pytest.mark.parametrize(
    "verb",
    [
        "fit {set} --out {out}",
        "evaluate {model} {set}",
        "score {model} {set} --out {out}",
        "compare --methods order --train {set} --test {set} --out {out}",
        "features {model} --train {set} --out {out}",
        "report {model} --videos {set} --out {out}",
    ],
)
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("", r"set has 2 cameras: choose one with --camera \(top, wrist\)"),
        ("--camera wirst", r"has no camera 'wirst'; did you mean wrist\?"),
        ("--camera top --task swim", r"no episode has the task 'swim'; known: open the drawer"),
    ],
)
def test_refusals_are_one_line(verb, choice, message, model, tmp_path):
    places = {"set": write_dataset(tmp_path / "set", cameras=("top", "wrist")), "model": model, "out": tmp_path / "out"}
    finished = run(*f"{verb} {choice}".format(**places).split())
    assert finished.code == 2
    assert re.search(message, finished.err)
    assert finished.err.count("\n") == 1
    assert not places["out"].exists()


def test_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cameras = (TOP, "observation.images.wrist")
    write_dataset(Path("drawers"), (9, 5, 8, 9, 7, 8), [(TASK,), (TASK,), ("wave",)], cameras)
    write_dataset(Path("heldout"), (4, 5), cameras=cameras)
    shell, python = (re.search(rf"```{name}\n(.*?)```", PAGE, re.S)[1] for name in ("bash", "python"))
    for verb, *arguments in commands(shell, "timerewarder"):
        succeed(verb, *arguments, *(BRIEF if verb == "fit" else []))
    assert json.loads(Path("runs/drawer/config.json").read_text())["record"]["videos"] == 4
    reward = tr.load("runs/drawer")
    for video in tr.read_videos("heldout", camera=TOP):
        (table,) = Path("scores").glob(f"{video.name}*.csv")
        with table.open() as file:
            rows = [float(row["reward"]) for row in csv.DictReader(file)]
        assert rows == pytest.approx(reward.score(video.frames).tolist(), abs=1e-5)
    exec(compile(python, "docs/lerobot.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == f"drawers/episode_000004 {TASK} 4 (7, 32, 32, 3)"


# --- the Hub

FROM_HUB = """
import json
import timerewarder as tr

def refusal(name, **options):
    try:
        list(tr.read_videos(name, **options))
    except tr.UserError as error:
        return str(error)

videos = list(tr.read_videos("me/drawers", camera="top", task="open the drawer"))
videos += tr.read_videos("me/images")
told = {"names": [video.name for video in videos], "lengths": [len(video.frames) for video in videos]}
told["refusals"] = [
    refusal("me/drawers"), refusal("me/drawers", camera="top", task="swim"), refusal("me/old"), refusal("me/text"),
    refusal("me/nothing"), refusal("me/clip.mp4"), refusal("nothing"),
]
print(json.dumps(told))
"""


def test_datasets_on_the_hub(tmp_path):
    tasks = [("open the drawer",), ("wave",), ("open the drawer",)]
    dataset = write_dataset(tmp_path / "set", (5, 4, 6), tasks, ("top", "wrist"), files=(1, 2))
    old = write_dataset(tmp_path / "old", (5,), codebase_version="v2.1")
    with serving() as server:
        for name, folder in {"me/drawers": dataset, "me/images": IMAGES, "me/old": old}.items():
            server.repos[f"datasets/{name}"] = contents(folder)
        server.repos["datasets/me/text"] = {"README.md": b"no robot"}
        finished = python(tmp_path, server.address, "-c", FROM_HUB)
        assert finished.returncode == 0, finished.stderr
        asked = set(re.findall(r"me/drawers/resolve/\w+/(videos/\S+)", " ".join(server.asked)))
    told = json.loads(finished.stdout.splitlines()[-1])
    chosen = ["drawers/episode_000000", "drawers/episode_000002"]
    assert told["names"] == [*chosen, *(f"images/episode_{index:06d}" for index in range(3))]
    assert told["lengths"] == [5, 6, 51, 34, 32]
    assert asked == {f"videos/top/chunk-000/file-00{number}.mp4" for number in (0, 2)}  # not what nobody looks at
    patterns = [
        r"me/drawers has 2 cameras: choose one with --camera \(top, wrist\)",
        r"no episode has the task 'swim'; known: open the drawer, wave",
        r"me/old is a LeRobot dataset of version v2.1, but only v3 is read: convert it .*",
        r"me/text on the Hub is not a LeRobot dataset: it has no meta/info.json",
        r"me/nothing does not exist here and cannot be fetched from the Hub as a dataset \(404 .*\): check the path .*",
        r"me/clip.mp4 does not exist: check the path",
        r"nothing does not exist: check the path",
    ]
    for pattern, message in zip(patterns, told["refusals"], strict=True):
        assert re.fullmatch(pattern, message)


def test_an_id_of_the_hub_is_kept_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute(["me/drawers", "clips", "me/a.mp4"]) == ["me/drawers", f"{tmp_path}/clips", f"{tmp_path}/me/a.mp4"]
    (tmp_path / "me/drawers").mkdir(parents=True)
    assert absolute("me/drawers") == [f"{tmp_path}/me/drawers"]


def contents(folder):
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_the_store_takes_the_same_choice():
    store = open_store(SMALL, 24, opening=Opening(camera=TOP, task=TASK))
    assert store.lengths.tolist() == [50, 52, 54, 44, 43, 34]
