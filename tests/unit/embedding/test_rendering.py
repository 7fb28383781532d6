"""Which texts a question becomes, and what its cosines become."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest

from frontend.families.embedding import rendering
from frontend.families.embedding.rendering import MIDDLE, STEEPNESS, Reading
from frontend.requests.answers import AnswerError, ChoiceAnswer, NoulAnswer, ScoreAnswer
from frontend.requests.questions import Choice, Noul, Question, Score

BIG = 10**30

CASES: dict[str, tuple[Question, str, tuple[str, ...]]] = {
    "options": (
        Choice("q", "Which?", (("a", "first"), ("b", None), ("c", " "), ("d", {"n": BIG, "a": "é"}), ("e", []))),
        "candidates",
        ("a: first", "b", "c", f'd: {{"n": {BIG}, "a": "é"}}', "e"),
    ),
    "one option": (Choice("q", "Which?", (("a", "first"),)), "single", ()),
    "levels": (Score("q", "How much?", ("low", {"level": 1}, "")), "candidates", ("low", '{"level": 1}', "")),
    "one level": (Score("q", None, ("low",)), "single", ()),
    "both sides, in either order": (
        Noul("q", "Is it?", (("true", "so it is"), ("false", ["not", "so"]))),
        "sides",
        ('["not", "so"]', "so it is"),
    ),
    "the true side alone": (Noul("q", "Is it?", (("true", "so it is"), ("false", None))), "statement", ("so it is",)),
    "the false side alone": (Noul("q", "Is it?", (("false", "not so"),)), "counterstatement", ("not so",)),
    "a bare one": (Noul("q", {"ask": "Is it?"}, None), "statement", ('{"ask": "Is it?"}',)),
    "a blank side": (Noul("q", "Is it?", (("true", " "), ("false", {}))), "statement", ("Is it?",)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_texts_of_a_question(case: str) -> None:
    """Instructions are read only where nothing else says what an answer means."""
    question, how, texts = CASES[case]
    assert rendering.read(question) == Reading(question, how, texts)  # type: ignore[arg-type]


def answered(case: str, *cosines: float, scale: float = 20.0) -> Any:
    return rendering.answer(rendering.read(CASES[case][0]), cosines, scale)


def test_candidates_are_one_softmax_over_their_scaled_cosines() -> None:
    """For options, levels and described sides alike."""
    total = exp(20 * 0.5) + exp(20 * 0.4) + exp(20 * -0.1)
    score = answered("levels", 0.5, 0.4, -0.1)
    assert isinstance(score, ScoreAnswer)
    assert score.probabilities == pytest.approx([exp(10.0) / total, exp(8.0) / total, exp(-2.0) / total], abs=1e-12)
    choice = answered("options", 0.1, 0.2, 0.9, 0.2, 0.1, scale=2.0)
    assert isinstance(choice, ChoiceAnswer)
    assert choice.choice == "c"
    assert choice.probabilities[2][1] == pytest.approx(exp(1.8) / (exp(1.8) + 2 * exp(0.4) + 2 * exp(0.2)), abs=1e-12)
    sides = answered("both sides, in either order", 0.3, 0.4)
    assert isinstance(sides, NoulAnswer)
    assert sides.noul == pytest.approx(1 / (1 + exp(-20 * 0.1)), abs=1e-12)


def test_a_single_option_or_level_is_certain() -> None:
    """Without a cosine."""
    assert answered("one option").confidence == answered("one level").confidence == 1.0


@pytest.mark.parametrize("scale", [0.5, 20.0, 1000.0])
def test_a_statement_never_looks_sure(scale: float) -> None:
    """Between 0.08 and 0.92 over all cosines, 0.5 in the middle, whatever the scale; "false" alone is the mirror."""
    for cosine in (-1.0, 0.0, MIDDLE, 1.0):
        expected = 1 / (1 + exp(-STEEPNESS * (cosine - MIDDLE)))
        for case, mirrored in (("a bare one", False), ("the true side alone", False), ("the false side alone", True)):
            assert rendering.read(CASES[case][0]).weak
            noul = answered(case, cosine, scale=scale).noul
            assert noul == pytest.approx(1 - expected if mirrored else expected, abs=1e-12)
            assert 0.08 < noul < 0.92
    assert not rendering.read(CASES["both sides, in either order"][0]).weak


@pytest.mark.parametrize("case", ["levels", "both sides, in either order", "a bare one"])
def test_a_cosine_that_is_none_is_no_answer(case: str) -> None:
    """The model's fault, and never a probability."""
    with pytest.raises(AnswerError):
        answered(case, *[float("nan")] * len(CASES[case][2]))


def test_a_text_is_named_as_the_client_knows_it() -> None:
    """In refusals."""
    places = {case: rendering.read(question).place(0) for case, (question, _, texts) in CASES.items() if texts}
    assert places["options"] == 'option "a" of question "q"'
    assert places["levels"] == 'level 0 of question "q"'
    assert places["both sides, in either order"] == 'side "false" of question "q"'
    assert places["a bare one"] == 'the statement of question "q"'
