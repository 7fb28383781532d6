"""Every dialect over one real server: the same decision in five spellings, and each one's own errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import Answer, Framehost, configuration, running

STATE = "I was charged twice for my order and want my money back"
INSTRUCTIONS = "Which team answers?"
OPTIONS = {"billing": "a charge, an invoice or a refund", "bug": "an error, a crash, something is broken"}
LEVELS = ["small: a question", "large: money was lost"]

SYSTEM_ONE = {
    "model": "jev-latest",
    "state": STATE,
    "questions": {
        "team": {"type": "choice", "instructions": INSTRUCTIONS, "criteria": OPTIONS},
        "refund": {"type": "noul", "instructions": "Does the customer want a refund?"},
        "harm": {"type": "score", "instructions": "How large is it?", "criteria": LEVELS},
    },
}
OPENAI = {
    "model": "jev-latest",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": STATE}]}],
    "questions": [
        {
            "type": "choice",
            "name": "team",
            "instructions": INSTRUCTIONS,
            "choices": [{"value": name, "description": text} for name, text in OPTIONS.items()],
        },
        {"type": "predicate", "name": "refund", "instructions": "Does the customer want a refund?"},
        {
            "type": "score",
            "name": "harm",
            "instructions": "How large is it?",
            "levels": [{"label": str(index), "description": text} for index, text in enumerate(LEVELS)],
        },
    ],
}
GEMINI = {
    "model": "models/jev-latest",
    "input": {"type": "text", "text": STATE},
    "questions": SYSTEM_ONE["questions"],
}

SYSTEM_ONE_PATHS = ("/v1/systemone", "/systemone")
OPENROUTER_PATHS = ("/api/v1/systemone", "/api/alpha/decisions", "/alpha/decisions")
SHARED_PATHS = ("/v1/decisions", "/decisions")


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory, "sparrow=sparrow") as server:
        yield server


@pytest.fixture(scope="module")
def expected(server: Framehost) -> dict[str, Any]:
    answer = server.post(SYSTEM_ONE)
    assert answer.status == 200
    document: dict[str, Any] = answer.json
    assert list(document) == ["model", "answers", "usage", "x_statement"]
    assert document["x_statement"] == ["refund"], "it has no criteria"
    assert document["model"] == "sparrow", "an alias is answered with the concrete name"
    return document


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", [*SYSTEM_ONE_PATHS, *OPENROUTER_PATHS, *SHARED_PATHS])
def test_a_system_one_body_is_answered_alike_on_every_path(
    server: Framehost, expected: dict[str, Any], path: str, slash: str
) -> None:
    """Byte for byte, with a slash at the end or without, and without a redirect."""
    answer = server.post(SYSTEM_ONE, path + slash)
    assert answer.status == 200
    assert answer.body == server.post(SYSTEM_ONE).body
    assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("path", ["/v1/decisions", "/decisions", "/v1/decisions/", "/decisions/"])
def test_openais_body_gets_the_same_numbers(server: Framehost, expected: dict[str, Any], path: str) -> None:
    """The same state and questions in another shape: the model reads the same, so it says the same."""
    answer = server.post(OPENAI, path)
    assert answer.status == 200
    team, refund, harm = answer.json["answers"]
    theirs = expected["answers"]
    assert team["choice"] == theirs["team"]["choice"]
    assert {entry["value"]: entry["probability"] for entry in team["probabilities"]} == theirs["team"]["probabilities"]
    assert team["confidence"] == theirs["team"]["confidence"]
    assert refund == {"type": "predicate", "name": "refund", "probability": theirs["refund"]["noul"]}
    assert harm["score"] == theirs["harm"]["score"]
    assert [entry["value"] for entry in harm["probabilities"]] == [0, 1]
    assert answer.json["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
    assert answer.json["model"] == "sparrow"


@pytest.mark.parametrize("path", [*SHARED_PATHS, "/v1beta/decisions", "/v1beta/decisions/"])
def test_geminis_body_gets_the_same_numbers(server: Framehost, expected: dict[str, Any], path: str) -> None:
    """Its own confidence, everything else as in System One."""
    answer = server.post(GEMINI, path, x_goog_api_key="k")
    assert answer.status == 200
    ours, theirs = answer.json["answers"], expected["answers"]
    assert ours["refund"]["noul"] == theirs["refund"]["noul"]
    assert ours["team"]["confidence"] == max(theirs["team"]["probabilities"].values())
    for name in ("team", "harm"):
        assert {**ours[name], "confidence": 0} == {**theirs[name], "confidence": 0}
    assert answer.json["usage"]["total_input_tokens"] == expected["usage"]["input_tokens"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
def test_the_content_type_does_not_matter(server: Framehost, expected: dict[str, Any], kind: str) -> None:
    """People send JSON with whatever their tool writes there."""
    assert server.post(SYSTEM_ONE, Content_Type=kind).json == expected


# Errors: the same faults, each dialect's own shape.

UNREADABLE = [b"", b"{", b"[]", b'{"state": NaN}', b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}', b"[" * 70 + b"]" * 70]


def refused(answer: Answer, status: int) -> Any:
    assert answer.status == status, answer
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-request-id"]
    return answer.json


@pytest.mark.parametrize("raw", UNREADABLE, ids=lambda raw: repr(raw[:16]))
def test_a_body_that_is_no_request_is_refused_in_the_shape_of_its_path(server: Framehost, raw: bytes) -> None:
    """422 with a list for System One; 400 with one sentence for the others. Nothing reaches the host."""
    calls = server.model()["scheduler"]["dispatched"]
    for path in SYSTEM_ONE_PATHS:
        assert refused(server.post(raw, path), 422)["detail"][0]["loc"][0] == "body"
    for path in OPENROUTER_PATHS:
        document = refused(server.post(raw, path), 400)
        assert document["error"]["code"] == 400
        assert document["error"]["message"]
        assert document["detail"][0]["loc"][0] == "body"
    for path in SHARED_PATHS:
        error = refused(server.post(raw, path), 400)["error"]
        assert error["type"] == "invalid_request_error"
        assert set(error) == {"message", "type", "param", "code"}
        error = refused(server.post(raw, path, x_goog_api_key="k"), 400)["error"]
        assert error["status"] == "INVALID_ARGUMENT"
    assert refused(server.post(raw, "/v1beta/decisions"), 400)["error"]["code"] == 400
    assert server.model()["scheduler"]["dispatched"] == calls


def test_an_unknown_model_has_the_status_of_its_dialect(server: Framehost) -> None:
    """400 where System One is spoken, 404 where a model is a resource."""
    assert refused(server.post({**SYSTEM_ONE, "model": "gpt"}), 400)["detail"]["error_type"] == "api_usage_error"
    assert refused(server.post({**SYSTEM_ONE, "model": "gpt"}, "/alpha/decisions"), 400)["error"]["code"] == 400
    document = refused(server.post({**SYSTEM_ONE, "model": "gpt"}, "/v1/decisions"), 404)
    assert document["error"]["code"] == "model_not_found"
    assert document["detail"]["error_type"] == "api_usage_error", "a System One client asked on this path"
    assert refused(server.post({**OPENAI, "model": "gpt"}, "/v1/decisions"), 404)["error"]["param"] == "model"
    assert refused(server.post({**GEMINI, "model": "gpt"}, "/v1/decisions"), 404)["error"]["status"] == "NOT_FOUND"


def test_the_routes_of_language_models_name_ours(server: Framehost) -> None:
    """A client that was pointed here by mistake learns what this is and where to ask."""
    chat = {"model": "sparrow", "messages": [{"role": "user", "content": "hello"}]}
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"):
        for spelling in (path, path + "/", "/api" + path):
            answer = server.post(chat, spelling)
            document = refused(answer, 404 if spelling.startswith("/api") and "chat" not in spelling else 400)
            assert "/v1/systemone" in document["error"]["message"]
            assert document["detail"]["message"] == document["error"]["message"]
    assert refused(server.get("/v1/chat/completions"), 405)
    for path in ("/v1/decide", "/v1/evaluate"):
        assert "/v1/systemone" in refused(server.post(SYSTEM_ONE, path), 404)["detail"]["message"]


@pytest.mark.parametrize("path", [*SYSTEM_ONE_PATHS, *OPENROUTER_PATHS, *SHARED_PATHS, "/v1beta/decisions"])
def test_a_get_on_a_decision_path_is_405(server: Framehost, path: str) -> None:
    """Probes and people with a browser: JSON, and Allow."""
    answer = server.get(path)
    assert refused(answer, 405)["error"]["message"]
    assert answer.headers["allow"] == "POST"


def test_the_models_are_listed_in_both_shapes(server: Framehost) -> None:
    """One document for the clients of both; one model by its name or an alias; 404 for another."""
    document = refused(server.get("/v1/models"), 200)
    assert list(document["models"][0]) == ["name", "description", "release_date"]
    assert document["object"] == "list"
    assert document["data"] == [
        {"id": "sparrow", "object": "model", "created": document["data"][0]["created"], "owned_by": "framehost"}
    ]
    for name in ("sparrow", "jev-latest", "sparrow/"):
        one = refused(server.get(f"/v1/models/{name}"), 200)
        assert one == {**document["data"][0], **document["models"][0]}
    missing = refused(server.get("/v1/models/gpt%0a%1b"), 404)
    assert missing["error"]["type"] == "model_not_found"
    assert missing["error"]["message"].isprintable()


def test_the_body_of_another_dialect_is_told_what_is_read(server: Framehost) -> None:
    """A body for the wrong path: a fault with a place, never a guess."""
    assert refused(server.post(OPENAI), 422)["detail"][0]["loc"] == ["body", "state"]
    assert refused(server.post(SYSTEM_ONE, "/v1beta/decisions"), 400)["error"]["message"].startswith("input: ")


def test_extras_of_gateways_change_nothing(server: Framehost) -> None:
    """What the clients of each path add is ignored, byte for byte."""
    plain = server.post(SYSTEM_ONE).body
    extras: dict[str, Any] = {
        "provider": {"order": ["x"]}, "session_id": "s", "user": "u", "trace": {}, "temperature": 0.5, "seed": 1,
        "stream": True, "instructions": 1, "x_trace_id": "t",
    }  # fmt: skip
    for path in (*SYSTEM_ONE_PATHS, *OPENROUTER_PATHS, *SHARED_PATHS):
        assert server.post({**SYSTEM_ONE, **extras}, path).body == plain
    assert json.loads(plain)["usage"]["output_tokens"] == 0


def test_budgets_deadlines_and_cancellation_are_the_same_for_all(runtime: Path) -> None:
    """Time that is over in the queue, a full queue, bad input in front of it, and a client that leaves."""
    until = runtime / "until"
    question = {"type": "noul", "instructions": "?"}
    predicate = {"type": "predicate", "instructions": "?"}
    bodies: dict[str, Any] = {
        "/v1/systemone": {"state": "x", "questions": {"q": question}},
        "/alpha/decisions": {"state": "x", "questions": {"q": question}},
        "/v1/decisions": {"input": "x", "questions": [predicate]},
        "/v1beta/decisions": {"input": "x", "questions": {"q": question}},
    }
    wait = {"type": "input_json", "data": {"op": "wait", "until": str(until)}}
    waiting = {"input": [{"role": "user", "content": [wait]}], "questions": [predicate]}
    config = configuration(runtime / "c.toml", {"toy": {"max_requests": 2}})
    with running(runtime, config=config) as server:
        first = server.open_post(waiting, "/v1/decisions")
        server.running()
        for path, body in bodies.items():
            answer = server.post(body, path, x_framehost_timeout_ms="50")
            assert answer.status == 504
            assert "retry-after" not in answer.headers
        second = server.open_post(waiting, "/v1/decisions")
        server.queued(1)
        for path, body in bodies.items():
            answer = server.post(body, path)
            assert answer.status == 429
            assert answer.headers["retry-after"] == "1"
            assert "toy requests" in answer.body.decode()
            assert server.post({**body, "questions": 1}, path).status in (400, 422), "bad input comes first"
        second.close()
        server.queued(0)
        first.close()
        server.wait(lambda: server.model()["scheduler"]["abandoned"] == 1, "its client is gone")
        until.touch()
        server.wait(server.idle, "idle")
