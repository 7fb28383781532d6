"""Labelled cases: what a line has to be, where a wrong one is told, and that the shipped sets are such."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from frontend.cli.evaluation import gold

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "criteria": {"billing": "money", "bug": "broken"}},
    "refund": {"type": "noul", "criteria": {"true": "yes", "false": "no"}},
    "harm": {"type": "score", "criteria": ["none", "some", "much"]},
}


def write(folder: Path, *lines: Any) -> Path:
    file = folder / "gold.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def test_a_line_is_a_request_and_its_right_answers(tmp_path: Path) -> None:
    """Each is kept as the place of its candidate; blank lines count as lines and are no cases."""
    expect = {"team": "bug", "refund": True, "harm": 2}
    file = write(tmp_path, "", {"state": "s", "questions": QUESTIONS, "expect": expect})
    (case,) = gold.read(file)
    assert (case.line, case.expected) == (2, {"team": 1, "refund": 0, "harm": 2})
    assert case.body == {"state": "s", "questions": QUESTIONS}
    assert [gold.candidates(QUESTIONS[name]) for name in expect] == [
        ("billing", "bug"), ("true", "false"), ("0", "1", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not JSON"),
        ([], "not a JSON object"),
        ({"state": "s", "expect": {"team": "bug"}}, "no questions"),
        ({"state": "s", "questions": QUESTIONS}, 'no "expect"'),
        ({"state": "s", "questions": QUESTIONS, "expect": {}}, 'no "expect"'),
        ({"state": "s", "questions": QUESTIONS, "expect": {"tea": "bug"}}, "no such question"),
        ({"state": "s", "questions": QUESTIONS, "expect": {"team": "sales"}}, "not one of billing, bug"),
        ({"state": "s", "questions": QUESTIONS, "expect": {"team": 1}}, "not one of"),
        ({"state": "s", "questions": QUESTIONS, "expect": {"refund": "true"}}, "not true or false"),
        ({"state": "s", "questions": QUESTIONS, "expect": {"harm": 3}}, "not a level 0 to 2"),
        ({"state": "s", "questions": QUESTIONS, "expect": {"harm": True}}, "not a level"),
        ({"state": "s", "questions": {"q": {"type": "guess"}}, "expect": {"q": 1}}, "no choice, noul or score"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, what: str) -> None:
    """With file, line and what is wrong with it."""
    file = write(tmp_path, {"state": "s", "questions": QUESTIONS, "expect": {"refund": False}}, line)
    with pytest.raises(gold.GoldError) as caught:
        gold.read(file)
    assert f"{file}: line 2: " in str(caught.value)
    assert what in str(caught.value)


def test_a_file_without_cases_is_refused(tmp_path: Path) -> None:
    """An average of nothing is no measure."""
    with pytest.raises(gold.GoldError, match="no case"):
        gold.read(write(tmp_path, ""))


@pytest.mark.parametrize("name", ["tickets", "everyday"])
def test_the_shipped_sets(name: str) -> None:
    """At least 60 cases of all three types; no case twice; and every candidate of a choice is right somewhere."""
    cases = gold.read(EXAMPLES / f"{name}.jsonl")
    assert len(cases) >= 60
    assert {case.body["questions"][one]["type"] for case in cases for one in case.expected} == {
        "choice", "noul", "score",
    }  # fmt: skip
    twice = Counter(json.dumps([case.body["state"], sorted(case.expected)]) for case in cases)
    assert max(twice.values()) == 1
    seen: dict[str, set[int]] = {}
    sizes: dict[str, int] = {}
    for case in cases:
        for one, place in case.expected.items():
            seen.setdefault(one, set()).add(place)
            sizes[one] = len(gold.candidates(case.body["questions"][one]))
    assert {one: len(places) for one, places in seen.items()} == sizes
