"""Questions to texts: the rules of the contract (2.3, 2.4) and its list of odd cases (6.4)."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.families.decider.rendering import annotated, level_number, level_text, question, state_text
from frontend.families.refusal import Refused

AB = ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "text", "options"),
    [
        ({"instructions": None, "criteria": AB}, "null", AB),
        ({"type": "choice", "instructions": 7, "criteria": {"a": 0, "b": False}}, "7", ["a: 0", "b: false"]),
        ({"instructions": "q", "criteria": ["a", "a", "b"]}, "q", AB),
        ({"instructions": "q", "criteria": {"a": "", "b": None}}, "q", AB),
        ({"question": "q", "options": AB}, "q", AB),
        ({"instructions": "q", "question": "x", "criteria": AB, "options": ["c", "d"]}, "q", AB),
        ({"instructions": {"k": "é"}, "criteria": {"a": [], "b": {}}}, '{"k": "é"}', ["a: []", "b: {}"]),
        (
            {"type": "score", "instructions": "q", "criteria": {"10": "ten", "2": "two", "-1": "neg"}},
            "q",
            ["neg", "two", "ten"],
        ),
        ({"type": "score", "instructions": "q", "criteria": {"1_0": "b", " ٣ ": "a"}}, "q", ["a", "b"]),
        ({"type": "score", "instructions": "q", "criteria": {"1": "a", "1.0": "b", "0": "c"}}, "q", ["c", "a", "b"]),
        ({"type": "score", "instructions": "q", "criteria": [7, None, "1: x"]}, "q", ["7", "null", "x"]),
        ({"type": "noul", "criteria": {"true": 0}}, "Which answer fits the context?", ["no", "yes: 0"]),
        ({"type": "bool", "instructions": ""} | {"criteria": {"false": "f"}}, None, ["no: f", "yes"]),
        ({"type": "noul", "instructions": "q"}, "q", ["no", "yes"]),
        ({"type": "noul", "instructions": 0, "criteria": {}}, "0", ["no", "yes"]),
    ],
)
def test_a_question_has_these_texts(fields: dict[str, Any], text: str | None, options: list[str]) -> None:
    """Aliases, quirks and descriptions, as the pinned reference renders them."""
    rendered = question("id", fields)
    assert list(rendered.options) == options
    assert rendered.text == (text or "Which answer fits the context?")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"criteria": AB}, "question without instructions"),
        ({"instructions": "", "criteria": AB}, "question without instructions"),
        ({"type": "score", "instructions": "", "criteria": AB}, "question without instructions"),
        ({"type": "noul", "criteria": {"true": "", "false": None}}, "noul question without instructions"),
        ({"type": "noul", "instructions": None}, "noul question without instructions"),
        ({"type": "noul", "instructions": "q", "criteria": AB}, "noul criteria"),
        ({"type": "noul", "criteria": "x"}, "noul criteria"),
        ({"instructions": "q", "criteria": None, "options": AB}, r"Choice requires 2\.\.255 options"),
        ({"instructions": "q", "criteria": ["a"]}, r"Choice requires 2\.\.255 options"),
        ({"instructions": "q", "criteria": ["a", "a"]}, r"Choice requires 2\.\.255 options"),
        ({"instructions": "q", "criteria": [str(i) for i in range(256)]}, r"Choice requires 2\.\.255 options"),
        ({"instructions": "q", "criteria": "ab"}, r"Choice requires 2\.\.255 options"),
        ({"instructions": "q", "criteria": ["a", 1]}, "names must be strings"),
        ({"type": "score", "instructions": "q", "criteria": ["a"]}, r"Score requires 2\.\.10 levels"),
        ({"type": "score", "instructions": "q", "criteria": ["a"] * 11}, r"Score requires 2\.\.10 levels"),
        ({"type": "score", "instructions": "q"}, r"Score requires 2\.\.10 levels"),
        ({"type": "score", "instructions": "q", "criteria": {"a": "x", "1": "y"}}, "finite numbers"),
        ({"type": "score", "instructions": "q", "criteria": {"inf": "x", "1": "y"}}, "finite numbers"),
        ({"type": "image"}, '^unknown question type "image"$'),
        ({"type": None}, "^unknown question type null$"),
        ({"type": ["choice"]}, "unknown question type"),
    ],
)
def test_a_question_is_refused(fields: dict[str, Any], message: str) -> None:
    """What cannot be asked says why, and where."""
    with pytest.raises(Refused, match=message) as caught:
        question("id", fields)
    assert caught.value.place[0] == "id"
    assert caught.value.reason == "invalid"


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("2: somewhat", "somewhat"),
        ("  -3 : x", "x"),
        ("٣: y", "y"),
        ("\u00a07:z", "z"),
        ("12:", ""),
        ("3x: z", "3x: z"),
        ("--1: x", "--1: x"),
        ("a: b", "a: b"),
        ("1: 2: x", "2: x"),
        ("x\n1: y", "x\n1: y"),
        ("\x1c1\x1f:\x85x", "x"),
        ("1.5: x", "1.5: x"),
        ("²: x", "²: x"),
        ("\U00011f51: Kawi, Unicode 15", "Kawi, Unicode 15"),
        ("\U0001e4f3: Nag Mundari, Unicode 15", "Nag Mundari, Unicode 15"),
        ("\U00010d41: Garay, Unicode 16", "\U00010d41: Garay, Unicode 16"),
    ],
)
def test_the_number_of_a_level_is_stripped_once(text: str, stripped: str) -> None:
    """White space, one minus, decimal digits of Unicode 15, a colon: from the front, once."""
    assert level_text(text) == stripped


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("1", 1.0),
        (" 1\t", 1.0),
        ("\u00a0-1.5e3\u2003", -1500.0),
        ("1_000", 1000.0),
        ("٣٤", 34.0),
        (".5", 0.5),
        ("\U00011f51\U00011f50", 10.0),
    ],
)
def test_a_level_key_is_a_number(key: str, number: float) -> None:
    """Python's grammar of floats: space around it, underscores between digits, digits of any script."""
    assert level_number(key) == number


@pytest.mark.parametrize(
    "key", ["", " ", "a", "1__0", "_1", "0x1", "nan", "inf", "-Infinity", "1e999", "\x1c1", "1\x1f", "\U00010d41"]
)
def test_a_level_key_is_no_number(key: str) -> None:
    """Infinities and NaN included, and separators that are space elsewhere."""
    with pytest.raises(ValueError, match=r"number|float"):
        level_number(key)


def test_the_legend_keeps_the_numbers() -> None:
    """Answers repeat levels as they were sent; only the model does not see the numbers."""
    rendered = question("id", {"type": "score", "instructions": "q", "criteria": ["0: low", {"n": 1}]})
    assert rendered.legend == ("0: low", '{"n": 1}')
    assert rendered.options == ("low", '{"n": 1}')


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("as it is\n", "as it is\n"),
        ({"z": 1, "a": [1.0, None, True]}, '{"z": 1, "a": [1.0, null, true]}'),
        (None, "null"),
        (False, "false"),
        (-0.0, "-0.0"),
        (10**30, "1" + "0" * 30),
        ([1e16, 1e-5, 0.1], "[1e+16, 1e-05, 0.1]"),
        ({"k": '\x00\x7f"\\/é\u2028'}, '{"k": "\\u0000\x7f\\"\\\\/é\u2028"}'),
    ],
)
def test_a_state_is_rendered(state: object, text: str) -> None:
    """Python's default JSON, unescaped beyond ASCII."""
    assert state_text(state) == text


def test_long_arrays_are_annotated_at_any_depth() -> None:
    """Eight elements or more; objects keep their own fields, and their own `_index` in the first place."""
    inner = [[i] for i in range(8)]
    assert annotated([inner] * 7) == [[{"_index": i, "value": [i]} for i in range(8)]] * 7
    outer: Any = annotated([{"a": inner, "_index": "own"}] * 8)
    assert list(outer[3]) == ["_index", "a"]
    assert outer[3]["_index"] == "own"
    assert outer[3]["a"][7] == {"_index": 7, "value": [7]}
