"""A small server that speaks the Hugging Face Hub's protocol, and Python with nothing but it at the other end."""

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
from urllib.parse import unquote

TOKEN = "hf_test"


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub that an upload of a model and downloads need.

    `server.repos` holds id -> name -> bytes, where a dataset has the id datasets/user/name; `server.asked` holds what
    was asked for.
    """

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
            if line["key"] == "deletedFile":
                del self.server.repos[repo][line["value"]["path"]]
        address = f"{self.server.address}/{repo}/commit/{self._commit(repo)}"
        return self._answer({"commitUrl": address, "commitOid": self._commit(repo), "success": True})

    def do_GET(self):
        self.server.asked.append(self.path)
        if found := re.match(r"/api/(models/|(datasets/))(\w+/[\w-]+)(/revision/\w+|/tree/\w+)?($|\?)", self.path):
            repo, part = (found[2] or "") + found[3], found[4] or ""
            if repo == "me/broken":
                return self._answer({"error": "Out of order"}, 500)
            if repo not in self.server.repos:
                return self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            files = self.server.repos[repo]
            if part.startswith("/tree"):
                tree = [{"type": "file", "path": n, "size": len(d), "oid": self._hash(d)} for n, d in files.items()]
                return self._answer(tree)
            siblings = [{"rfilename": name} for name in files]
            return self._answer({"id": repo.removeprefix("datasets/"), "sha": self._commit(repo), "siblings": siblings})
        if not (found := re.match(r"/((?:datasets/)?\w+/[\w-]+)/resolve/\w+/(.+)", self.path)):
            return self._answer({"error": "Not found"}, 404)
        repo, name = found.groups()
        data = self.server.repos[repo][unquote(name)]
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
    server.repos, server.asked, server.address = {}, [], f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


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
