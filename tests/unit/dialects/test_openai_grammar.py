"""`frontend.http.openai`: what its bodies become, what is refused and where, how it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend import limits
from frontend.errors import InvalidRequest, Misuse, UsageError
from frontend.families.base import Decision
from frontend.http.openai import parse_request, render
from frontend.requests.answers import choice_answer, noul_answer, score_answer
from frontend.requests.questions import Choice, DecisionRequest, Noul, Score

PREDICATE = {"type": "predicate", "instructions": "Is it?"}
CHOICE = {"type": "choice", "instructions": "Which?", "choices": [{"value": "a", "description": "x"}, {"value": "b"}]}
SCORE = {"type": "score", "instructions": "How?", "levels": [{"label": "low"}, {"label": "high"}]}


def body(**changes: Any) -> dict[str, Any]:
    fields = {"model": "m", "input": "s", "questions": [PREDICATE], **changes}
    return {name: value for name, value in fields.items() if value is not ...}


def state_of(sent: Any) -> Any:
    return parse_request(body(input=sent)).state


def question_of(question: Any) -> Any:
    return parse_request(body(questions=[question])).questions[0]


def refused(document: Any) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(document)
    return [(fault.loc, fault.type) for fault in caught.value.faults]


def message(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def text(said: str) -> dict[str, Any]:
    return {"type": "input_text", "text": said}


def test_a_request_becomes_the_domain_model() -> None:
    """Predicates are nouls; names are ids; the questions keep their order."""
    named = [{**PREDICATE, "name": "p"}, {**CHOICE, "name": "c"}, {**SCORE, "name": "s"}]
    request = parse_request(body(questions=named))
    assert (request.model, request.state) == ("m", "s")
    assert request.questions == (
        Noul("p", "Is it?", None),
        Choice("c", "Which?", (("a", "x"), ("b", None))),
        Score("s", "How?", ("low", "high")),
    )


@pytest.mark.parametrize(
    ("sent", "state"),
    [
        ("", ""),
        ([], []),
        ([message(text("x"))], "x"),
        ([{"type": "message", "role": "user", "content": "x"}], "x"),
        ([message({"type": "input_json", "data": {"a": [1]}})], {"a": [1]}),
        ([message(text("x"), {"type": "input_json", "data": [{}]}, text("y"))], ["x", [{}], "y"]),
        ([message(text("x"), role="system")], [{"role": "system", "content": "x"}]),
        (
            [
                message(text("x"), role="developer"),
                message({"type": "output_text", "text": "y"}, {"type": "refusal", "refusal": "z"}, role="assistant"),
            ],
            [{"role": "developer", "content": "x"}, {"role": "assistant", "content": ["y", "z"]}],
        ),
        (
            [
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "id": "i", "status": None},
                {"type": "function_call_output", "call_id": "1", "output": [text("o")]},
                {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "in"},
                {"type": "custom_tool_call_output", "call_id": "2", "output": "out"},
            ],
            [
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "o"},
                {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "in"},
                {"type": "custom_tool_call_output", "call_id": "2", "output": "out"},
            ],
        ),
    ],
)
def test_the_input_becomes_the_plainest_state_that_says_it(sent: Any, state: Any) -> None:
    """One user message of one part is that part, so that the same text is the same state in every dialect."""
    assert state_of(sent) == state


@pytest.mark.parametrize(
    ("sent", "place", "kind"),
    [
        (..., (), "missing"),
        (None, (), "text_type"),
        ({"role": "user"}, (), "text_type"),
        (["x"], (0,), "dict_type"),
        ([{"role": "tool", "content": "x"}], (0, "role"), "literal_error"),
        ([{"content": "x"}], (0, "role"), "literal_error"),
        ([{"role": "user"}], (0, "content"), "missing"),
        ([{"role": "user", "content": 1}], (0, "content"), "text_type"),
        ([message("x")], (0, "content", 0), "dict_type"),
        ([message({"type": "input_text"})], (0, "content", 0, "text"), "missing"),
        ([message({"type": "input_text", "text": 1})], (0, "content", 0, "text"), "string_type"),
        ([message({"type": "input_audio"})], (0, "content", 0, "type"), "union_tag_invalid"),
        ([message({"type": "input_json", "data": "x"})], (0, "content", 0, "data"), "dict_type"),
        ([message({"type": "input_json"})], (0, "content", 0, "data"), "dict_type"),
        ([{"type": "reasoning"}], (0, "type"), "union_tag_invalid"),
        ([{"type": ["message"]}], (0, "type"), "union_tag_invalid"),
        ([{"type": "function_call_output", "output": "x"}], (0, "call_id"), "missing"),
    ],
)
def test_other_inputs_are_refused_with_their_place(sent: Any, place: Any, kind: str) -> None:
    """One fault, at the item, the part or the field of it."""
    assert refused(body(input=sent)) == [(("input", *place), kind)]


def test_images_are_refused_and_never_ignored() -> None:
    """In the input and in instructions; what is wrong besides is said first."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    for document in (
        body(input=[message(text("x"), image)]),
        body(questions=[{**PREDICATE, "instructions": [text("Is it?"), image]}]),
        body(questions=[{**PREDICATE, "instructions": [image]}]),
    ):
        with pytest.raises(UsageError, match="image"):
            parse_request(document)
    assert refused(body(input=[message(image)], questions=[])) == [(("questions",), "too_short")]


@pytest.mark.parametrize(
    ("instructions", "read"),
    [("x", "x"), ([text("x")], "x"), ([text("x"), {"type": "input_json", "data": {"a": 1}}], ["x", {"a": 1}])],
)
def test_instructions_may_be_parts(instructions: Any, read: Any) -> None:
    """One part is that part."""
    for question in (PREDICATE, CHOICE, SCORE):
        assert question_of({**question, "instructions": instructions}).instructions == read


def test_a_predicate_asks_something() -> None:
    """There are no criteria here, so the instructions are all there is."""
    for empty in (..., None, "", " ", []):
        question = {name: value for name, value in {**PREDICATE, "instructions": empty}.items() if value is not ...}
        assert refused(body(questions=[question])) == [(("questions", 0, "instructions"), "missing")]


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        (["a", "b"], ["a", "b"]),
        ([True, False], ["true", "false"]),
        ([True, "true"], ["true'", "true"]),
        (["true", True, "true'"], ["true", "true''", "true'"]),
    ],
)
def test_values_keep_their_type(sent: list[Any], names: list[str]) -> None:
    """A boolean and a string of the same text are two options, and each comes back as it was sent."""
    request = parse_request(body(questions=[{**CHOICE, "choices": [{"value": value} for value in sent]}]))
    (question,) = request.questions
    assert isinstance(question, Choice)
    assert [name for name, _ in question.options] == names
    for best in range(len(sent)):
        weights = [0.0 if index != best else 1.0 for index in range(len(sent))]
        (answer,) = render(request, "m", Decision((("0", choice_answer(question, weights)),), 1))["answers"]
        assert answer["choice"] is sent[best] or answer["choice"] == sent[best]
        assert type(answer["choice"]) is type(sent[best])
        assert [entry["value"] for entry in answer["probabilities"]] == sent


@pytest.mark.parametrize("twice", ["a", True])
def test_the_same_value_twice_is_refused(twice: Any) -> None:
    """Same type and same text: nobody could tell the two apart in the answer."""
    question = {**CHOICE, "choices": [{"value": twice}, {"value": twice}]}
    assert refused(body(questions=[question])) == [(("questions", 0, "choices", 1, "value"), "duplicate_key")]


@pytest.mark.parametrize(
    ("levels", "read"),
    [
        ([{"label": "low"}, {"label": "high"}], ("low", "high")),
        ([{"label": "low", "description": "d"}, {"label": "1", "description": "e"}], ("low: d", "e")),
        ([{"label": "1", "description": "d"}, {"label": "0", "description": "e"}], ("1: d", "0: e")),
    ],
)
def test_a_level_is_its_label_and_its_description(levels: Any, read: Any) -> None:
    """A label that is just the level's number says nothing, and one client sends these for levels without labels."""
    assert question_of({**SCORE, "levels": levels}).levels == read


@pytest.mark.parametrize(
    ("question", "place", "kind"),
    [
        ("Is it?", (), "dict_type"),
        ({}, (), "union_tag_not_found"),
        ({"id": "q", "question": "Is it?"}, (), "union_tag_not_found"),
        ({**PREDICATE, "type": "noul"}, (), "union_tag_invalid"),
        ({**PREDICATE, "type": ["choice"]}, (), "union_tag_invalid"),
        ({**PREDICATE, "name": 1}, ("name",), "string_type"),
        ({**PREDICATE, "name": ""}, ("name",), "too_short"),
        ({**PREDICATE, "instructions": 1}, ("instructions",), "text_type"),
        ({"type": "choice"}, ("choices",), "missing"),
        ({"type": "choice", "choices": {"a": "x"}}, ("choices",), "list_type"),
        ({"type": "choice", "choices": []}, ("choices",), "too_short"),
        ({"type": "choice", "choices": ["a"]}, ("choices", 0), "dict_type"),
        ({"type": "choice", "choices": [{"value": 1}]}, ("choices", 0, "value"), "string_type"),
        ({"type": "choice", "choices": [{}]}, ("choices", 0, "value"), "string_type"),
        ({"type": "choice", "choices": [{"value": "n" * 4097}]}, ("choices", 0, "value"), "too_long"),
        (
            {"type": "choice", "choices": [{"value": "a", "description": 1}]},
            ("choices", 0, "description"),
            "string_type",
        ),
        ({"type": "score"}, ("levels",), "missing"),
        ({"type": "score", "levels": ["low"]}, ("levels", 0), "dict_type"),
        ({"type": "score", "levels": [{"description": "x"}]}, ("levels", 0, "label"), "string_type"),
        ({"type": "score", "levels": [{"label": 1}]}, ("levels", 0, "label"), "string_type"),
    ],
)
def test_other_questions_are_refused_with_their_place(question: Any, place: Any, kind: str) -> None:
    """Also the shape of another server that speaks on this path, with the field that is read here."""
    assert refused(body(questions=[question])) == [(("questions", 0, *place), kind)]


def test_limits_at_and_past() -> None:
    """Options, levels and questions have the same limits in every dialect."""
    most = [{"value": f"o{index}"} for index in range(limits.MAX_OPTIONS)]
    assert len(question_of({**CHOICE, "choices": most}).options) == limits.MAX_OPTIONS
    past = [*most, {"value": "one more"}]
    assert refused(body(questions=[{**CHOICE, "choices": past}])) == [(("questions", 0, "choices"), "too_long")]
    levels = [{"label": f"l{index}"} for index in range(limits.MAX_LEVELS)]
    assert len(question_of({**SCORE, "levels": levels}).levels) == limits.MAX_LEVELS
    past = [*levels, {"label": "one more"}]
    assert refused(body(questions=[{**SCORE, "levels": past}])) == [(("questions", 0, "levels"), "too_long")]
    assert len(parse_request(body(questions=[PREDICATE] * limits.MAX_QUESTIONS)).questions) == limits.MAX_QUESTIONS
    assert refused(body(questions=[PREDICATE] * (limits.MAX_QUESTIONS + 1))) == [(("questions",), "too_long")]


def test_names_may_be_missing_but_not_twice_the_same() -> None:
    """An unnamed question is answered with null; its id of ours is never one that was sent."""
    request = parse_request(body(questions=[PREDICATE, {**PREDICATE, "name": "0"}, {**PREDICATE, "name": None}]))
    assert [question.id for question in request.questions] == ["0'", "0", "2"]
    answers = tuple((question.id, noul_answer(question, 0.5)) for question in request.questions)  # type: ignore[arg-type]
    assert [answer["name"] for answer in render(request, "m", Decision(answers, 1))["answers"]] == [None, "0", None]
    assert refused(body(questions=[{**PREDICATE, "name": "a"}, {**PREDICATE, "name": "a"}])) == [
        (("questions", 1, "name"), "duplicate_key")
    ]


def test_answers_are_in_request_order_in_the_shape_of_the_dialect() -> None:
    """Every field the official client knows, in its types; extras behind."""
    request = parse_request(body(questions=[{**SCORE, "name": "s"}, CHOICE, {**PREDICATE, "name": "p"}]))
    score, choice, noul = request.questions
    assert isinstance(choice, Choice) and isinstance(noul, Noul) and isinstance(score, Score)
    decision = Decision(
        (
            ("s", score_answer(score, [0.25, 0.75])),
            ("1", choice_answer(choice, [0.25, 0.75])),
            ("p", noul_answer(noul, 0.125)),
        ),
        7,
        1,
        {"x_truncated": {"kept": 1, "total": 2}},
    )
    rendered = render(request, "m-1", decision)
    assert rendered == {
        "model": "m-1",
        "answers": [
            {
                "type": "score",
                "name": "s",
                "score": 0.75,
                "probabilities": [
                    {"value": 0, "label": "low", "probability": 0.25},
                    {"value": 1, "label": "high", "probability": 0.75},
                ],
                "confidence": 0.5,
            },
            {
                "type": "choice",
                "name": None,
                "choice": "b",
                "probabilities": [{"value": "a", "probability": 0.25}, {"value": "b", "probability": 0.75}],
                "confidence": 0.5,
            },
            {"type": "predicate", "name": "p", "probability": 0.125},
        ],
        "usage": {
            "input_tokens": 7,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 8,
        },
        "x_truncated": {"kept": 1, "total": 2},
    }
    assert json.dumps(rendered, allow_nan=False)


def test_a_request_of_another_dialect_cannot_be_rendered() -> None:
    """A programming error, and so is an answer too few."""
    with pytest.raises(Misuse):
        render(DecisionRequest("m", "s", ()), "m", Decision((), 1))
    with pytest.raises(Misuse):
        render(parse_request(body()), "m", Decision((), 1))


def test_fields_of_the_original_that_mean_nothing_here_are_ignored() -> None:
    """Caching, identity, and whatever comes next."""
    extras = {"prompt_cache_key": "k", "prompt_cache_options": {"mode": "x"}, "safety_identifier": 1, "stream": True}
    marked = message({**text("x"), "prompt_cache_breakpoint": {"mode": "explicit"}})
    assert parse_request(body(input=[{**marked, "phase": "commentary"}], **extras)).state == "x"


@pytest.mark.parametrize("field", ["images", "files", "videos", "assets"])
def test_media_beside_the_input_are_refused(field: str) -> None:
    """Where clients of other dialects put them: not ignored here, either."""
    with pytest.raises(UsageError, match="image"):
        parse_request(body(**{field: ["AA=="]}))
    parse_request(body(**{field: []}))
