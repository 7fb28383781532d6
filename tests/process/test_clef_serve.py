"""Clef and Clef-flash served end to end, in both dialects. They are tiny checkpoints with random weights."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the clef family needs framehost[torch]")

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"login": None, "billing": "a charge"}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", {"n": 1}, "much"]},
}
BODY: dict[str, Any] = {"state": {"text": "charged twice", "items": [1, 2.0]}, "questions": QUESTIONS}
MODELS = {"clef": 1100, "clef-flash": 16_384}
"""Name and most tokens of a request; the first one cuts states that are longer."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framehost]:
    """Both models, each with a listener of its own."""
    from tests.helpers import tiny_clef

    made = tmp_path_factory.mktemp("clef")
    lines = []
    for seed, (name, limit) in enumerate(MODELS.items()):
        path = json.dumps(str(tiny_clef.write(made / name, seed=seed)))
        lines += [f"[models.{name}]", "family = 'clef'", f"path = {path}", f"[models.{name}.options]"]
        lines += ["device = 'cpu'", f"max_length = {limit}", f"truncate = {json.dumps(name == 'clef')}"]
        lines += [f"[models.{name}.native]", "listen = '127.0.0.1:0'"]
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text("\n".join(lines) + "\n")
        # Two hosts on a small machine: more threads would only wait for each other.
        with running(directory, config=config, environment={"OMP_NUM_THREADS": "1"}, wait=False) as starting:
            for name in MODELS:
                starting.line(f"[{name}@", "] warming")
            yield starting.opened()


def native(server: Framehost, name: str, body: bytes | None, path: str = "/v1/systemone") -> tuple[int, Any]:
    """Status and document of a model's native listener: POST with a body, GET without one."""
    port = int(server.host(name)["native"].rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD_S)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("name", MODELS)
def test_both_dialects_give_the_same_answers(server: Framehost, name: str) -> None:
    """Within the native rounding, each in its own shape and with the confidence of its own formula."""
    main = server.post({"model": name, **BODY})
    assert main.status == 200, main
    status, own = native(server, name, json.dumps({"model": "@cf/cloudflare/clef", **BODY}).encode())
    assert status == 200, own
    assert (own["model"], main.json["model"]) == ("@cf/cloudflare/clef", name)
    assert own["usage"] == main.json["usage"]
    assert own["usage"]["input_tokens"] > 500
    assert list(own["answers"]) == list(main.json["answers"]) == list(QUESTIONS)
    for question, answer in main.json["answers"].items():
        assert own["answers"][question].keys() == answer.keys()
        for field in ("noul", "score", "probabilities"):
            if field in answer:
                assert own["answers"][question][field] == pytest.approx(answer[field], abs=6e-5)
    best = max(own["answers"]["team"]["probabilities"].values())
    assert own["answers"]["team"]["confidence"] == best
    assert list(own["answers"]["team"]["probabilities"]) == ["login", "billing"]
    assert own["answers"]["harm"]["legend"] == {"0": "none", "1": {"n": 1}, "2": "much"}


def test_questions_are_decided_together(server: Framehost) -> None:
    """Asked alone a question has another answer, and a request with three is one unit at the host."""
    together = server.post({"model": "clef", **BODY}).json["answers"]["refund"]["noul"]
    before = server.model("clef")["link"]["replies"]
    alone = server.post({"model": "clef", **BODY, "questions": {"refund": QUESTIONS["refund"]}})
    assert abs(alone.json["answers"]["refund"]["noul"] - together) > 1e-4
    server.post({"model": "clef", **BODY})
    assert server.model("clef")["link"]["replies"] == before + 2


def test_a_state_that_is_too_long(server: Framehost) -> None:
    """400 with the limit where it is refused, 422 on the own listener; cut and told where that was configured."""
    long = {"state": "x y " * 9000, "questions": {"refund": QUESTIONS["refund"]}}
    refused = server.post({"model": "clef-flash", **long})
    assert (refused.status, refused.json["detail"]["error_type"]) == (400, "max_tokens_exceeded")
    assert "maximum is 16384" in refused.json["detail"]["message"]
    status, own = native(server, "clef-flash", json.dumps({"model": "m", **long}).encode())
    assert (status, own) == (422, {"detail": refused.json["detail"]["message"]})
    cut = server.post({"model": "clef", **long})
    assert cut.status == 200, cut
    assert cut.json["usage"]["input_tokens"] == MODELS["clef"]
    assert 0 < cut.json["x_truncated"]["kept"] < cut.json["x_truncated"]["total"]
    status, own = native(server, "clef", json.dumps({"model": "m", **long}).encode())
    assert (status, own["usage"]["input_tokens"]) == (200, MODELS["clef"])
    schema = {"state": "", "questions": {str(number): QUESTIONS["refund"] for number in range(20)}}
    refused = server.post({"model": "clef", **schema})
    assert refused.status == 400
    assert refused.json["detail"]["message"].startswith("schema requires ")
    assert refused.json["detail"]["message"].endswith(" tokens before state; maximum is 1100")
    assert server.idle()
    assert server.host("clef")["state"] == "ready"


def test_what_is_refused_on_the_own_listener(server: Framehost) -> None:
    """400 for what is no JSON, 422 with the reference's words for the rest."""
    status, own = native(server, "clef", b"{")
    assert (status, own.keys()) == (400, {"detail"})
    for body, text in (
        ({"questions": {}}, "model and state are required"),
        ({"model": "m", "state": 1, "questions": {}}, "at least one question is required"),
        ({"model": "m", "state": 1, "questions": {"q": {}}}, "q: type must be noul, choice, or score"),
        ({"model": "m", "state": 1, "questions": {"q": {"type": "score"}}}, "q: criteria must not be empty"),
    ):
        assert native(server, "clef", json.dumps(body).encode()) == (422, {"detail": text})


def test_health(server: Framehost) -> None:
    """From what the host said when it was ready."""
    assert native(server, "clef-flash", None, "/health") == (
        200,
        {"status": "ready", "model": "clef", "dtype": "float32", "max_length": 16384, "truncate": False},
    )
