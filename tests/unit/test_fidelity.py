"""The comparison of the families with their public references (tests/fidelity) notices what it is for."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.http.systemone import parse_request
from frontend.requests.questions import Choice, Noul, Score
from protocol import families
from tests.fidelity import comparing
from tests.fidelity.__main__ import DOCUMENT, SUBJECTS, put, table
from tests.fidelity.comparing import HEAD, Expected, Row
from tests.fidelity.requests import generated


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_requests_are_of_a_shape(subject: comparing.Subject) -> None:
    """Of the System One grammar, the same for the same seed, and nothing that the family cannot be asked."""
    shape, kinds, texts = subject.shape, set(), set()
    for seed in range(60):
        state, questions = generated(seed, shape)
        assert generated(seed, shape) == (state, questions)
        texts.add(str(state))
        for question in parse_request({"state": state, "questions": questions}).questions:
            kinds.add(type(question))
            if isinstance(question, Choice):
                assert shape.least_options <= len(question.options) <= shape.most_options
            elif isinstance(question, Score):
                assert shape.least_levels <= len(question.levels) <= shape.most_levels
            else:
                described = sum(question.side(side) is not None for side in ("true", "false"))
                allowed = {"any": {0, 1, 2}, "both or none": {0, 2}, "one or both": {1, 2}, "both": {2}}
                assert described in allowed[shape.sides]
    assert kinds == ({Choice} if shape.kinds == ("choice",) else {Choice, Score, Noul})
    assert len(texts) > 50


def choice(*probabilities: float) -> dict[str, Any]:
    return {"q": {"type": "choice", "probabilities": {str(index): p for index, p in enumerate(probabilities)}}}


def row(answers: dict[str, Any], tokens: int, expected: Expected) -> Row:
    made = Row(SUBJECTS[0])
    made.add(7, answers, tokens, expected)
    return made


def test_what_is_the_same_passes() -> None:
    """But for rounding; a tie may be decided either way."""
    assert row(choice(0.5, 0.5), 3, Expected({"q": [0.5, 0.5]}, 3)).passed
    assert row(choice(0.500004, 0.499996), 3, Expected({"q": [0.499998, 0.500002]}, 3)).passed
    assert row({"q": {"type": "noul", "noul": 0.25}}, 3, Expected({"q": [0.75, 0.25]}, 3)).passed


def test_what_differs_is_noticed() -> None:
    """A number, a winner, a count; and which seed it was."""
    other = row(choice(0.50002, 0.49998), 3, Expected({"q": [0.5, 0.5]}, 3))
    assert not other.passed and other.largest == pytest.approx(2e-5) and other.winners == []
    won = row(choice(0.4, 0.6), 3, Expected({"q": [0.6, 0.4]}, 3))
    assert not won.passed and won.winners == [7]
    counted = row(choice(0.5, 0.5), 4, Expected({"q": [0.5, 0.5]}, 3))
    assert not counted.passed and counted.tokens == [7]
    assert not row({"q": {"type": "noul", "noul": 0.25}}, 3, Expected({"q": [0.25, 0.75]}, 3)).passed
    with pytest.raises(AssertionError, match="seed 7: other questions"):
        row(choice(1.0), 3, Expected({"r": [1.0]}, 3))
    with pytest.raises(AssertionError, match="has 1 answers, not 2"):
        row(choice(1.0), 3, Expected({"q": [0.5, 0.5]}, 3))


def test_every_family_is_compared() -> None:
    assert {subject.family for subject in SUBJECTS} == families.BUILT_IN.keys()


def test_the_document_has_a_row_for_each() -> None:
    """Written by the command, of a run in which nothing differed."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for line in HEAD:
        assert f"\n{line}\n" in text
    for subject in SUBJECTS:
        start = Row(subject).line().partition(" | ")[0]
        (found,) = [line for line in text.splitlines() if line.startswith(f"{start} | {subject.against} | ")]
        largest, winners, tokens = found.strip("| ").split(" | ")[-3:]
        assert float(largest) <= comparing.WITHIN
        assert (winners, tokens) == ("0", "0")
    made = table([Row(subject) for subject in SUBJECTS], 1, "2026-12-01")
    assert made in put(text, made)
    assert put(put(text, made), made) == put(text, made)
