"""The family's own request body: what is read, what is refused, in which order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.families.open_jev.checkpoint import Checkpoint
from frontend.families.open_jev.grammar import names, parse, read
from frontend.families.refusal import Refused

NOUL = {"type": "noul", "instructions": "i"}
CHOICE = {"type": "choice", "instructions": "i", "criteria": {"a": None}}
SCORE = {"type": "score", "instructions": "i", "criteria": ["low", "high"]}
NOT_TEXT = "^instructions and descriptions must be text, an object, or an array$"


def body(question: Any = None, **fields: Any) -> dict[str, Any]:
    """A body that is accepted, with another question or other fields."""
    return {"state": "s", "questions": {"q": NOUL if question is None else question}, **fields}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        b'{"state": "a", "state": "b"}',
        b'{"state": NaN}',
        b'{"state": 1e999}',
        b'{"state": "\\ud800"}',
        b"[" * 128 + b"]" * 128,
    ],
)
def test_bytes_that_are_refused(raw: bytes) -> None:
    """All of them are refusals like any other, an empty body included."""
    with pytest.raises(Refused, match=r"^invalid JSON"):
        read(raw)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "^request must be an object$"),
        (body(model="gpt"), "^requested model is not loaded$"),
        (body(model=1), "^requested model is not loaded$"),
        (body(model="open-jev-9b"), "^requested model is not loaded$"),
        ({"questions": {"q": NOUL}}, "^request requires state$"),
        (body(state=1), "^state must be text, a JSON object, or an array$"),
        (body(state=None), "^state must be text, a JSON object, or an array$"),
        ({"state": "s"}, "^questions must be an object$"),
        (body(questions=[NOUL]), "^questions must be an object$"),
        (body(questions={}), "^questions must be nonempty and within the server question limit$"),
        (
            body(questions={str(index): NOUL for index in range(4097)}),
            "^questions must be nonempty and within the server question limit$",
        ),
        (body("x"), "^question definition must be an object$"),
        (body({"type": "noul"}), NOT_TEXT),
        (body(NOUL | {"instructions": None}), NOT_TEXT),
        (body(NOUL | {"instructions": 1}), NOT_TEXT),
        (body(CHOICE | {"criteria": {"a": 1}}), NOT_TEXT),
        (body(SCORE | {"criteria": ["low", None]}), NOT_TEXT),
        (body(NOUL | {"criteria": {"true": "t", "false": None}}), NOT_TEXT),
        (body(CHOICE | {"criteria": ["a"]}), "^Choice requires an object$"),
        (body(CHOICE | {"criteria": None}), "^Choice requires an object$"),
        (body(CHOICE | {"criteria": {}}), "^Choice requires between 1 and 255 candidates$"),
        (
            body(CHOICE | {"criteria": {str(index): None for index in range(256)}}),
            "^Choice requires between 1 and 255 candidates$",
        ),
        (body(SCORE | {"criteria": {"0": "a"}}), "^Score requires an array$"),
        (body(SCORE | {"criteria": ["one"]}), "^Score requires 2 to 10 descriptive levels$"),
        (body(SCORE | {"criteria": ["l"] * 11}), "^Score requires 2 to 10 descriptive levels$"),
        (body(NOUL | {"criteria": {"true": "t"}}), "^Noul criteria must contain true and false descriptions$"),
        (
            body(NOUL | {"criteria": {"true": "t", "false": "f", "maybe": "m"}}),
            "^Noul criteria must contain true and false descriptions$",
        ),
        (body(NOUL | {"criteria": []}), "^Noul criteria must contain true and false descriptions$"),
        (body(NOUL | {"type": "generation"}), "^question type must be choice, score, or noul$"),
        (body(NOUL | {"type": None}), "^question type must be choice, score, or noul$"),
        (
            body(
                questions={
                    str(index): CHOICE | {"criteria": dict.fromkeys(map(str, range(255)))} for index in range(258)
                }
            ),
            "^request exceeds the candidate limit$",
        ),
        # From the outside to the inside.
        ({"model": "x", "questions": 1}, "^requested model"),
        ({"questions": 1}, "^request requires state$"),
        (body(questions={"a": "x", "b": 1}), "^question definition"),
    ],
)
def test_documents_that_are_refused(document: object, message: str, checkpoint: Checkpoint) -> None:
    """Every text a client of the original may look for, and the first of several mistakes."""
    with pytest.raises(Refused, match=message):
        parse(document, names(checkpoint))


def test_what_is_accepted(checkpoint: Checkpoint) -> None:
    """Empty states, every name of the model, unknown fields, the largest questions."""
    for state in ("", {}, []):
        assert parse(body(state=state), ()).state == state
    for model in (None, "open-jev", "jev-latest", "Qwen/Qwen3.8-27B", "open-jev-27b-v1.1"):
        parse(body(model=model, x=1), names(checkpoint))
    wide = CHOICE | {"criteria": dict.fromkeys(map(str, range(255))), "unknown": 1}
    asked = parse(
        body(questions={"c": wide, "s": SCORE | {"criteria": ["l"] * 10}, "n": NOUL | {"criteria": None}}), ()
    )
    assert [question.count for question in asked.questions] == [255, 10, 1]
    assert [question.id for question in asked.questions] == ["c", "s", "n"]
    many = {str(index): CHOICE | {"criteria": dict.fromkeys(map(str, range(255)))} for index in range(257)}
    asked = parse(body(questions=many | {"last": NOUL}), ())
    assert sum(question.count for question in asked.questions) == 65_536


def test_a_refusal_says_where(checkpoint: Checkpoint) -> None:
    """For the System One profile, whose errors have a place."""
    for question, place in (
        (CHOICE | {"criteria": {"a": 1}}, ("questions", "q", "criteria", "a")),
        (SCORE | {"criteria": ["a", 1]}, ("questions", "q", "criteria", 1)),
        ({"type": "noul"}, ("questions", "q", "instructions")),
    ):
        with pytest.raises(Refused) as caught:
            parse(body(question), ())
        assert caught.value.place == place


def test_the_largest_depth_is_read() -> None:
    """127 containers inside each other."""
    assert json.dumps(read(b"[" * 127 + b"]" * 127)).startswith("[[[")
