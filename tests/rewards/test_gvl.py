"""GVL against a server that speaks the protocol: the question, its answers good and bad, the cache, the key."""

from __future__ import annotations

import json
import logging
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import timerewarder as tr
from tests.conftest import SIZE, crossing
from tests.rewards.chat_server import ChatServer, asked, lines, picture
from tests.test_cli import printed, run, the_error
from timerewarder.errors import UserError
from timerewarder.models.chat import BadAnswer, Chat
from timerewarder.rewards.gvl import GVL, Config, picked, read_percentages, shuffled

KEY = "very-secret-0123456789"


@pytest.fixture(scope="module")
def running() -> Iterator[ChatServer]:
    server = ChatServer()
    yield server
    server.close()


@pytest.fixture
def server(running: ChatServer, monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    """The server as if it had just started, and a process that has not asked anything yet."""
    running.script.clear()
    running.requests.clear()
    monkeypatch.setattr(Chat, "calls", 0)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return running


@pytest.fixture
def options(server: ChatServer, tmp_path: Path) -> dict[str, Any]:
    """Quick questions, and a cache of the test's own."""
    cache = str(tmp_path / "answers")
    return {"method": "gvl", "model": "m", "base_url": server.url, "image_size": SIZE, "examples": 1, "cache": cache}


# What is asked


@pytest.mark.parametrize(
    ("length", "most", "index"),
    [(1, 32, [0]), (2, 32, [0, 1]), (3, 2, [0, 2]), (5, 5, [0, 1, 2, 3, 4]), (9, 5, [0, 2, 4, 6, 8])],
)
def test_frames_are_picked_evenly_with_both_ends(length: int, most: int, index: list[int]) -> None:
    assert picked(length, most).tolist() == index


@given(st.integers(1, 500), st.integers(2, 40))
def test_picked_frames_are_different_and_in_order(length: int, most: int) -> None:
    index = picked(length, most)
    assert len(index) == min(length, most)
    assert (np.diff(index) > 0).all()
    assert index[0] == 0
    assert index[-1] == length - 1


def test_the_order_depends_on_content_and_seed_alone() -> None:
    one, other = crossing(1, 20), crossing(2, 20)
    assert sorted(shuffled(20, one, 0)) == list(range(20))
    assert np.array_equal(shuffled(20, one, 0), shuffled(20, one.copy(), 0))
    assert not np.array_equal(shuffled(20, one, 0), np.arange(20))
    assert not np.array_equal(shuffled(20, one, 0), shuffled(20, other, 0))
    assert not np.array_equal(shuffled(20, one, 0), shuffled(20, one, 1))


def test_the_question(server: ChatServer, options: dict[str, Any], tmp_path: Path) -> None:
    for seed in range(3):
        np.save(tmp_path / f"{seed}.npy", crossing(seed, 9))
    reward = tr.fit(tmp_path, **{**options, "examples": 2, "frames": 5, "task_text": "crossing the road"})
    frames = crossing(7, 9)
    reward.score(frames)
    [request] = server.requests
    parts = request.body["messages"][0]["content"]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    assert request.body["model"] == "m"
    assert request.key == KEY
    assert sum(part["type"] == "image_url" for part in parts) == 2 * 5 + 1 + 5
    assert texts[0].startswith("You are an expert roboticist")
    assert "for the task of crossing the road." in texts[0]
    assert "several examples" in texts[0]
    assert texts[0].endswith("\nExample 1, picture 1:")
    # Every second frame of nine: 0, 25, 50, 75 and 100 % of each example, in no order of time.
    shares = [int(text.split("%")[0].removeprefix("Task Completion Percentages: ")) for text in texts[1:11]]
    assert sorted(shares[:5]) == sorted(shares[5:]) == [0, 25, 50, 75, 100]
    assert shares[:5] != sorted(shares[:5])
    assert texts[10].endswith("\nInitial robot scene:")
    assert "In the initial robot scene, the task completion percentage is 0." in texts[11]
    assert "the following 5 frames that are presented in random order" in texts[11]
    assert "Frame {i}: Frame Description: {}, Task Completion Percentages:{}%" in texts[11]
    first, *shown = [picture(part) for part in parts if part["type"] == "image_url"][10:]
    assert np.corrcoef(first.ravel(), frames[0].ravel())[0, 1] > 0.97
    order = shuffled(5, frames[::2], 0)
    for found, expected in zip(shown, frames[::2][order], strict=True):
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.97


def test_examples_show_their_own_progress_and_rest_is_none(options: dict[str, Any], tmp_path: Path) -> None:
    moving = crossing(3, 11)
    np.save(tmp_path / "rests.npy", np.concatenate([moving, moving[-1:].repeat(10, 0)]))

    def labels(**more: Any) -> list[int]:
        reward = tr.fit(tmp_path, **{**options, **more})
        assert isinstance(reward, GVL)
        return sorted(example.percent for example in reward.examples)

    assert labels() == [*range(0, 100, 10), *[100] * 11]
    assert labels(stop_at_rest=False) == list(range(0, 101, 5))


def test_a_fit_asks_nothing_and_keeps_few_bytes(
    server: ChatServer, options: dict[str, Any], videos: Path, tmp_path: Path
) -> None:
    reward = tr.fit(videos, tmp_path / "model", **{**options, "examples": 5, "image_size": 224})
    assert isinstance(reward, GVL)
    assert server.requests == []
    assert {example.video for example in reward.examples} == {0, 1, 2, 3, 4}
    frames = len(reward.examples)
    assert (tmp_path / "model" / "weights.safetensors").stat().st_size < frames * 224 * 224 * 3 / 5
    assert tr.load(tmp_path / "model").examples == reward.examples  # type: ignore[attr-defined]


def test_fewer_videos_than_examples_are_all_shown(options: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", crossing(1, 4))
    reward = tr.fit(tmp_path / "one.npy", **{**options, "examples": 5})
    assert [example.video for example in reward.examples] == [0] * 4  # type: ignore[attr-defined]


# What is answered


@pytest.mark.parametrize(
    "answer",
    [
        "\n".join(lines([0, 50, 100])),
        "\n".join(lines([0, 50, 100])[::-1]),
        " ".join(lines([0, 50, 100])),
        "Frame 1: 0%\nFrame 2: 50%\nFrame 3: 100%",
        "- **Frame 1:** Task Completion Percentage: **0**%\n- **Frame 2:** Task Completion Percentage: **50.0** %\n"
        "- **Frame 3:** Task Completion Percentage: [100]%",
        "Here it is.\n\nFrame 1. A drawer, 30% of the picture, 0%\nFrame 2. Like Frame 1, 50%.\nFrame 3. Open, 100%\n",
        "FRAME {1}: x, Task completion percentages:{0}%\nframe {2}: y, task completion percentages:{50}%\n"
        "Frame {3}: z, Task Completion Percentages:{100}%\nFrame 3 is the last.",
        "<think>Frame 1: 70%?</think>Frame 1: 0%\nFrame 2: 50%\nFrame 3: 100%",
        "Frame 1: 0%\nFrame 2: 50%\nFrame 3: 100%\nIn short:\nFrame 1: 0%\nFrame 3: 100%",
    ],
)
def test_answers_are_read_in_the_forms_that_models_give_them(answer: str) -> None:
    assert read_percentages(answer, 3).tolist() == [0, 50, 100]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_any_numbers_in_any_order_are_read(values: list[int], random: Any) -> None:
    answer = lines([float(value) for value in values])
    random.shuffle(answer)
    assert read_percentages("\n".join(answer), len(values)).tolist() == values


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "no line of the form"),
        ("The task is 50% done.", "no line of the form"),
        ("Frame 1: 0%\nFrame 3: 100%", "1 of 3 frames have no percentage: 2$"),
        ("Frame 1: 0%\nFrame 2: half\nFrame 3: 100%", "1 of 3 frames have no percentage: 2$"),
        ("Frame 1: 0%\nFrame 2: a drawer 50% open\nFrame 3: 100%", "have no percentage: 2"),
        ("Frame 1: 0%\nFrame 2: 40-50%\nFrame 3: 100%", "have no percentage: 2"),
        ("Frame 1: Task Completion Percentages: 40 to 50%", "no line of the form"),
        ("Frame 1: closed, 40 to 50%", "no line of the form"),
        ("Frame 1: closed, 40.50-60%", "no line of the form"),
        ("Frame 1: 0%\nFrame 2: 50%\nFrame 3: 140%", "frame 3 has 140 %"),
        ("Frame 1: Task Completion Percentages: -5%", "frame 1 has -5 %"),
        ("Frame 1: 0%\nFrame 2: 50%\nFrame 3: 100%\nFrame 4: 100%", "frame 4, and the frames are 1 to 3"),
        ("Frame 1: 0%\nFrame 2: 50%\nFrame 3: 100%\nFrame 2: 60%", "frame 2 has two answers, 50 % and 60 %"),
        ("Frame 1: 0%\nFrame 2: 0.5%\nFrame 3: 1%", "shares from 0 to 1"),
    ],
)
def test_other_answers_are_refused_with_the_reason(answer: str, reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        read_percentages(answer, 3)


def test_many_missing_frames_are_named_briefly() -> None:
    with pytest.raises(BadAnswer, match=r"31 of 32 frames have no percentage: 2, 3, .*, 11, \.\.\.$"):
        read_percentages("Frame 1: 0%", 32)


# What is made of it


def test_values_are_the_answers_in_the_order_of_time(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    frames = crossing(300, 14)
    reward = tr.fit(videos, **options)
    steps = reward.score(frames)
    assert steps.cumsum() == pytest.approx(np.linspace(0, 1, 14), abs=0.04)
    shown = asked(server.requests[0].body)
    assert len(shown) == 14
    distances = reward.distances(reward.encode(frames))
    assert distances is not None
    assert distances[3, 9].item() == pytest.approx(steps[4:10].sum(), abs=1e-6)
    assert len(server.requests) == 1


def test_between_the_frames_asked_for_values_are_linear(options: dict[str, Any], videos: Path) -> None:
    reward = tr.fit(videos, **options, frames=3)
    there, back = crossing(5, 5), crossing(5, 5)[::-1][1:]
    steps = reward.score(np.concatenate([there, back]))  # asked for: frames 0, 4 and 8, at 0, 100 and 0 %
    assert steps == pytest.approx([0, *[0.25] * 4, *[-0.25] * 4], abs=0.02)


def test_the_first_frame_can_be_zero_without_asking(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    backwards = crossing(301, 6)[::-1]
    asking, anchored = tr.fit(videos, **options), tr.fit(videos, **options, first="zero")
    assert asking.score(backwards).sum() == pytest.approx(-1, abs=0.05)
    steps = anchored.score(backwards)
    assert [len(asked(request.body)) for request in server.requests] == [6, 5]
    assert steps[1] > 0.5
    assert steps.sum() == pytest.approx(0, abs=0.05)


def test_one_frame_is_worth_nothing_and_not_asked_for(
    server: ChatServer, options: dict[str, Any], videos: Path
) -> None:
    assert tr.fit(videos, **options).score(crossing(1)[:1]).tolist() == [0]
    assert server.requests == []


def test_without_examples_the_task_is_told(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    reward = tr.fit(videos, **{**options, "examples": 0, "task_text": "crossing the road"})
    assert reward.score(crossing(1, 4)).sum() == pytest.approx(1, abs=0.05)
    parts = server.requests[0].body["messages"][0]["content"]
    assert "examples" not in parts[0]["text"]
    assert sum(part["type"] == "image_url" for part in parts) == 5


def test_options_reach_the_endpoint(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    tr.fit(videos, **options).score(crossing(1, 3))
    tr.fit(videos, **options, temperature=0.0, detail="low").score(crossing(1, 3))
    plain, chosen = (request.body for request in server.requests)
    assert "temperature" not in plain
    assert chosen["temperature"] == 0
    addresses = [part["image_url"] for part in chosen["messages"][0]["content"] if part["type"] == "image_url"]
    assert {address["detail"] for address in addresses} == {"low"}
    assert all("detail" not in part.get("image_url", {}) for part in plain["messages"][0]["content"])


# Answers are kept, calls are counted


def test_nothing_is_asked_twice(server: ChatServer, options: dict[str, Any], videos: Path, tmp_path: Path) -> None:
    frames = crossing(302, 5)
    reward = tr.fit(videos, tmp_path / "model", **options)
    steps = reward.score(frames)
    assert np.array_equal(tr.load(tmp_path / "model").score(frames), steps)
    assert np.array_equal(tr.fit(videos, **options, max_calls=0).score(frames), steps)
    assert len(server.requests) == 1
    [file] = (tmp_path / "answers").iterdir()
    kept = json.loads(file.read_text())
    assert kept["answer"].startswith("Frame 1: ")
    assert kept["usage"] == {"prompt": 7, "completion": 3}

    tr.fit(videos, **{**options, "model": "another"}).score(frames)
    tr.fit(videos, **options, seed=1).score(frames)
    tr.fit(videos, **options).score(frames[::-1])
    assert len(server.requests) == 4


def test_a_damaged_answer_is_asked_for_again(
    server: ChatServer, options: dict[str, Any], videos: Path, tmp_path: Path
) -> None:
    reward, frames = tr.fit(videos, **options), crossing(303, 4)
    steps = reward.score(frames)
    [file] = (tmp_path / "answers").iterdir()
    for damage in ("{", "[]", "{}", '{"answer": null}', '{"answer": "nothing"}'):
        file.write_text(damage)
        assert np.array_equal(reward.score(frames), steps)
    assert len(server.requests) == 6


def test_calls_are_limited(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    reward = tr.fit(videos, **options, max_calls=2)
    for seed in (1, 2, 1):
        reward.score(crossing(seed, 3))
    with pytest.raises(UserError, match=r"2 calls were made.*--max-calls is 2: run again.*larger --max-calls"):
        reward.score(crossing(3, 3))
    with pytest.raises(UserError, match="2 calls were made"):  # of the process, whichever model asks
        tr.fit(videos, **options, max_calls=1).score(crossing(3, 3))
    assert reward.score(crossing(2, 3)).sum() > 0.5
    assert len(server.requests) == 2


def test_a_place_for_answers_is_made_before_they_are_paid_for(
    server: ChatServer, options: dict[str, Any], videos: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot keep answers.*--cache"):
        tr.fit(videos, **{**options, "cache": str(tmp_path / "file" / "answers")}).score(crossing(1, 3))
    assert server.requests == []


# Bad answers and endpoints


def test_a_bad_answer_is_asked_for_again_with_the_reason(
    server: ChatServer, options: dict[str, Any], videos: Path
) -> None:
    server.script.extend(["prose", "silent", "partial"])
    assert tr.fit(videos, **options, attempts=4).score(crossing(304, 6)).sum() == pytest.approx(1, abs=0.05)
    question, *again = (request.body["messages"] for request in server.requests)
    assert len(question) == 1
    assert all(messages[0] == question[0] for messages in again)
    assert [[message["role"] for message in messages[1:]] for messages in again] == [
        ["assistant", "user"],
        ["user"],  # an empty answer cannot be repeated to the model
        ["assistant", "user"],
    ]
    assert again[0][1]["content"].startswith("I see a square")
    assert "there is no line of the form" in again[0][2]["content"]
    assert "2 of 6 frames have no percentage: 5, 6" in again[2][2]["content"]
    assert Chat.calls == 4


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (
            "prose",
            r"m at http.* no usable answer in 2 attempts: there is no line of .*I see a square.*--model",
        ),
        ("silent", r"no usable answer in 2 attempts.*the last is empty"),
        ("partial", r"2 of 5 frames have no percentage: 4, 5 .*--attempts"),
        ("out of range", r"frame 5 has 140 %, which is not between 0 and 100"),
        ("cut", r"2 of 5 frames .*the answer was cut off .*allow longer answers at the endpoint"),
    ],
)
def test_answers_that_stay_bad_are_an_error_and_not_kept(
    mode: str, message: str, server: ChatServer, options: dict[str, Any], videos: Path, tmp_path: Path
) -> None:
    server.script.extend([mode, mode])
    reward = tr.fit(videos, **options, attempts=2)
    with pytest.raises(UserError, match=message) as caught:
        reward.score(crossing(305, 5))
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "answers").iterdir()) == []
    assert reward.score(crossing(305, 5)).sum() > 0.9


def test_what_fails_in_passing_is_repeated(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    server.script.extend(["busy", "broken", "busy"])
    assert tr.fit(videos, **options, retries=3).score(crossing(306, 5)).sum() == pytest.approx(1, abs=0.05)
    assert len(server.requests) == 4
    assert Chat.calls == 1


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("key", r"refuses the key in the environment variable OPENAI_API_KEY \(401: .*\*\*\*\).*--key-variable"),
        ("forbidden", r"refuses the key .*403: not for you"),
        ("no model", r"has no model 'm' \(404: the model does not exist\): check --model"),
        ("too many pictures", r"refuses the question \(400: At most 1 image.*fewer --frames or --examples"),
        ("busy", r"at its limit \(429: too many requests\) after 1 retries: wait"),
        ("broken", r"fails \(500: something broke\) after 1 retries"),
        ("web page", r"does not answer as a chat endpoint: check --base-url"),
        ("broken json", r"does not answer as a chat endpoint.*check --base-url"),
        ("empty", r"does not answer as a chat endpoint: check --base-url"),
    ],
)
def test_an_endpoint_that_refuses_is_one_line_with_the_remedy(
    mode: str, message: str, server: ChatServer, options: dict[str, Any], videos: Path
) -> None:
    server.script.extend([mode, mode])
    with pytest.raises(UserError, match=message) as caught:
        tr.fit(videos, **options, retries=1).score(crossing(307, 3))
    assert "\n" not in str(caught.value)
    assert server.url in str(caught.value)
    assert KEY not in str(caught.value)
    printed = "".join(traceback.format_exception(caught.value))  # the endpoint's own words are not, either
    assert KEY not in printed


def test_an_address_without_its_path_is_refused_with_a_hint(
    server: ChatServer, options: dict[str, Any], videos: Path
) -> None:
    with pytest.raises(UserError, match=r"404.*--base-url, often \.\.\./v1"):
        tr.fit(videos, **{**options, "base_url": server.url.removesuffix("/v1")}).score(crossing(1, 3))


def test_a_server_that_is_not_there(options: dict[str, Any], videos: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    reward = tr.fit(videos, **{**options, "base_url": address}, retries=0)
    with pytest.raises(UserError, match=rf"{address} cannot be reached \(.*refused.*\): start the server"):
        reward.score(crossing(1, 3))


def test_a_slow_answer_is_waited_for_or_not(server: ChatServer, options: dict[str, Any], videos: Path) -> None:
    server.script.append("slow")
    reward = tr.fit(videos, **options, retries=0, timeout=0.2)
    with pytest.raises(UserError, match=r"did not answer within 0.2 s: raise --timeout"):
        reward.score(crossing(1, 3))
    server.script.append("slow")
    server.released.set()
    assert tr.fit(videos, **options).score(crossing(1, 3)).sum() > 0.5
    server.released.clear()


def test_without_the_package_the_extra_is_named(
    options: dict[str, Any], videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = tr.fit(videos, **options)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match=r"pip install 'timerewarder\[gvl\]'"):
        reward.score(crossing(1, 3))


# The key and the address


def test_the_key_is_sent_and_never_written(
    server: ChatServer,
    options: dict[str, Any],
    videos: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TIMEREWARDER_CACHE", str(tmp_path / "cache"))
    options["cache"] = None  # the default place
    reward = tr.fit(videos, tmp_path / "model", **options)
    reward.score(crossing(1, 3))
    server.script.append("key")
    with pytest.raises(UserError):
        reward.score(crossing(2, 3))
    reward.save(tmp_path / "copy")
    assert [request.key for request in server.requests] == [KEY, KEY]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.parent.name == "gvl" for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in caplog.text
    assert KEY not in "".join(capfd.readouterr())
    assert KEY not in repr(reward) + repr(reward.config) + repr(reward.config.chat())


def test_another_variable_holds_the_key_or_none_does(
    server: ChatServer, options: dict[str, Any], videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", " other\n")
    tr.fit(videos, **options, key_variable="OTHER_KEY").score(crossing(1, 3))
    monkeypatch.delenv("OPENAI_API_KEY")
    tr.fit(videos, **options).score(crossing(2, 3))
    assert [request.key for request in server.requests] == ["other", "none"]
    server.script.append("key")
    with pytest.raises(UserError, match="wants a key, and there is none in the environment variable OPENAI_API_KEY"):
        tr.fit(videos, **options).score(crossing(3, 3))
    monkeypatch.setenv("OPENAI_API_KEY", "two\nlines")
    with pytest.raises(UserError, match="OPENAI_API_KEY holds no key") as caught:
        tr.fit(videos, **options).score(crossing(3, 3))
    assert "lines" not in str(caught.value)


def test_openai_itself_needs_a_key(options: dict[str, Any], videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match=r"no key for https://api.openai.com/v1.*OPENAI_API_KEY.*--base-url"):
        tr.fit(videos, **{**options, "base_url": None}).score(crossing(1, 3))


def test_the_environment_names_the_endpoint(
    server: ChatServer, options: dict[str, Any], videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
    tr.fit(videos, **{**options, "base_url": None}).score(crossing(1, 3))
    tr.fit(videos, **options).score(crossing(1, 3))  # the same address
    assert len(server.requests) == 1
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost")
    with pytest.raises(UserError, match="OPENAI_BASE_URL is not the plain address"):
        tr.fit(videos, **{**options, "base_url": None}).score(crossing(1, 3))


def test_frames_and_key_go_nowhere_that_only_a_model_names(
    server: ChatServer, options: dict[str, Any], videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tr.fit(videos, tmp_path / "model", **options)
    monkeypatch.setenv("TIMEREWARDER_CACHE", str(tmp_path / "another machine"))
    reward = tr.load(tmp_path / "model")
    with pytest.raises(UserError, match=rf"never named on this machine: .* export OPENAI_BASE_URL={server.url}"):
        reward.score(crossing(1, 3))
    assert server.requests == []
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert reward.score(crossing(1, 3)).sum() > 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"frames": 1}, "--frames 1 shows no progress"),
        ({"examples": -1}, "--examples and --seed"),
        ({"image_size": 8}, "choose 16 to 1024"),
        ({"model": " "}, "--model is empty"),
        ({"task_text": ""}, "--task-text is empty"),
        ({"attempts": 0}, "--attempts 0 is too small: give at least 1"),
        ({"retries": -1}, "--retries -1 is too small: give at least 0"),
        ({"max_calls": -1}, "--max-calls -1 is too small: give at least 0"),
        ({"timeout": 0.0}, "--timeout 0.0 is not a time"),
        ({"timeout": float("nan")}, "--timeout nan is not a time"),
        ({"temperature": 3.0}, "--temperature 3.0 is out of range"),
        ({"base_url": "localhost:8000"}, "--base-url is not the plain address"),
        ({"base_url": "ftp://somewhere/v1"}, "--base-url is not the plain address"),
        ({"base_url": "http://host:x/v1"}, "--base-url is not the plain address"),
        ({"base_url": f"http://user:{KEY}@host/v1"}, "and a key in the environment"),
        ({"base_url": f"http://host/v1?key={KEY}"}, "and a key in the environment"),
        ({"key_variable": KEY}, "--key-variable is not the name of an environment variable"),
    ],
)
def test_bad_options_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Config(**values)
    assert KEY not in str(caught.value)


def test_a_fit_needs_a_model_and_a_task(options: dict[str, Any], videos: Path) -> None:
    with pytest.raises(UserError, match="name it with --model"):
        tr.fit(videos, method="gvl")
    with pytest.raises(UserError, match="give --task-text, or --examples 5"):
        tr.fit(videos, **{**options, "examples": 0})


# The whole way


def test_command_line(server: ChatServer, videos: Path, heldout: Path, tmp_path: Path) -> None:
    model, video = tmp_path / "model", heldout / "crossing_100.npy"
    options = ["--image-size", "32", "--examples", "1", "--frames", "8", "--cache", tmp_path / "answers"]
    asking = ["--method", "gvl", "--model", "m", "--base-url", server.url]
    assert printed(run("fit", videos, "--out", model, *asking, *options, "--json"))["method"] == "gvl"
    metrics = printed(run("evaluate", model, video, "--json"))
    assert metrics["voc"] > 0.95
    assert metrics["voc_reversed"] < -0.95
    assert len(server.requests) == 5  # forwards, backwards, and a frozen first, middle and last frame
    assert run("report", model, "--clips", 1).code == 0
    assert run("score", model, video, "--out", tmp_path / "scores").code == 0
    assert len(server.requests) == 5
    assert "gvl on 24 videos, model m" in (model / "report.html").read_text()
    server.script.append("key")
    refused = run("score", model, videos / "crossing_00.npy", "--out", tmp_path / "scores")
    assert "refuses the key" in the_error(refused)


def test_features_are_the_frames(options: dict[str, Any], videos: Path) -> None:
    frames = crossing(1, 3)
    features = tr.fit(videos, **options).encode(frames)
    assert features.dtype == torch.uint8
    assert np.array_equal(features.numpy(), frames.reshape(3, -1))
