"""What the README shows is what there is: its Python runs, its commands run, the options and files it names exist."""

import contextlib
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import timerewarder as tr
from tests.conftest import QUICK, crossing
from tests.data.sample_videos import encode
from tests.test_cli import QUICK as QUICK_FLAGS
from tests.test_cli import run
from timerewarder.cli import VERBS

ROOT = Path(__file__).parents[1]
LEROBOT = Path(__file__).parent / "data" / "lerobot" / "lerobot_v3_small"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BRIEF = {**QUICK, "epoch_frames": 1600, "validate_every": 400}
# What makes a verb as short as a test may be; everything else is run as it is written.
SHORT = {
    "fit": QUICK_FLAGS,
    "demos": ["--episodes=1", "--size=32"],
    "quickstart": ["--episodes=2", "--minutes=0.03"],
    "compare": ["--minutes=0.03"],
    "train": ["--frames=40", "--horizon=20", "--eval-every=20", "--eval-episodes=1", "--batch=8", "--no-beside"],
}
SMALL = ["--size=32"]  # what `fit` made here sees pictures of 32 px
FITS = ["--fit-minutes=0.03"]


def shortened(verb, arguments):
    """A command of the README as short as a test may be."""
    more = (FITS if "--method" in arguments else SMALL) if verb == "train" else []
    return [verb, *arguments, *SHORT.get(verb, []), *more]


def blocks(*languages):
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", README, re.M | re.S)


def commands(block, program):
    """The arguments of each call of a program in a block of shell commands."""
    lines = block.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == [program]]


SHELL = [block for block in blocks("bash", "console", "sh") if commands(block, "timerewarder")]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_videos(path):
    """Short videos where the README supposes some: a file, or a folder of them."""
    if Path(path).exists():
        return
    if Path(path).name == "lerobot":
        shutil.copytree(LEROBOT, path)
        return
    files = [path] if Path(path).suffix else [f"{path}/{number}.mp4" for number in range(4)]
    for number, file in enumerate(files):
        encode(Path(file), crossing(number + len(str(path)), 12))


@contextlib.contextmanager
def served(*arguments):
    """`timerewarder serve`, at a port that is free; gives its address."""
    command = [sys.executable, "-m", "timerewarder", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}) as process:
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"http://[\d.]+:\d+", line):
                    yield found[0]
                    break
            else:
                raise AssertionError("".join(lines))
        finally:
            process.terminate()
            process.stderr.read()
    assert process.returncode in (0, -signal.SIGTERM)


def test_there_is_something_to_test():
    assert blocks("python")
    assert {command[0] for block in SHELL for command in commands(block, "timerewarder")} >= {
        "fit",
        "evaluate",
        "score",
    }


@pytest.mark.parametrize("block", blocks("python"))
def test_python(block, home, monkeypatch):
    make_videos("videos")
    monkeypatch.setattr(tr, "fit", functools.partial(tr.fit, **BRIEF))  # the same, only shorter
    if '"model/"' in block and "tr.fit" not in block:
        tr.fit("videos", "model")
    frames = crossing(5)
    code = re.sub(r"^.*push_to_hub.*$", "", block, flags=re.M)  # to whom? tests/test_hub.py has a Hub
    with contextlib.ExitStack() as stack:
        if "tr.Client" in block:
            tr.fit("videos", "model")
            code = code.replace("http://127.0.0.1:8000", stack.enter_context(served("model")))
        exec(compile(code, "README.md", "exec"), {"frames": frames, "first_frame": frames[0], "frame": frames[1]})


@pytest.mark.parametrize("block", SHELL)
def test_commands(block, home):
    for verb, *arguments in commands(block, "timerewarder"):
        made = {arguments[at + 1] for at, word in enumerate(arguments) if word in ("--out", "--camera")}
        for word in arguments:
            if re.search(r"/$|\.[a-z]\w{2,3}$", word) and word not in made:
                make_videos(word)
        if verb == "serve":
            make_videos("videos")
            tr.fit("videos", "model", **BRIEF)
            with served(*arguments):
                continue
        finished = run(*shortened(verb, arguments))
        assert finished.code == 0, f"timerewarder {verb} {shlex.join(arguments)}\n{finished.err}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make ([\w-]+)|`make ([\w-]+)", README, re.M)
    assert named
    for target in filter(None, {word for pair in named for word in pair}):
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target}"


def test_options_that_are_named_in_passing_exist():
    """`--flag` in running text belongs to one of the verbs; `--no-flag` and `--flag value` are written as typed."""
    helps = " ".join(run(verb, "--help").out for verb in VERBS)
    known = set(re.findall(r"--[a-z][a-z-]+", helps))
    assert {"--out", "--encoder", "--skip-bad"} <= known
    text = re.sub(r"^```.*?^```", "", README, flags=re.M | re.S)
    for code in re.findall(r"`([^`]+)`", text):
        if code.startswith("--"):
            assert set(re.findall(r"--[a-z][a-z-]+", code)) <= known, code


def test_options_in_passing_have_values_that_fit():
    """A choice that the README names for an option is one of its choices."""
    helps = " ".join(run(verb, "--help").out for verb in VERBS)
    choices: dict[str, list[str]] = {}
    for name, values in re.findall(r"(--[a-z-]+) \{([\w,-]+)\}", helps):
        choices.setdefault(name, []).extend(values.split(","))
    text = re.sub(r"^```.*?^```", "", README, flags=re.M | re.S)
    named = re.findall(r"(--[a-z-]+) ([a-z][\w-]+(?: \| [\w-]+)*)", " ".join(re.findall(r"`(--[^`]+)`", text)))
    assert any(name in choices for name, _ in named)
    for name, values in named:
        if name in choices:
            assert set(values.split(" | ")) <= set(choices[name]), f"{name} {values}"


def test_links_and_files_exist():
    links = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert links
    for target in links:
        assert (ROOT / target).exists(), target


def test_measured_numbers_are_those_of_the_results():
    """README.md's tables are made from results/ by benchmarks/tables.py, and are up to date."""
    checked = subprocess.run([sys.executable, ROOT / "benchmarks" / "tables.py", "--check"], timeout=60)
    assert checked.returncode == 0, "run python benchmarks/tables.py"
