"""Scores over HTTP equal those of the model; the rest of the API is what its description says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.conftest import crossing
from tests.serve.served import application, models, npy, upload, value
from timerewarder.data.videos import read_videos, write_video
from timerewarder.serve.app import create_app

LOCAL = "http://localhost"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(models()), base_url=LOCAL) as client:
        yield client


@pytest.mark.parametrize("name", ["near", "far", "past"])
@pytest.mark.parametrize("size", [32, 50])
def test_raw_frames_get_the_models_own_rewards(client: TestClient, name: str, size: int) -> None:
    frames = crossing(1, 150, size)  # more than one batch
    reward = models()[name]
    answer = client.post("/v1/score/frames", params={"model": name}, content=npy(frames)).json()
    rewards = reward.score(frames)
    assert answer["model"] == name
    assert (answer["frames"], answer["fps"]) == (150, None)
    np.testing.assert_allclose(answer["rewards"], rewards, atol=1e-5)
    np.testing.assert_allclose(answer["progress"], rewards.cumsum() / reward.scale, atol=1e-4)
    assert answer["final_progress"] == answer["progress"][-1]


def test_one_frame_is_scored_like_the_model_does(client: TestClient) -> None:
    answer = client.post("/v1/score/frames", params={"model": "near"}, content=npy(crossing(1)[:1]))
    assert answer.json()["rewards"] == [0.0]


def test_uploaded_video_is_scored_at_its_rate_or_another(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "clip.mp4"
    write_video(file, crossing(2, 20), fps=10)
    for fps in (None, 5):
        (video,) = read_videos(file, fps)
        params = {"model": "near"} if fps is None else {"model": "near", "fps": fps}
        answer = client.post("/v1/score", params=params, **upload(file.read_bytes(), "clip.mp4")).json()
        assert answer["fps"] == (fps or 10)
        np.testing.assert_allclose(answer["rewards"], models()["near"].score(video.frames), atol=1e-5)


def test_a_model_has_to_be_named_if_there_are_several(client: TestClient) -> None:
    content = npy(crossing(1))
    missing = client.post("/v1/score/frames", content=content)
    wrong = client.post("/v1/score/frames", params={"model": "ner"}, content=content)
    assert (missing.status_code, wrong.status_code) == (422, 404)
    assert "near, far, past" in missing.json()["error"]["message"]
    assert wrong.json()["error"]["code"] == "no_model"


def test_models_and_limits_are_listed(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "models": ["near", "far", "past"]}
    near, *_ = client.get("/v1/models").json()["models"]
    assert near == {
        "name": "near", "method": "timerewarder", "encoder": "small", "image_size": 32, "resize": "squash",
        "streams": True, "is_value": True, "has_distances": True,
    }  # fmt: skip
    assert client.get("/v1/limits").json()["frames"] == 5000


def test_errors_have_one_form(client: TestClient) -> None:
    for answer, status in (
        (client.get("/nowhere"), 404),
        (client.get("/assets/..%2fapp.py"), 404),
        (client.get("/v1/videos/none"), 404),
        (client.patch("/v1/models"), 405),
        (client.post("/v1/score?model=near&fps=-1"), 422),
        (client.post("/v1/score?model=near&fps=nan"), 422),
    ):
        assert answer.status_code == status
        error = answer.json()["error"]
        assert re.fullmatch("[a-z_]+", error["code"])
        assert "Traceback" not in error["message"]
        assert len(error["message"]) > 10


def test_metrics_count_by_route_and_reason() -> None:
    with TestClient(application(), base_url=LOCAL) as client:
        client.post("/v1/score/frames", content=npy(crossing(1, 12)))
        client.post("/v1/score/frames", content=b"nonsense")
        client.get("/v1/videos/abc")
        client.get("/no/such/thing")
        text = client.get("/metrics").text
    route = 'route="/v1/score/frames"'
    assert value(text, f'timerewarder_requests_total{{method="POST",{route},status="200"}}') == 1
    assert value(text, f'timerewarder_requests_total{{method="POST",{route},status="400"}}') == 1
    assert value(text, 'timerewarder_refused_total{reason="not_frames"}') == 1
    assert value(text, 'timerewarder_frames_encoded_total{model="near"}') == 12
    assert value(text, "timerewarder_sessions") == value(text, "timerewarder_queue_frames") == 0
    assert 'route="/v1/videos/{id}"' in text
    assert "abc" not in text
    assert "/no/such" not in text


def test_the_documentation_is_complete_and_needs_no_internet(client: TestClient) -> None:
    page = client.get("/docs").text
    api = client.get("/openapi.json").json()
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "<script" not in page
    for path, methods in api["paths"].items():
        assert path in page
        for operation in methods.values():
            assert operation["description"]
            for status, answer in operation["responses"].items():
                if (
                    status in ("400", "401", "403", "404", "409", "413", "422", "429")
                    and "Range" not in answer["description"]
                ):
                    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Error"), (path, status)
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_a_full_queue_is_a_429_with_a_time_to_come_back() -> None:
    app = application(queue=1, scores=1)
    with TestClient(app, base_url=LOCAL) as client:
        app.state.service._asked = 2  # as if two requests were there
        answer = client.post("/v1/score/frames", content=npy(crossing(1)))
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        app.state.service._asked = 0
        assert client.post("/v1/score/frames", content=npy(crossing(1))).status_code == 200
