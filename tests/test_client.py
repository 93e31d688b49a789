"""`tr.Client`: the same numbers and the same errors as a local reward."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.conftest import crossing
from tests.serve.served import application, model, models, running, value
from timerewarder.client import Client
from timerewarder.errors import UserError
from timerewarder.serve.app import create_app

TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    rewards = {**models(), "whole": model("ot")}
    with running(create_app(rewards)) as address:
        yield f"http://{address}/"


@pytest.mark.parametrize("name", ["near", "far", "past"])
@pytest.mark.parametrize("size", [32, 45])
def test_scores_and_streams_are_those_of_a_local_reward(url: str, name: str, size: int) -> None:
    frames, local = crossing(4, 14, size), models()[name]
    expected = local.score(frames)
    with Client(url, model=name) as reward:
        scores = reward.score(frames)
        assert (scores.dtype, scores.shape) == (np.float32, (14,))
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        stream, here = reward.stream(), local.stream()
        for _ in range(2):
            assert stream.reset(frames[0]) is None
            here.reset(frames[0])
            for frame in frames[1:]:
                step = stream.step(frame)
                assert isinstance(step, float)
                assert step == pytest.approx(here.step(frame), abs=1e-5)
        stream.close()


def test_models_are_listed_and_have_to_be_named(url: str) -> None:
    assert [found["name"] for found in Client(url).models()] == ["near", "far", "past", "whole"]
    with pytest.raises(UserError, match="name one of near, far, past, whole with model=NAME"):
        Client(url).score(crossing(1))
    with pytest.raises(UserError, match="did you mean near"):
        Client(url, model="neer").score(crossing(1))


def test_mistakes_are_the_same_as_those_of_a_local_reward(url: str) -> None:
    local, remote = model(), Client(url, model="near")
    floats = crossing(1).astype(np.float32)
    for bad in (floats, crossing(1)[0], [[1]], crossing(1)[:0]):
        with pytest.raises(UserError) as here:
            local.score(bad)
        with pytest.raises(UserError) as there:
            remote.score(bad)
        assert str(there.value) == str(here.value)
    for stream in (local.stream(), remote.stream()):
        with pytest.raises(UserError, match=r"call stream\.reset\(first_frame\) before stream\.step\(frame\)"):
            stream.step(crossing(1)[0])
        with pytest.raises(UserError, match="uint8"):
            stream.reset(floats[0])
    with pytest.raises(UserError, match="ot rewards whole episodes"):
        Client(url, model="whole").stream()


def test_a_stream_frees_its_session(url: str) -> None:
    def sessions() -> float:
        return value(httpx.get(f"{url}metrics", trust_env=False).text, "timerewarder_sessions")

    before = sessions()
    stream = Client(url, model="near").stream()
    stream.reset(crossing(1)[0])
    assert sessions() == before + 1
    del stream
    gc.collect()
    end = time.monotonic() + 30
    while sessions() != before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_token_is_sent_and_a_wrong_one_is_told() -> None:
    with running(application(TOKEN)) as address:
        good, bad = Client(f"http://{address}", token=TOKEN), Client(f"http://{address}", token="wrong")
        assert good.score(crossing(1)).shape == (len(crossing(1)),)
        with good.stream() as stream:
            stream.reset(crossing(1)[0])
        with pytest.raises(UserError, match="needs its token"):
            bad.score(crossing(1))
        bad.info = good.info
        with pytest.raises(UserError, match="needs its token"):
            bad.stream().reset(crossing(1)[0])


def test_the_servers_refusals_are_passed_on() -> None:
    with running(application(frames=5, sessions=1)) as address, Client(f"http://{address}") as reward:
        with pytest.raises(UserError, match="more than the 5 that are allowed"):
            reward.score(crossing(1, 9))
        with reward.stream() as first:
            first.reset(crossing(1)[0])
            with pytest.raises(UserError, match="all 1 streams are in use"):
                reward.stream().reset(crossing(1)[0])
            assert isinstance(first.step(crossing(1)[1]), float)


def test_a_lost_stream_can_begin_again() -> None:
    frames, expected = crossing(1), model().score(crossing(1))
    with running(application(session_seconds=0.2)) as address, Client(f"http://{address}") as reward:
        stream = reward.stream()
        stream.reset(frames[0])
        assert stream._socket is not None
        while stream._socket.close_code is None:  # until the server finds it idle
            time.sleep(0.01)
        with pytest.raises(UserError, match=r"idle for 0\.2 seconds|is lost"):
            stream.step(frames[1])
        stream.reset(frames[0])
        assert stream.step(frames[1]) == pytest.approx(float(expected[1]), abs=1e-5)
        stream.close()


def test_a_server_that_is_not_there() -> None:
    with running(application()) as address:
        gone = f"http://{address}"
        stream = Client(gone).stream()
        stream.reset(crossing(1)[0])
    for ask in (lambda: Client(gone).models(), lambda: stream.reset(crossing(1)[0]), lambda: Client(gone).stream()):
        with pytest.raises(UserError, match="check the address, and that `timerewarder serve` runs there"):
            ask()
    for nonsense in ("127.0.0.1:8000", "ftp://host", "http://"):
        with pytest.raises(UserError, match="is not the address of a server"):
            Client(nonsense)


def test_the_client_does_not_wait_for_pytorch() -> None:
    code = "import sys, timerewarder.client; print('torch' in sys.modules, 'fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
