"""The Hugging Face Hub: a model goes there and comes back the same, against a small server that speaks its protocol."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import timerewarder as tr
from tests.conftest import QUICK, crossing

TOKEN = "hf_test"
REPO = "me/drawer-open"


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub that an upload and a download of one model need. `server.repos` holds id -> name -> bytes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or self._chunks()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid credentials"}, 401)
        if self.path == "/api/validate-yaml":
            return self._answer({})
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            repo = f"{wanted['organization']}/{wanted['name']}"
            if repo.startswith("others/"):
                return self._answer({"error": "You have no rights here"}, 403)
            if repo == "me/broken":
                return self._answer({"error": "Out of order"}, 500)
            if repo == "me/unplugged":
                self.close_connection = True  # without a word
                return None
            known = repo in self.server.repos
            self.server.repos.setdefault(repo, {})
            return self._answer({"url": f"{self.server.address}/{repo}"}, 409 if known else 200)
        repo, action = re.match(r"/api/models/(\w+/[\w-]+)/(preupload|commit)/main", self.path).groups()
        if action == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            return self._answer({"files": [{**file, "shouldIgnore": False} for file in files]})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.server.repos[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        address = f"{self.server.address}/{repo}/commit/{self._commit(repo)}"
        return self._answer({"commitUrl": address, "commitOid": self._commit(repo), "success": True})

    def do_GET(self):
        if found := re.match(r"/api/models/(\w+/[\w-]+)(/revision/\w+|/tree/\w+)?($|\?)", self.path):
            repo, part = found[1], found[2] or ""
            if repo == "me/broken":
                return self._answer({"error": "Out of order"}, 500)
            if repo not in self.server.repos:
                return self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            files = self.server.repos[repo]
            if part.startswith("/tree"):
                tree = [{"type": "file", "path": n, "size": len(d), "oid": self._hash(d)} for n, d in files.items()]
                return self._answer(tree)
            siblings = [{"rfilename": name} for name in files]
            return self._answer({"id": repo, "sha": self._commit(repo), "siblings": siblings})
        if not (found := re.match(r"/(\w+/[\w-]+)/resolve/\w+/(.+)", self.path)):
            return self._answer({"error": "Not found"}, 404)
        repo, name = found.groups()
        data = self.server.repos[repo][name]
        return self._answer(data, headers={"ETag": f'"{self._hash(data)}"', "X-Repo-Commit": self._commit(repo)})

    do_HEAD = do_GET

    def _answer(self, content, status=200, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _chunks(self):
        """A body sent in chunks."""
        body = b""
        while self.headers.get("Transfer-Encoding") == "chunked" and (size := int(self.rfile.readline(), 16)):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body

    def _hash(self, data):
        return hashlib.sha1(data).hexdigest()

    def _commit(self, repo):
        return self._hash(b"".join(self.server.repos[repo].values()))

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.repos, server.address = {}, f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def model(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("hub") / "model"
    tr.fit(videos, out, **{**QUICK, "epoch_frames": 800, "validate_every": 400})
    return out


def python(folder, address, *arguments):
    """Run Python with a Hub of its own: huggingface_hub reads its settings when it is imported."""
    (folder / "empty").mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env |= {"HF_ENDPOINT": address, "HF_TOKEN": TOKEN, "HF_HOME": str(folder / "hub")}
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, timeout=240, env=env, cwd=folder / "empty",
    )  # fmt: skip
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished


THERE_AND_BACK = """
import sys
import numpy as np
import timerewarder as tr

model, frames, rewards = sys.argv[1:]
print(tr.load(model).push_to_hub("me/drawer-open"))
tr.load(model).push_to_hub("me/drawer-open")  # a second time: the repository is there already
np.save(rewards, tr.load("me/drawer-open").score(np.load(frames)))
"""


def test_there_and_back(model, tmp_path):
    np.save(tmp_path / "frames.npy", crossing(5))
    with serving() as server:
        script = ["-c", THERE_AND_BACK, model, tmp_path / "frames.npy", tmp_path / "rewards.npy"]
        finished = python(tmp_path, server.address, *script)
        assert finished.returncode == 0, finished.stderr
        files = server.repos[REPO]
    assert finished.stdout.startswith(f"{server.address}/{REPO}/commit/")
    assert set(files) == {"config.json", "weights.safetensors", "README.md"}
    for name in ("config.json", "weights.safetensors"):
        assert files[name] == (model / name).read_bytes()
    assert np.array_equal(np.load(tmp_path / "rewards.npy"), tr.load(model).score(crossing(5)))
    check_card(files["README.md"].decode(), tr.load(model).record)


def check_card(card, record):
    """The model card: metadata, what the model saw, how well it did, and an example that compiles."""
    assert card.startswith("---\nlibrary_name: timerewarder\n")
    assert "# drawer-open" in card
    assert f"{record['videos']} videos ({record['frames']} frames)" in card
    for name in ("val_mae", "val_voc_from_first"):
        assert f"| {name} | {record['training']['kept'][name]:.4g} |" in card
    example = re.search(r"```python\n(.*?)```", card, re.S)[1]
    compile(example, "card", "exec")
    assert f'tr.load("{REPO}")' in example


REFUSALS = """
import json, os, sys
import timerewarder as tr

reward = tr.load(sys.argv[1])
def refusal(call, name, token="hf_test"):
    os.environ["HF_TOKEN"] = token
    try:
        call(name)
    except tr.UserError as error:
        return str(error)
print(json.dumps([
    refusal(reward.push_to_hub, "me/drawer-open", token="hf_wrong"),
    refusal(reward.push_to_hub, "others/drawer-open"),
    refusal(reward.push_to_hub, "me/broken"),
    refusal(reward.push_to_hub, "me/unplugged"),
    refusal(reward.push_to_hub, "me/my drawer"),
    refusal(tr.load, "me/nothing"),
    refusal(tr.load, "me/broken"),
    refusal(tr.load, "me/my drawer"),
]))
"""


def test_refusals_say_what_to_do(model, tmp_path):
    with serving() as server:
        finished = python(tmp_path, server.address, "-c", REFUSALS, model)
        assert finished.returncode == 0, finished.stderr
        assert server.repos == {}
    messages = json.loads(finished.stdout.splitlines()[-1])
    for message, reason in zip(
        messages, ["401", "403", "500", "", "my drawer", "404", "500", "my drawer"], strict=True
    ):
        assert message is not None
        assert "\n" not in message
        assert reason in message
    for message, name in zip(messages[:3], ["me/drawer-open", "others/drawer-open", "me/broken"], strict=True):
        assert message.startswith(f"{name} cannot be uploaded to {server.address} (")
        assert message.endswith("check the name, the network and the login (`hf auth login` or HF_TOKEN)")
    for message in messages[5:]:
        assert re.match(
            r"there is no folder me/.* cannot be fetched from the Hub \(.*\): check the name, the net", message
        )


def test_nobody_at_the_other_end(heldout, tmp_path):
    with serving() as server:
        address = server.address
    command = ["-m", "timerewarder", "score", REPO, heldout, "--out", tmp_path / "scores"]
    finished = python(tmp_path, address, *command)
    assert finished.returncode == 2
    assert re.fullmatch(r"error: there is no folder me/drawer-open and .*: check the name.*\n", finished.stderr)
    assert not (tmp_path / "scores").exists()
