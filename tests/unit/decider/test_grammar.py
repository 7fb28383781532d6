"""The family's own request body: what is read, what is refused, in which order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.families.decider.grammar import MAX_BODY_BYTES, parse, read
from frontend.families.refusal import Refused

CHOICE = {"instructions": "q", "criteria": ["a", "b"]}


def body(**fields: Any) -> dict[str, Any]:
    """A body that is accepted, with these fields on top."""
    return {"state": "s", "questions": {"q": CHOICE}, **fields}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{invalid", "^invalid JSON"),
        (b"", "^invalid JSON"),
        (b"\xff{}", "^invalid JSON"),
        (b"[1] x", "^invalid JSON"),
        (b'{"state": "a", "state": "b"}', '^duplicate JSON key "state"$'),
        (b'{"state": {"k": {"\xc3\xa9": 1, "\xc3\xa9": 1}}}', '^duplicate JSON key "\xe9"$'),
        (b'{"state": NaN}', "^invalid JSON"),
        (b'{"state": 1e999}', "^invalid JSON"),
        (b'{"state": "\\ud800"}', "^invalid JSON"),
        (b'{"state": 18446744073709551616}', "^JSON integer out of range"),
        (b'{"state": [[-9223372036854775809]]}', "^JSON integer out of range"),
        (b"[" * 128 + b"]" * 128, "^invalid JSON"),
        (b" " * (MAX_BODY_BYTES + 1), "^request body exceeds 8388608 bytes$"),
    ],
)
def test_bytes_that_are_refused(raw: bytes, message: str) -> None:
    """Strict JSON, 64-bit integers, fewer than 128 containers inside each other, 8 MiB."""
    with pytest.raises(Refused, match=message):
        read(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": -0}', {"a": 0}),
        (b'{"a": -0.0}', {"a": -0.0}),
        (b'{"a": 18446744073709551615, "b": -9223372036854775808}', {"a": 2**64 - 1, "b": -(2**63)}),
        (b'"12345678901234567890123"', "12345678901234567890123"),
        (b"[" * 127 + b"]" * 127, None),
    ],
)
def test_bytes_that_are_read(raw: bytes, value: object) -> None:
    """The largest integers and depths there may be; an integer minus zero is zero."""
    found = read(raw)
    assert value is None or (found == value and json.dumps(found) == json.dumps(value))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "^request must be an object$"),
        (body(independent=False), "^unsupported independent: expected true$"),
        (body(independent=None), "^unsupported independent: expected true$"),
        (body(independent=1), "^unsupported independent: expected true$"),
        (body(isolated_levels=False), "^unsupported isolated_levels: expected true$"),
        (body(schema_first=True), "^unsupported schema_first: expected false$"),
        (body(neutralize_none=None), "^unsupported neutralize_none: expected false$"),
        (body(chat=0), "^unsupported chat: expected false$"),
        (body(layout="schema_first"), "^unsupported layout"),
        (body(model=1), "^model must be a string$"),
        ({"questions": {}}, "^missing state$"),
        ({"state": 1}, "^missing questions$"),
        (body(questions=[]), "^questions must be an object$"),
        (body(questions={"q": "x"}), "^question must be an object$"),
        (body(questions={"q": {"type": "image"}}), '^unknown question type "image"$'),
        (body(questions={"q": {"instructions": "q", "criteria": ["a"]}}), r"^Choice requires 2\.\.255 options$"),
        (body(questions={"q": {**CHOICE, "isolated": False}}), "^unsupported isolated: expected true$"),
        (body(questions={"q": {**CHOICE, "isolated": None}}), "^unsupported isolated: expected true$"),
        # The order of checks: switches, layout, model, state, questions.
        ({"chat": True, "layout": 1, "model": 1}, "^unsupported chat"),
        ({"layout": 1, "model": 1}, "^unsupported layout"),
        ({"model": 1}, "^model must be"),
        ({"questions": 1}, "^missing state$"),
    ],
)
def test_documents_that_are_refused(document: object, message: str) -> None:
    """Every text a client of the original may look for, and the first of several mistakes."""
    with pytest.raises(Refused, match=message):
        parse(document)


def test_what_is_accepted() -> None:
    """Any state, no questions at all, a null model, switches that change nothing, unknown fields."""
    for state in (None, 0, False, "", [], {}):
        assert parse({"state": state, "questions": {}}).state == state
    fields = {
        "model": None,
        "independent": True,
        "isolated_levels": True,
        "schema_first": False,
        "neutralize_none": False,
        "chat": False,
        "layout": "state_first",
        "assets": {"a": 1},
        "temperature": 2,
    }
    asked = parse(
        body(**fields, questions={"b": {**CHOICE, "isolated": True}, "a": {"type": "bool", "instructions": "q"}})
    )
    assert [question.id for question in asked.questions] == ["b", "a"]
    assert [question.kind for question in asked.questions] == ["choice", "noul"]
    assert parse(body(layout=None)).state == "s"
