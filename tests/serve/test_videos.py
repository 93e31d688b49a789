"""The page's videos: from an upload to scores, preview and exports, and away again."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.conftest import crossing
from tests.serve.served import application, model, npy, upload
from timerewarder.data.videos import read_videos
from timerewarder.report.run import make_clip
from timerewarder.serve.app import create_app
from timerewarder.serve.limits import Limits

LOCAL = "http://localhost"
FRAMES = crossing(3, 15, 35)  # odd sides


def finished(client: TestClient, id: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while (video := client.get(f"/v1/videos/{id}").json())["state"] not in ("done", "failed"):
        assert time.monotonic() < end
        assert video["state"] in ("waiting", "decoding", "scoring")
        time.sleep(0.02)
    return video


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    rewards = {"near": model(), "past": model(history=2), "gail": model("gaifo"), "rank": model("rank2reward")}
    with TestClient(create_app(rewards), base_url=LOCAL) as client:
        yield client


@pytest.fixture(scope="module")
def video(client: TestClient) -> dict[str, Any]:
    answer = client.post("/v1/videos?name=a+b.npy", **upload(npy(FRAMES), "other.npy"))
    assert answer.status_code == 202
    assert (answer.json()["name"], answer.json()["state"]) == ("a b.npy", "decoding")
    return finished(client, answer.json()["id"])


def test_all_models_score_an_upload(video: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "clip.npy", FRAMES)
    (local,) = read_videos(tmp_path / "clip.npy")
    assert (video["state"], video["done"], video["total"], video["error"]) == ("done", 15, 15, None)
    assert (video["fps"], video["frames"], video["width"], video["height"]) == (10.0, 15, 35, 35)
    assert list(video["results"]) == ["near", "past", "gail", "rank"]
    for name, reward in (("near", model()), ("past", model(history=2)), ("gail", model("gaifo"))):
        clip, result = make_clip(reward, local), video["results"][name]
        np.testing.assert_allclose(result["rewards"], clip.rewards, atol=1e-5)
        np.testing.assert_allclose(result["progress"], clip.progress, atol=1e-5)
        assert result["final_progress"] == result["progress"][-1]
        assert result["is_value"] == reward.is_value
        assert result["has_distances"] == (clip.distances is not None)


def test_the_list_has_no_results(client: TestClient, video: dict[str, Any]) -> None:
    (listed,) = client.get("/v1/videos").json()["videos"]
    assert listed == {name: value for name, value in video.items() if name != "results"}


def test_preview_has_a_picture_for_every_frame_and_answers_ranges(
    client: TestClient, video: dict[str, Any], tmp_path: Path
) -> None:
    answer = client.get(f"/v1/videos/{video['id']}/preview.mp4")
    assert answer.headers["content-type"] == "video/mp4"
    (tmp_path / "preview.mp4").write_bytes(answer.content)
    (preview,) = read_videos(tmp_path / "preview.mp4")
    assert (preview.fps, preview.frames.shape) == (10.0, (15, 36, 36, 3))
    shown = preview.frames[:, :35, :35].astype(int)
    for number, picture in enumerate(shown):  # the right one, though half of its colour is lost
        assert np.abs(picture - FRAMES).mean(axis=(1, 2, 3)).argmin() == number
    part = client.get(f"/v1/videos/{video['id']}/preview.mp4", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, answer.content[10:20])


def test_distances_are_those_of_the_model(client: TestClient, video: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "clip.npy", FRAMES)
    (local,) = read_videos(tmp_path / "clip.npy")
    for name, reward in (("near", model()), ("past", model(history=2))):
        answer = client.get(f"/v1/videos/{video['id']}/distances", params={"model": name}).json()
        assert answer["indices"] == list(range(15))
        np.testing.assert_allclose(answer["values"], make_clip(reward, local).distances, atol=1e-4)
    missing = client.get(f"/v1/videos/{video['id']}/distances?model=gail")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "no_distances")


def test_exports_are_real_files(client: TestClient, video: dict[str, Any], tmp_path: Path) -> None:
    base = f"/v1/videos/{video['id']}"
    table = client.get(f"{base}/scores.csv?model=past")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["frame"] for row in rows] == [str(frame) for frame in range(15)]
    assert [float(row["time"]) for row in rows] == [frame / 10 for frame in range(15)]
    np.testing.assert_allclose([float(row["reward"]) for row in rows], video["results"]["past"]["rewards"], rtol=1e-6)
    assert "a%20b%20past.csv" in table.headers["content-disposition"]
    sizes = []
    for query in ("model=near", "model=near&model=past&model=gail"):
        picture = client.get(f"{base}/plot.png?{query}")
        assert picture.headers["content-type"] == "image/png"
        sizes.append(Image.open(io.BytesIO(picture.content)).size)
    assert sizes[1][1] > sizes[0][1]  # sums that are no progress have axes of their own
    overlay = client.get(f"{base}/overlay.mp4?model=near")
    (tmp_path / "overlay.mp4").write_bytes(overlay.content)
    (shown,) = read_videos(tmp_path / "overlay.mp4")
    assert len(shown.frames) == 15
    assert shown.frames.shape[2] > shown.frames.shape[1]


def test_a_bad_video_fails_with_a_sentence() -> None:
    with TestClient(application(), base_url=LOCAL) as client:
        id = client.post("/v1/videos?name=notes.mp4", **upload(b"no video" * 100)).json()["id"]
        video = finished(client, id)
        assert video["state"] == "failed"
        assert video["error"]["code"] == "not_a_video"
        assert video["error"]["message"].startswith("notes.mp4 cannot be decoded")
        assert client.get(f"/v1/videos/{id}/preview.mp4").status_code == 409
        assert client.delete(f"/v1/videos/{id}").status_code == 204
        assert client.get(f"/v1/videos/{id}").status_code == 404


def test_the_oldest_finished_videos_make_room_and_deleting_leaves_nothing() -> None:
    app = create_app({"near": model()}, Limits(videos=2))
    with TestClient(app, base_url=LOCAL) as client:
        ids = []
        for seed in range(3):
            ids.append(client.post("/v1/videos", **upload(npy(crossing(seed)), f"{seed}.npy")).json()["id"])
            finished(client, ids[-1])
        assert [video["id"] for video in client.get("/v1/videos").json()["videos"]] == ids[1:]
        assert client.get(f"/v1/videos/{ids[0]}").status_code == 404
        folder = app.state.service.folder
        assert len(list(folder.iterdir())) == 2
        for id in ids[1:]:
            client.delete(f"/v1/videos/{id}")
        assert list(folder.iterdir()) == []
    assert not folder.exists()


def test_videos_that_are_all_unfinished_leave_no_room() -> None:
    app = create_app({"near": model()}, Limits(videos=1))
    with TestClient(app, base_url=LOCAL) as client:
        app.state.service.videos.reserve("being uploaded")
        answer = client.post("/v1/videos", **upload(npy(crossing(1))))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
