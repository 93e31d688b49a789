"""What is no video is refused with 4xx and a sentence, leaves nothing behind, and the server goes on."""

from __future__ import annotations

import io
import os
import pickle
import socket
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.conftest import crossing
from tests.serve.served import application, npy, picture, running, upload
from timerewarder.data.videos import write_video

LOCAL = "http://localhost"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """In a folder of its own, so that what stands outside its own one can be looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("outside")))
        return application(frames=100, upload_megabytes=1)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=LOCAL) as client:
        yield client


@pytest.fixture(autouse=True)
def goes_on(app: FastAPI, client: TestClient) -> Iterator[None]:
    """After each of these the server still scores, and its folder is empty."""
    yield
    assert client.post("/v1/score/frames", content=npy(crossing(1))).status_code == 200
    assert list(app.state.service.folder.iterdir()) == []


def header(descr: str, shape: str, version: bytes = b"\x01\x00") -> bytes:
    """The beginning of an npy file that promises anything."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


def refused(answer: Any, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    message = answer.json()["error"]["message"]
    assert "/tmp" not in message
    assert "--skip-bad" not in message
    return message


BOMB = header("|u1", "(1000000, 4000, 4000, 3)")
FILES: dict[str, tuple[bytes, str, int, str]] = {
    "text": (b"this is not a video\n" * 50, "clip.mp4", 400, "not_a_video"),
    "zip bomb": (zipped(frames=BOMB + bytes(200_000)), "clip.npz", 413, "too_many_frames"),
    "huge frames": (zipped(frames=header("|u1", "(3, 60000, 60000, 3)")), "clip.npz", 413, "frame_too_large"),
    "not a zip": (b"PK\x03\x04" + bytes(100), "clip.npz", 400, "not_a_video"),
    "long and thin": (npy(np.zeros((3, 1, 100_000, 3), np.uint8)), "clip.npy", 413, "frame_too_large"),
    "one frame": (npy(crossing(1)[:1]), "clip.npy", 422, "too_few_frames"),
    "cut off": (npy(crossing(1))[:-10], "clip.npy", 400, "not_a_video"),
    "pickle": (npy(np.array([Bomb()], object)), "clip.npy", 400, "not_a_video"),
    "two videos": (zipped(a=npy(crossing(1)), b=npy(crossing(2))), "clip.npz", 422, "several_videos"),
    "empty": (b"", "clip.mp4", 400, "empty"),
    "a picture": (picture(crossing(1)[0]), "clip.png", 400, "not_a_video"),
    "a playlist": (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "clip.mp4", 400, "not_a_video"),
    "too large": (bytes(1_200_000), "clip.mp4", 413, "too_large"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_file(client: TestClient, name: str) -> None:
    content, file, status, code = FILES[name]
    refused(client.post("/v1/score", **upload(content, file)), status, code)


def test_a_long_thin_video_file(client: TestClient, tmp_path: Path) -> None:
    write_video(tmp_path / "thin.mp4", np.zeros((2, 2, 8300, 3), np.uint8), fps=10)
    message = refused(
        client.post("/v1/score", **upload((tmp_path / "thin.mp4").read_bytes(), "thin.mp4")), 413, "frame_too_large"
    )
    assert "thin.mp4 has frames of 8300x2" in message


ARRAYS: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "not_frames"),
    "text": (b"hello", 400, "not_frames"),
    "pickle": (pickle.dumps(Bomb()), 400, "not_frames"),
    "pickled array": (npy(np.array([[[[Bomb()] * 3]]], object)), 422, "not_frames"),
    "floats": (npy(crossing(1).astype(np.float32)), 422, "not_frames"),
    "channels first": (npy(crossing(1).transpose(0, 3, 1, 2)), 422, "not_frames"),
    "promises too much": (header("|u1", "(50, 32, 32, 3)") + bytes(10), 400, "not_frames"),
    "holds too much": (npy(crossing(1)) + b"x", 400, "not_frames"),
    "many frames": (header("|u1", "(1000000000, 32, 32, 3)"), 413, "too_many_frames"),
    "wide": (header("|u1", "(2, 1, 100000, 3)"), 413, "frame_too_large"),
    "no frames": (header("|u1", "(0, 32, 32, 3)"), 422, "not_frames"),
    "negative": (header("|u1", "(-2, 32, 32, 3)"), 422, "not_frames"),
    "huge header": (b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b"(" * 90_000, 400, "not_frames"),
    "deep header": (header("|u1", "(" * 5000, b"\x02\x00"), 400, "not_frames"),
    "fortran": (npy(np.asfortranarray(crossing(1))), 422, "not_frames"),
    "too large": (bytes(1_200_000), 413, "too_large"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_bad_array(client: TestClient, name: str) -> None:
    content, status, code = ARRAYS[name]
    refused(client.post("/v1/score/frames", content=content), status, code)


FRAMES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "not_a_frame"),
    "text": (b"hello", 400, "not_a_frame"),
    "half a header": (npy(crossing(1)[0])[:20], 400, "not_frames"),
    "half a frame": (npy(crossing(1)[0])[:-1], 400, "not_a_frame"),
    "grey": (npy(crossing(1)[0][..., 0]), 422, "not_a_frame"),
    "half a picture": (
        picture(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))[:2000],
        400,
        "not_a_frame",
    ),
    "16 bits": (picture(np.zeros((8, 8), np.uint16)), 422, "not_a_frame"),
    "thin picture": (picture(np.zeros((1, 100_000, 3), np.uint8)), 413, "frame_too_large"),
    "bomb": (picture(np.zeros((8000, 8000), np.uint8)), 413, "frame_too_large"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_bad_frame(client: TestClient, name: str) -> None:
    content, status, code = FRAMES[name]
    refused(client.post("/v1/streams", content=content), status, code)


def test_bad_forms(client: TestClient) -> None:
    refused(client.post("/v1/score", content=npy(crossing(1))), 422, "no_video")
    refused(client.post("/v1/score", files={"other": ("a.npy", npy(crossing(1)))}), 422, "no_video")
    form = {"content-type": "multipart/form-data; boundary=x"}
    refused(client.post("/v1/score", content=b"--x\r\nnonsense", headers=form), 400, "half_upload")
    refused(client.post("/v1/score", content=b"nonsense", headers=form), 400, "bad_form")
    long = {"content-type": f"multipart/form-data; boundary={'x' * 5000}"}
    refused(client.post("/v1/score", content=b"nonsense", headers=long), 400, "bad_form")


def test_names_are_labels_and_never_paths(app: FastAPI, client: TestClient) -> None:
    outside = app.state.service.folder.parent
    for name in (
        "../../evil.npy",
        "/etc/evil.npy",
        "..\\evil.npy",
        "evil\r\nX: y.npy",
        "\x00evil.npy",
        "..",
        "x" * 500,
    ):
        accepted = client.post("/v1/videos", params={"name": name}, **upload(npy(crossing(1)), "a.npy"))
        assert accepted.status_code == 202
        shown = accepted.json()["name"]
        assert not set(shown) & set("/\\\r\n\x00")
        assert 0 < len(shown) <= 120
        client.delete(f"/v1/videos/{accepted.json()['id']}")
    assert set(outside.iterdir()) == {app.state.service.folder}
    refused(client.post("/v1/videos?name=run.exe", **upload(npy(crossing(1)))), 400, "not_a_video")
    _until(lambda: not list(app.state.service.folder.iterdir()))


def test_half_an_upload_leaves_nothing() -> None:
    app = application()
    with running(app) as address:
        host, port = address.split(":")
        for path in ("/v1/videos", "/v1/score", "/v1/score/frames"):
            with socket.create_connection((host, int(port))) as half:
                head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 500000\r\n"
                half.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode())
                half.sendall(
                    b'--x\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n' + bytes(9000)
                )
                _until(lambda: _inside(app.state.service.folder))
            _until(lambda: not _inside(app.state.service.folder))
        assert len(app.state.service.videos) == 0


def test_a_body_that_stops_arriving_is_given_up() -> None:
    with running(application(upload_seconds=0.2)) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                f"POST /v1/score/frames HTTP/1.1\r\nHost: {address}\r\nContent-Length: 500\r\n\r\nabc".encode()
            )
            slow.settimeout(30)
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_length_that_lies_does_not_help() -> None:
    """Chunked bodies declare no length; the limit holds while they arrive."""
    with TestClient(application(upload_megabytes=0.1), base_url=LOCAL) as client:
        refused(client.post("/v1/score/frames", content=(bytes(10_000) for _ in range(100))), 413, "too_large")


def _inside(folder: Path) -> list[str]:
    """Everything below a folder, which the server may be removing meanwhile (`rglob` would raise)."""
    return [name for _, folders, files in os.walk(folder) for name in (*folders, *files)]


def _until(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
