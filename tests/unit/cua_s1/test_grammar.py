"""The family's own request body: what is refused, with which words, and in which order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.families.cua_s1 import grammar
from frontend.families.cua_s1.native import STATUS
from frontend.families.refusal import Refused
from tests.unit.cua_s1.helpers import choice, native

MODEL = "'model' must be 'cua-s1-4b-0.2'"
TEXT = "must be a string, an object or an array"
OPTIONS = "question 'q': 'criteria' must be an object with 1 to 26 options"


def refused(body: bytes) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        grammar.parse(grammar.read(body))
    return STATUS[caught.value.reason], caught.value.message


BROKEN = {
    "a key twice": b'{"model": "m", "state": {"x": 1, "x": 2}}',
    "NaN": b'{"state": NaN}',
    "Infinity": b"[-Infinity]",
    "out of range": b'{"state": [1e400]}',
    "5000 digits": b'{"state": [' + b"9" * 5000 + b"]}",
    "lone surrogate": b'{"state": "\\ud800"}',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "no UTF-8": b"\xff\xfe",
    "byte order mark": b"\xef\xbb\xbf{}",
    "no JSON": b"not json",
    "empty": b"",
    "too deep": b"[" * 128 + b"]" * 128,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies(name: str) -> None:
    """All are 400, in the words of the original's server as far as those are not its JSON library's."""
    status, message = refused(BROKEN[name])
    assert status == 400
    assert message == "duplicate key 'x'" if name == "a key twice" else message.startswith("request body is not valid")


def test_a_top_level_that_is_no_object() -> None:
    """It is JSON."""
    for body in (b"[1, 2]", b"null", b'"x"', b"1"):
        assert refused(body) == (400, "request body must be a JSON object")


def test_a_key_that_stands_twice_is_named_at_any_size() -> None:
    """Also where the strict reader gives no place any more, and however deep it is."""
    filler = b'"' + b"x" * (1 << 20) + b'"'
    assert refused(b'{"a": [{"\\u0062": 1, "b": ' + filler + b"}]}") == (400, "duplicate key 'b'")


def test_a_body_above_4_mib() -> None:
    """One byte more than is read."""
    body = json.dumps(native({"q": choice("a")}, state="x")).encode()
    assert grammar.read(body + b" " * ((4 << 20) - len(body)))
    assert refused(body + b" " * ((4 << 20) - len(body) + 1)) == (413, "request body too large")


WRONG: list[tuple[Any, int, str]] = [
    ({}, 422, MODEL),
    (native({"q": choice("a")}, model="cua-s1"), 422, MODEL),
    (native({"q": choice("a")}, model=None), 422, MODEL),
    *((native({"q": choice("a")}, state=empty), 422, "'state' must not be empty") for empty in ("", {}, [])),
    *((native({"q": choice("a")}, state=bad), 422, f"'state' {TEXT}") for bad in (None, 0, 1.5, True, False)),
    ({"model": "cua-s1-4b-0.2", "questions": {"q": choice("a")}}, 422, f"'state' {TEXT}"),
    *((native(bad), 422, "'questions' must be a non-empty object") for bad in ({}, [], None, "q", 1)),  # type: ignore[arg-type]
    ({"model": "cua-s1-4b-0.2", "state": "x"}, 422, "'questions' must be a non-empty object"),
    (native({str(index): choice("a") for index in range(65)}), 413, "more than 64 questions"),
    *((native({"q": bad}), 422, "question 'q' must be an object") for bad in (None, "choice", [], 1)),
    (native({"q": choice("a") | {"type": "noul"}}), 422, "question 'q': type 'noul' is not supported"),
    (native({"q": {"type": "score"}}), 422, "question 'q': type 'score' is not supported"),
    (native({"q": choice("a") | {"type": "rank"}}), 422, "question 'q': unknown type 'rank'"),
    (native({"q": {}}), 422, "question 'q': unknown type None"),
    (native({"q": choice("a") | {"type": ["choice"]}}), 422, "question 'q': unknown type ['choice']"),
    (native({"q": {"type": "choice", "criteria": {"a": None}}}), 422, "question 'q': 'instructions' is required"),
    *((native({"q": choice("a", instructions=bad)}), 422, f"question 'q' {TEXT}") for bad in (1, False)),
    *((native({"q": choice() | {"criteria": bad}}), 422, OPTIONS) for bad in ({}, [], ["a"], None, "a", 3)),
    (native({"q": {"type": "choice", "instructions": None}}), 422, OPTIONS),
    (native({"q": choice(*[str(index) for index in range(27)])}), 422, OPTIONS),
    *((native({"q": choice(b="x", a=bad)}), 422, f"question 'q': 'a' {TEXT}") for bad in (0, 1.5, True)),
    (native({"it's": {}}), 422, 'question "it\'s": unknown type None'),
]


@pytest.mark.parametrize(("document", "status", "message"), WRONG)
def test_wrong_bodies(document: Any, status: int, message: str) -> None:
    """Each row of the table."""
    assert refused(json.dumps(document).encode()) == (status, message)


def test_the_first_thing_wrong_is_named() -> None:
    """The order of the checks: repairing one thing after the other meets them all."""
    document: Any = {"model": 1, "state": "", "questions": []}
    many: dict[str, Any] = {f"q{index}": choice("a") for index in range(65)}
    wrong = {"type": "x", "instructions": 1, "criteria": []}
    steps: list[tuple[Any, str]] = [
        ({}, MODEL),
        ({"model": "cua-s1-4b-0.2"}, "'state' must not be empty"),
        ({"state": 3}, f"'state' {TEXT}"),
        ({"state": "s"}, "'questions' must be a non-empty object"),
        ({"questions": {"z": 1, **many}}, "more than 64 questions"),
        ({"questions": {"a": wrong, "b": 1}}, "question 'a': unknown type 'x'"),
        ({"questions": {"a": wrong | {"type": "choice"}, "b": 1}}, f"question 'a' {TEXT}"),
        ({"questions": {"a": choice() | {"criteria": []}, "b": 1}}, OPTIONS.replace("'q'", "'a'")),
        ({"questions": {"a": choice(x=1), "b": 1}}, f"question 'a': 'x' {TEXT}"),
        ({"questions": {"a": choice("x"), "b": 1}}, "question 'b' must be an object"),
    ]
    for change, message in steps:
        document |= change
        assert refused(json.dumps(document).encode())[1] == message


def test_what_is_accepted() -> None:
    """Order is kept, unknown fields are ignored, and 26 options of 64 questions are many enough."""
    letters = [f"option {index}" for index in range(26)]
    asked = {f"q{index}": choice(*reversed(letters)) | {"extra": 1} for index in range(64)}
    request = grammar.parse(grammar.read(json.dumps(native(asked, state={"b": 1, "a": 2**70}, images=[1])).encode()))
    assert [question.id for question in request.choices] == list(asked)
    assert [name for name, _ in request.choices[0].options] == letters[::-1]
    assert list(request.state) == ["b", "a"]
    structured = choice(a=["x"], b={"y": None}, c="", d=None, instructions=None)
    (question,) = grammar.parse(native({"": structured})).choices
    assert question.options == (("a", ["x"]), ("b", {"y": None}), ("c", ""), ("d", None))
    assert (question.id, question.instructions) == ("", None)
    assert grammar.read(b"[" * 127 + b"]" * 127)
