"""Texts of a question, and what is no question of this family."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.families.laya.rendering import json_text
from frontend.families.refusal import Refused
from tests.unit.laya.helpers import rendered


def test_choice() -> None:
    """Null and "" describe nothing, 0 and false do; whatever is no string is JSON in the order it was sent."""
    criteria = {"a": None, "b": "", "c": 0, "d": False, "e": {"z": "ü", "a": [1, 2.5]}, "f": "text"}
    made = rendered({"type": "choice", "instructions": {"frage": "für wen?"}, "criteria": criteria})
    assert made.head == 'choice question: {"frage": "für wen?"}'
    assert made.options == ("a", "b", "c: 0", "d: false", 'e: {"z": "ü", "a": [1, 2.5]}', "f: text")
    assert made.names == tuple(criteria)


def test_choice_of_names() -> None:
    """A list is its names without descriptions; one that stands twice keeps its first place."""
    made = rendered({"type": "choice", "instructions": "i", "criteria": ["b", "a", "b"]})
    assert made.options == made.names == ("b", "a")


def test_score() -> None:
    """Levels are counted from 0 and come back as they were sent."""
    levels = ["low", {"n": 1}, 7, None]
    made = rendered({"type": "score", "instructions": "i", "criteria": levels})
    assert made.options == ("level 0: low", 'level 1: {"n": 1}', "level 2: 7", "level 3: null")
    assert made.names == ("0", "1", "2", "3")
    assert made.legend == tuple(levels)


@pytest.mark.parametrize(
    ("fields", "no", "yes"),
    [
        ({}, "false: no, the statement does not hold", "true: yes, the statement holds"),
        (
            {"criteria": None, "labels": None},
            "false: no, the statement does not hold",
            "true: yes, the statement holds",
        ),
        ({"criteria": {"True": "y", "FALSE": ""}}, "false: no, the statement does not hold", "true: y"),
        ({"criteria": {"false": 0, "true": {"a": 1}}}, "false: 0", 'true: {"a": 1}'),
        (
            {"labels": {"true": " A\x1c", "false": "B "}, "criteria": {"true": "y"}},
            "B: no, the statement does not hold",
            "A: y",
        ),
    ],
    ids=["bare", "null", "any case", "no strings", "labels"],
)
def test_noul(fields: dict[str, Any], no: str, yes: str) -> None:
    """The false side first; keys in any case; defaults for what is not described; labels without their margins."""
    made = rendered({"type": "noul", "instructions": "i", **fields})
    assert made.options == (no, yes)
    assert made.names == ("false", "true")


BAD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no object": ([], ("q",)),
    "no type": ({"instructions": "i"}, ("q", "type")),
    "another type": ({"type": "bool", "instructions": "i"}, ("q", "type")),
    "a list as type": ({"type": ["noul"], "instructions": "i"}, ("q", "type")),
    "no instructions": ({"type": "noul"}, ("q", "instructions")),
    "a choice of nothing": ({"type": "choice", "instructions": "i", "criteria": {}}, ("q", "criteria")),
    "a choice of a text": ({"type": "choice", "instructions": "i", "criteria": "a"}, ("q", "criteria")),
    "a choice of numbers": ({"type": "choice", "instructions": "i", "criteria": [1]}, ("q", "criteria")),
    "a choice without criteria": ({"type": "choice", "instructions": "i"}, ("q", "criteria")),
    "a score of an object": ({"type": "score", "instructions": "i", "criteria": {"0": "a"}}, ("q", "criteria")),
    "a score of nothing": ({"type": "score", "instructions": "i", "criteria": []}, ("q", "criteria")),
    "a noul of a list": ({"type": "noul", "instructions": "i", "criteria": []}, ("q", "criteria")),
    "a noul of other sides": ({"type": "noul", "instructions": "i", "criteria": {"yes": "a"}}, ("q", "criteria")),
    "labels of a choice": (
        {"type": "choice", "instructions": "i", "criteria": ["a"], "labels": None},
        ("q", "labels"),
    ),
    "one label": ({"type": "noul", "instructions": "i", "labels": {"true": "a"}}, ("q", "labels")),
    "a third label": (
        {"type": "noul", "instructions": "i", "labels": {"true": "a", "false": "b", "x": "c"}},
        ("q", "labels"),
    ),
    "equal labels": ({"type": "noul", "instructions": "i", "labels": {"true": "a ", "false": "a"}}, ("q", "labels")),
    "a blank label": ({"type": "noul", "instructions": "i", "labels": {"true": "\x1f", "false": "a"}}, ("q", "labels")),
    "a number as label": ({"type": "noul", "instructions": "i", "labels": {"true": 1, "false": "a"}}, ("q", "labels")),
    "labels of a text": ({"type": "noul", "instructions": "i", "labels": "ab"}, ("q", "labels")),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_question_is_refused_by_its_name(case: str) -> None:
    """The place leads there from the questions, and the message names the question."""
    fields, place = BAD[case]
    with pytest.raises(Refused, match=r'^question "q": ') as caught:
        rendered(fields)
    assert caught.value.place == place
    assert caught.value.reason == "invalid"


def test_json_text() -> None:
    """A string as it is; null, numbers and containers as JSON."""
    assert [json_text(value) for value in ("ä", None, 1.5, 10**20, {"b": 1, "a": "ü"})] == [
        "ä", "null", "1.5", "100000000000000000000", '{"b": 1, "a": "ü"}',
    ]  # fmt: skip
