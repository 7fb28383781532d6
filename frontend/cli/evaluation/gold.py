"""Labelled decisions: a request body a line, and in `"expect"` what the right answers are.

    {"state": "I was charged twice", "questions": {"team": {"type": "choice", ...}}, "expect": {"team": "billing"}}

A choice expects an option's name, a noul true or false, a score a level's number, the first being 0. Questions that
nothing is expected of are asked and not judged. The standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAX_CASES: Final = 100_000
"""Lines of one file: what is measured on more than this fits into no table."""

SIDES: Final = ("true", "false")
"""The candidates of a noul. A probability of 0.5 is a yes, everywhere in framehost."""


class GoldError(ValueError):
    """A file is no set of labelled decisions; the text names file, line and what is wrong there."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request, and the right answers to some of its questions."""

    line: int
    body: Mapping[str, Any]
    """The request, without `expect`."""
    expected: Mapping[str, int]
    """By question id, which of its candidates is right: the place of an option, of a level, or in `SIDES`."""


def candidates(question: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of what a question may be answered with, in the order in which they are numbered here."""
    if question["type"] == "choice":
        return tuple(question["criteria"])
    if question["type"] == "noul":
        return SIDES
    return tuple(map(str, range(len(question["criteria"]))))


def read(path: Path) -> tuple[Case, ...]:
    """The cases of a file, in order; blank lines are none. Raises `GoldError`, and `OSError`."""
    cases: list[Case] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            if len(cases) == MAX_CASES:
                raise GoldError(f"{path}: line {number}: more than {MAX_CASES} cases")
            try:
                cases.append(_case(number, line))
            except (ValueError, RecursionError) as error:
                raise GoldError(f"{path}: line {number}: {error}") from None
    if not cases:
        raise GoldError(f"{path}: there is no case in it")
    return tuple(cases)


def _case(number: int, line: bytes) -> Case:
    try:
        content = json.loads(line.decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    expect, questions = content.pop("expect", None), content.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise ValueError("it has no questions")
    if not isinstance(expect, dict) or not expect:
        raise ValueError('it has no "expect": an object with the right answer by question id')
    expected = {}
    for name, answer in expect.items():
        if name not in questions:
            raise ValueError(f"an answer to {name!r} is expected, and there is no such question")
        expected[name] = _place(name, questions[name], answer)
    return Case(number, content, expected)


def _place(name: str, question: Any, answer: object) -> int:
    kind = question.get("type") if isinstance(question, dict) else None
    criteria = question.get("criteria") if isinstance(question, dict) else None
    if kind == "choice" and isinstance(criteria, dict) and criteria:
        if not isinstance(answer, str) or answer not in criteria:
            raise ValueError(f"the answer expected to {name!r} is {answer!r}, not one of {', '.join(criteria)}")
        return list(criteria).index(answer)
    if kind == "noul":
        if not isinstance(answer, bool):
            raise ValueError(f"the answer expected to {name!r} is {answer!r}, not true or false")
        return 0 if answer else 1
    if kind == "score" and isinstance(criteria, list) and criteria:
        if type(answer) is not int or not 0 <= answer < len(criteria):
            raise ValueError(f"the answer expected to {name!r} is {answer!r}, not a level 0 to {len(criteria) - 1}")
        return answer
    raise ValueError(f"the question {name!r} is no choice, noul or score with its criteria")
