"""A Nimble LoRA checkpoint served end to end, in both dialects. It is a tiny one with random weights."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the nimble family needs framehost[torch]")

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", "some", "much"]},
}
BODY: dict[str, Any] = {"state": {"text": "charged twice", "items": [1, 2]}, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framehost]:
    """The model "nimble", with a listener of its own."""
    from tests.helpers import tiny_nimble

    made = tiny_nimble.write(tmp_path_factory.mktemp("nimble") / "lora")
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text(
            f"[models.nimble]\nfamily = 'nimble'\npath = {json.dumps(str(made))}\n"
            f"[models.nimble.options]\ndevice = 'cpu'\nmax_length = 900\nbase = {json.dumps(str(made / 'base'))}\n"
            "[models.nimble.native]\nlisten = '127.0.0.1:0'\n"
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
    """Each in its own shape; the confidences are of other formulas."""
    main = server.post({"model": "nimble", **BODY})
    assert main.status == 200, main
    status, own = native(server, json.dumps({"model": "nimble-latest", **BODY}).encode())
    assert status == 200, own
    assert list(own) == ["model", "answers", "usage"]
    assert own["model"] == "nimble-latest"
    assert own["usage"]["output_tokens"] == 4
    assert own["usage"]["input_tokens"] > main.json["usage"]["input_tokens"]
    assert list(own["answers"]) == list(QUESTIONS)
    assert own["answers"]["refund"]["noul"] == pytest.approx(main.json["answers"]["refund"]["noul"], abs=1e-9)
    assert own["answers"]["team"]["choice"] == main.json["answers"]["team"]["choice"]
    assert own["answers"]["team"]["probabilities"] == pytest.approx(main.json["answers"]["team"]["probabilities"])
    assert own["answers"]["harm"]["score"] == pytest.approx(main.json["answers"]["harm"]["score"], abs=1e-9)


def test_what_is_refused(server: Framehost) -> None:
    """Each dialect in its own words; what the listener itself says has the same shape."""
    long = {**BODY, "state": "charged twice " * 300}
    refused = server.post({"model": "nimble", **long})
    assert refused.status == 400
    assert "at most 900 are taken" in json.dumps(refused.json)
    status, document = native(server, json.dumps({"model": "nimble-latest", **long}).encode())
    assert status == 422
    assert document["error"]["message"].startswith("the prompt of question ")
    assert native(server, b"{}") == (422, {"error": {"message": "state: a field is missing"}})
    assert native(server, None, "/other")[1] == {"error": {"message": "there are POST /v1/systemone and GET /health"}}
    assert native(server, None)[1] == {"error": {"message": "allowed here: POST"}}


def test_health(server: Framehost) -> None:
    assert native(server, None, "/health") == (200, {"status": "ok", "startup_seconds": None})
