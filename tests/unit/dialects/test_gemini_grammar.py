"""`frontend.http.gemini`: what its bodies become, what is refused and where, how it answers."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.errors import InvalidRequest, UsageError
from frontend.families.base import Decision
from frontend.http.gemini import parse_request, render
from frontend.requests.answers import choice_answer, noul_answer, score_answer
from frontend.requests.questions import Choice, Noul, Score

NOUL = {"type": "noul", "instructions": "Is it?"}


def body(**changes: Any) -> dict[str, Any]:
    fields = {"model": "m", "input": "s", "questions": {"q": NOUL}, **changes}
    return {name: value for name, value in fields.items() if value is not ...}


def refused(document: Any) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(document)
    return [(fault.loc, fault.type) for fault in caught.value.faults]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(("model", "name"), [("m", "m"), ("models/m", "m"), (..., None)])
def test_a_model_may_have_its_prefix(model: Any, name: str | None) -> None:
    """`models/NAME` is how the original writes a model."""
    assert parse_request(body(model=model)).model == name


@pytest.mark.parametrize(
    ("sent", "state"),
    [("", ""), (text("x"), "x"), ([text("x")], "x"), ([text("x"), text("y")], ["x", "y"]), ([], [])],
)
def test_the_input_becomes_the_state(sent: Any, state: Any) -> None:
    """One content is its text."""
    assert parse_request(body(input=sent)).state == state


@pytest.mark.parametrize(
    ("sent", "place", "kind"),
    [
        (..., (), "missing"),
        (None, (), "text_type"),
        (1, (), "text_type"),
        (["x"], (0,), "dict_type"),
        ({"type": "text"}, ("text",), "string_type"),
        ([{"type": "text", "text": None}], (0, "text"), "string_type"),
        ([{"text": "x"}], (0, "type"), "union_tag_invalid"),
        ([{"type": ["text"]}], (0, "type"), "union_tag_invalid"),
    ],
)
def test_other_inputs_are_refused_with_their_place(sent: Any, place: Any, kind: str) -> None:
    """One fault, at the content or the field of it."""
    assert refused(body(input=sent)) == [(("input", *place), kind)]


@pytest.mark.parametrize("kind", ["image", "audio", "video", "document"])
def test_other_media_are_refused_and_never_ignored(kind: str) -> None:
    """400 and not a fault of the body: another server of this dialect would take it. Instructions are text alone."""
    with pytest.raises(UsageError):
        parse_request(body(input=[text("x"), {"type": kind, "data": "AA=="}]))
    question = {**NOUL, "instructions": [{"type": kind}]}
    assert refused(body(questions={"q": question})) == [
        (("questions", "q", "instructions", 0, "type"), "union_tag_invalid")
    ]


def test_questions_are_system_ones_with_other_names_for_the_sides() -> None:
    """Instructions may be contents; a side that is not described is not there."""
    request = parse_request(
        body(
            questions={
                "n": {**NOUL, "criteria": {"false_description": "f", "true_description": "t", "true": "ignored"}},
                "c": {"type": "choice", "instructions": [text("Which?")], "criteria": {"a": "x", "b": ""}},
                "s": {"type": "score", "instructions": text("How?"), "criteria": ["low", "high"]},
            }
        )
    )
    assert request.questions == (
        Noul("n", "Is it?", (("false", "f"), ("true", "t"))),
        Choice("c", "Which?", (("a", "x"), ("b", ""))),
        Score("s", "How?", ("low", "high")),
    )
    assert refused(body(questions={"q": {"type": "noul", "criteria": {"true": "t"}}})) == [
        (("questions", "q", "instructions"), "missing")
    ]
    assert refused(body(questions={"q": {**NOUL, "criteria": {"true_description": 1}}})) == [
        (("questions", "q", "criteria", "true_description"), "text_type")
    ]
    assert refused(body(questions={"q": {"type": "predicate"}})) == [(("questions", "q"), "union_tag_invalid")]


def test_confidence_is_the_probability_of_what_won() -> None:
    """In this dialect alone, and for nouls too; everything else is as it is everywhere."""
    choice, score = Choice("c", "?", (("a", None), ("b", None))), Score("s", "?", ("low", "high"))
    decision = Decision(
        (
            ("n", noul_answer(Noul("n", "?", None), 0.25)),
            ("c", choice_answer(choice, [0.25, 0.75])),
            ("s", score_answer(score, [0.75, 0.25])),
        ),
        7,
        1,
        {"x_truncated": {"kept": 1, "total": 2}},
    )
    assert render(parse_request(body()), "m-1", decision) == {
        "model": "m-1",
        "answers": {
            "n": {"type": "noul", "noul": 0.25, "confidence": 0.75},
            "c": {"type": "choice", "choice": "b", "probabilities": {"a": 0.25, "b": 0.75}, "confidence": 0.75},
            "s": {
                "type": "score",
                "score": 0.25,
                "legend": {"0": "low", "1": "high"},
                "probabilities": {"0": 0.75, "1": 0.25},
                "confidence": 0.75,
            },
        },
        "usage": {"total_input_tokens": 7, "total_output_tokens": 1, "total_tokens": 8},
        "x_truncated": {"kept": 1, "total": 2},
    }


@pytest.mark.parametrize("field", ["images", "files", "videos", "assets"])
def test_media_beside_the_input_are_refused(field: str) -> None:
    """Where clients of other dialects put them: not ignored here, either."""
    with pytest.raises(UsageError, match="image"):
        parse_request(body(**{field: ["AA=="]}))
    parse_request(body(**{field: []}))
