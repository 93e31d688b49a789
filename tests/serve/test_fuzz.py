"""The API against its own description: whatever is sent, no answer is a 5xx and every answer is documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.conftest import crossing
from tests.serve.served import application, npy, running, upload
from tests.serve.test_videos import finished

HEADERS = {"Authorization": "Bearer fuzz"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

app = application("fuzz", videos=5, sessions=5, decode_seconds=5)
schema = schemathesis.openapi.from_dict(app.openapi())


class Target(NamedTuple):
    """A server with a stream and a video on it."""

    url: str
    ids: dict[str, str]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with (
        running(app) as address,
        httpx.Client(base_url=f"http://{address}", headers=HEADERS, trust_env=False) as client,
    ):
        stream = client.post("/v1/streams", content=npy(crossing(1)[0])).json()["id"]
        video = client.post("/v1/videos", **upload(npy(crossing(1)))).json()["id"]
        assert finished(client, video)["state"] == "done"
        yield Target(f"http://{address}", {"/v1/streams": stream, "/v1/videos": video})


@schema.parametrize()
@hypothesis.settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_nothing_breaks_the_server(case: schemathesis.Case, target: Target) -> None:
    case.call_and_validate(base_url=target.url, headers=HEADERS, checks=CHECKS)
    there = next((id for path, id in target.ids.items() if case.path.startswith(f"{path}/{{id}}")), None)
    if there and case.method != "DELETE":  # random ids lead nowhere; this one does
        case.path_parameters["id"] = there
        case.call_and_validate(base_url=target.url, headers=HEADERS, checks=CHECKS)
