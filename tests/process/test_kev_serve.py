"""A Kev LoRA checkpoint served end to end, in both dialects. It is a tiny one with random weights."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the kev family needs framehost[torch]")

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", {"n": 1}, "much"]},
}
BODY: dict[str, Any] = {"state": {"text": "charged twice", "items": [1, 2]}, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framehost]:
    """The model "kev", with a listener of its own."""
    from tests.helpers import tiny_kev

    made = tiny_kev.write(tmp_path_factory.mktemp("kev") / "lora")
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text(
            f"[models.kev]\nfamily = 'kev'\npath = {json.dumps(str(made))}\n"
            f"[models.kev.options]\ndevice = 'cpu'\nmax_length = 300\nbase = {json.dumps(str(made / 'base'))}\n"
            "[models.kev.native]\nlisten = '127.0.0.1:0'\n"
        )
        with running(directory, config=config) as running_server:
            yield running_server


def native(server: Framehost, body: bytes | None, path: str = "/v1/systemone") -> tuple[int, Any]:
    """Status and document of the native listener: POST with a body, GET without one."""
    port = int(server.line("own dialect at http://").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD_S)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_both_dialects_give_the_same_answers(server: Framehost) -> None:
    """Each in its own shape, the native one with two decimals."""
    main = server.post({"model": "kev", **BODY})
    assert main.status == 200, main
    status, own = native(server, json.dumps({"model": "kev-4b", **BODY}).encode())
    assert status == 200, own
    assert list(own) == ["model", "answers", "usage", "latency_ms"]
    assert own["model"] == "kev-4b"
    assert own["usage"]["input_tokens"] == main.json["usage"]["input_tokens"]
    assert list(own["answers"]) == list(QUESTIONS)
    assert own["answers"]["refund"]["noul"] == pytest.approx(main.json["answers"]["refund"]["noul"], abs=0.00501)
    assert own["answers"]["team"]["choice"] == main.json["answers"]["team"]["choice"]
    assert own["answers"]["harm"]["score"] == pytest.approx(main.json["answers"]["harm"]["score"], abs=0.00501)


def test_what_is_refused(server: Framehost) -> None:
    """Each dialect in its own words."""
    long = {**BODY, "state": "charged twice " * 300}
    refused = server.post({"model": "kev", **long})
    assert refused.status == 400
    assert "at most 300 are taken" in json.dumps(refused.json)
    status, document = native(server, json.dumps(long).encode())
    assert status == 422
    assert document["detail"].startswith("the state has ")
    assert native(server, b"{}") == (422, {"detail": "state: a field is missing"})


def test_health(server: Framehost) -> None:
    assert native(server, None, "/health") == (200, {"status": "ready", "model": "kev-latest"})
