"""Frames that wait together are encoded together, those of streams first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import SIZE, crossing
from tests.serve.served import model
from timerewarder.rewards import METHODS
from timerewarder.rewards.reward import FrameReward
from timerewarder.serve.batching import Batcher
from timerewarder.serve.episodes import Arrivals, Episode
from timerewarder.serve.errors import ApiError
from timerewarder.serve.limits import Limits
from timerewarder.serve.metrics import Metrics


class Gated:
    """A worker whose forward passes are counted, and wait until they may run."""

    def __init__(self, **limits: Any) -> None:
        self.reward = model()
        self.passes: list[int] = []
        self.open, self.arrived = threading.Event(), threading.Event()
        self.reward.encoder.register_forward_pre_hook(self._wait)
        self.batcher = Batcher("near", self.reward, Limits(**limits), Metrics())

    def _wait(self, _module: object, inputs: tuple[torch.Tensor]) -> None:
        self.passes.append(len(inputs[0]))
        self.arrived.set()
        assert self.open.wait(30)

    def occupy(self) -> None:
        """Let the worker begin a pass, so that what comes next has to wait."""
        self.batcher.video(crossing(0, 2)[:1])
        assert self.arrived.wait(30)


@pytest.fixture
def gated() -> Iterator[Gated]:
    gated = Gated()
    yield gated
    gated.open.set()
    gated.batcher.close()


def test_frames_that_wait_share_a_forward_pass(gated: Gated) -> None:
    async def scenario() -> None:
        gated.occupy()
        waiting = [gated.batcher.stream(frame, Episode(gated.reward)) for frame in crossing(1, 16)]
        assert gated.batcher.waiting == 16
        gated.open.set()
        arrivals = await asyncio.gather(*waiting)
        assert [arrival.step for arrival in arrivals] == [0] * 16

    asyncio.run(scenario())
    assert gated.passes == [1, 16]


def test_streams_go_first_and_videos_are_not_starved(gated: Gated) -> None:
    async def scenario() -> None:
        gated.occupy()
        video = gated.batcher.video(crossing(2, 100))
        streams = [gated.batcher.stream(frame, Episode(gated.reward)) for frame in crossing(1, 5)]
        gated.open.set()
        await asyncio.gather(*streams)
        features = torch.cat([future.result(30) for future in video])
        torch.testing.assert_close(features, gated.reward.encode(crossing(2, 100)), atol=1e-5, rtol=1e-5)

    asyncio.run(scenario())
    assert gated.passes[:3] == [1, 5 + 16, 64]  # a quarter of the batch for the video, then all of it
    assert sum(gated.passes[:4]) == 1 + 5 + 100


def test_a_full_queue_refuses() -> None:
    gated = Gated(queue=2)

    async def scenario() -> None:
        gated.occupy()
        waiting = [gated.batcher.stream(frame, Episode(gated.reward)) for frame in crossing(1, 2)]
        with pytest.raises(ApiError) as refused:
            gated.batcher.stream(crossing(1)[0], Episode(gated.reward))
        assert refused.value.status == 429
        gated.open.set()
        await asyncio.gather(*waiting)

    asyncio.run(scenario())
    gated.batcher.close()


def test_closing_refuses_what_waits() -> None:
    gated = Gated()

    async def scenario() -> None:
        gated.occupy()
        waiting = gated.batcher.stream(crossing(1)[0], Episode(gated.reward))
        closing = threading.Thread(target=gated.batcher.close)
        closing.start()
        while not gated.batcher._closed:
            await asyncio.sleep(0.001)
        gated.open.set()
        with pytest.raises(ApiError, match="stopping"):
            await waiting
        closing.join()
        with pytest.raises(ApiError, match="stopping"):
            gated.batcher.video(crossing(1))

    asyncio.run(scenario())


def test_a_pass_that_fails_is_told_and_the_worker_goes_on(gated: Gated) -> None:
    gated.open.set()

    async def scenario() -> None:
        with pytest.raises(RuntimeError):
            await gated.batcher.stream(np.zeros((8, 8, 3), np.uint8), Episode(gated.reward))  # not the model's size
        arrival = await gated.batcher.stream(crossing(1)[0], Episode(gated.reward))
        assert arrival.step == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if entry.reward.streams])
def test_arrivals_of_many_equal_score(method: str) -> None:
    """Whatever a method compares, many episodes at once give what each gives alone."""
    reward = _fitted(method)
    arrive = Arrivals(reward)
    features = [torch.randn(8, reward.encoder.dim, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    episodes = [Episode(reward) for _ in features]
    with torch.no_grad():
        steps = [arrive(episodes, torch.stack([one[t] for one in features])) for t in range(8)]
        for number, one in enumerate(features):
            rewards = [step[number].reward or 0.0 for step in steps]
            np.testing.assert_allclose(rewards, reward.compare(one).numpy(), atol=1e-5)


def test_the_first_frame_is_not_forgotten_where_it_counts() -> None:
    assert Arrivals(model()).is_local
    assert Arrivals(model(history=2)).is_local
    assert not Arrivals(model("from-init")).is_local


def _fitted(method: str) -> FrameReward:
    """A model of any method with random weights and, where it keeps some, random goals or demonstrations."""
    reward = model(method)
    random = torch.Generator().manual_seed(1)
    for name in type(reward).grown:
        owner, _, buffer = name.rpartition(".")
        module = reward.get_submodule(owner)
        kept: torch.Tensor = getattr(module, buffer)
        if kept.is_floating_point() and kept.shape[0] == 0:
            setattr(module, buffer, torch.randn(1, *kept.shape[1:], generator=random))
    assert reward.preprocessing.size == SIZE
    return reward
