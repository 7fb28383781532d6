"""The body of the family's own dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.families.laya import grammar
from frontend.families.refusal import Refused
from tests.unit.laya.helpers import QUESTIONS

ONE: dict[str, Any] = {"state": "s", "questions": {"q": QUESTIONS["refund"]}}


@pytest.mark.parametrize("state", ["s", "", None, 7, 1.5, True, [], {}, [{"a": None}]], ids=json.dumps)
def test_any_state(state: Any) -> None:
    """Null included."""
    assert grammar.parse({**ONE, "state": state}).state == state


def test_any_number_of_questions() -> None:
    """None at all, and they stay in their order."""
    assert grammar.parse({"state": "s", "questions": {}}).questions == ()
    assert [asked.id for asked in grammar.parse({"state": "s", "questions": QUESTIONS}).questions] == list(QUESTIONS)


@pytest.mark.parametrize(
    "fields", [{"model": None}, {"model": "english"}, {"lang": "en"}, {"lang": "english"}], ids=str
)
def test_the_one_model(fields: dict[str, Any]) -> None:
    assert grammar.parse({**ONE, **fields}).questions


REFUSED: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "no object": ([], "request must be an object", ()),
    "another field": ({**ONE, "task": "x"}, 'unknown field "task", expected one of', ("task",)),
    "no state": ({"questions": {}}, "missing field state", ("state",)),
    "no questions": ({"state": 1}, "missing field questions", ("questions",)),
    "a list of questions": ({**ONE, "questions": []}, "questions must be an object", ("questions",)),
    "another model": ({**ONE, "model": "multilingual"}, "only model=english is supported", ("model",)),
    "a known alias": ({**ONE, "model": "laya"}, "only model=english is supported", ("model",)),
    "no name": ({**ONE, "model": ["english"]}, "only model=english is supported", ("model",)),
    "another language": ({**ONE, "lang": "de"}, "only English is supported; use lang=en", ("lang",)),
    "a bad question": ({**ONE, "questions": {"q": 1}}, 'question "q": the definition', ("questions", "q")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    """In words that name it, with its place."""
    document, message, place = REFUSED[case]
    with pytest.raises(Refused) as caught:
        grammar.parse(document)
    assert caught.value.message.startswith(message)
    assert caught.value.place == place


def test_keys_that_stand_twice() -> None:
    """Outermost they are refused, further in the last one counts, at the first one's place."""
    with pytest.raises(Refused, match="appears more than once"):
        grammar.read(b'{"state": 1, "state": 2, "questions": {}}')
    document = grammar.read(b'{"state": {"a": 1, "b": 2, "a": 3}, "questions": {}}')
    assert document == {"state": {"a": 3, "b": 2}, "questions": {}}
    assert list(document["state"]) == ["a", "b"]  # type: ignore[index]


def test_only_what_is_wrong_is_named() -> None:
    """Not the inner key that stands twice, which is allowed."""
    with pytest.raises(Refused, match=r"finite|infinit|large") as caught:
        grammar.read(b'{"state": {"a": 1, "a": 1e999}, "questions": {}}')
    assert caught.value.place == ("state", "a")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"state": NaN}', b'{"state": 1e400}', b'{"state": "\\ud800"}', b"[" * 128 + b"]" * 128],
    ids=["empty", "half", "not UTF-8", "NaN", "too large", "half a character", "too deep"],
)
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(Refused, match=r"^invalid JSON: "):
        grammar.read(body)


def test_depth_and_numbers_that_are_read() -> None:
    """127 containers inside each other, integers of any size."""
    assert grammar.read(b"[" * 127 + b"]" * 127)
    assert grammar.read(b'{"state": 123456789012345678901234567890}') == {"state": 123456789012345678901234567890}
