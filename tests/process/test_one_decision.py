"""The spine: one decision through three processes, and the things every later test relies on."""

from __future__ import annotations

from pathlib import Path

from tests.process.harness import QUESTION, running


def test_the_embedded_model_answers(runtime: Path) -> None:
    """`framehost serve` without a model gives real answers, labelled, from a warm host."""
    with running(runtime, "sparrow=sparrow") as server:
        body = {
            "state": "I was charged twice and want my money back",
            "questions": {
                "team": {
                    "type": "choice",
                    "criteria": {"billing": "a charge, an invoice or a refund", "bug": "something is broken"},
                }
            },
        }
        answer = server.post(body, x_request_id="mine-1")
        assert answer.status == 200
        assert answer.json["model"] == "sparrow"
        assert answer.json["answers"]["team"]["choice"] == "billing"
        assert answer.headers["x-request-id"] == answer.headers["x-typesafe-request-id"] == "mine-1"
        assert server.post(body).body == answer.body, "the same request gives the same bytes"
        assert server.idle()
        assert server.stop() == 0


def test_the_toy_is_found_by_its_entry_point(runtime: Path) -> None:
    """A third party's family is served without touching the tree."""
    with running(runtime) as server:
        answer = server.decide({"op": "echo", "tag": "hello"})
        assert answer.status == 200
        assert answer.json["x_toy"]["tag"] == "hello"
        assert answer.json["x_toy"]["pid"] == server.host()["pid"]
        # Loaded, warmed up and executed where CUDA lives: it is the reason for the process.
        assert answer.json["x_toy"]["threads"] == ["MainThread"]
        assert answer.json["answers"]["q"]["probabilities"] == {"yes": 0.5, "no": 0.5}
        assert set(QUESTION) == set(answer.json["answers"])


def test_a_structured_level_comes_back_as_it_was_sent(runtime: Path) -> None:
    """Integers of any size are legal JSON, so a legend echoes them digit by digit."""
    with running(runtime) as server:
        levels = ["low", {"at least": 2**70, "unit": "€"}]
        answer = server.post({"state": "x", "questions": {"s": {"type": "score", "criteria": levels}}})
        assert answer.status == 200
        assert answer.json["answers"]["s"]["legend"] == {"0": "low", "1": {"at least": 2**70, "unit": "€"}}
        assert str(2**70).encode() in answer.body
