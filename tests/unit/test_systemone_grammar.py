"""`frontend.http.systemone`: what the dialect accepts, what it refuses and how, row by row of its checklist."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend import limits
from frontend.errors import (
    BadEncoding,
    Fault,
    HostDied,
    InternalError,
    InvalidRequest,
    Misuse,
    QueueFull,
    RequestError,
    RequestTooLarge,
    TimedOut,
    TokensExceeded,
    Unavailable,
    UnsupportedEncoding,
    UploadTimeout,
    UsageError,
)
from frontend.families.base import Decision
from frontend.http.systemone import parse_request, render, render_error
from frontend.requests.answers import Answer, NoulAnswer, choice_answer, noul_answer, score_answer
from frontend.requests.questions import Choice, DecisionRequest, Noul, Score
from frontend.requests.strict_json import MAX_FAULTS

NOUL = {"type": "noul", "instructions": "Is it?"}
CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"a": "x", "b": None}}
SCORE = {"type": "score", "instructions": "How?", "criteria": ["low", "high"]}


def body(**changes: Any) -> dict[str, Any]:
    fields = {"model": "m", "state": "s", "questions": {"q": NOUL}, **changes}
    return {name: value for name, value in fields.items() if value is not ...}


def one(question: Any, name: str = "q") -> dict[str, Any]:
    return body(questions={name: question})


def question_of(question: Any) -> Any:
    (parsed,) = parse_request(one(question)).questions
    return parsed


def answered(answers: list[tuple[str, Answer]], input_tokens: int = 0, extras: Any = None) -> dict[str, Any]:
    return render(DecisionRequest(None, "", ()), "m", Decision(tuple(answers), input_tokens, extras=extras or {}))


def refused(document: Any) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(document)
    return [(fault.loc, fault.type) for fault in caught.value.faults]


# The envelope: rows 7, 13-19, 33, 34, 49.


def test_a_request_becomes_the_domain_model() -> None:
    """Everything verbatim and in request order."""
    request = parse_request(body(questions={"n": NOUL, "c": CHOICE, "s": SCORE}))
    assert request == DecisionRequest(
        "m",
        "s",
        (
            Noul("n", "Is it?", None),
            Choice("c", "Which?", (("a", "x"), ("b", None))),
            Score("s", "How?", ("low", "high")),
        ),
    )


@pytest.mark.parametrize("document", [None, 1, 1.5, True, "x", [], [body()]])
def test_a_body_that_is_no_object_is_refused(document: Any) -> None:
    """Row 7: any other JSON value has no fields to complain about, so there is one fault at the body itself."""
    assert refused(document) == [((), "json_invalid")]


def test_a_missing_model_is_left_to_the_caller() -> None:
    """Row 13: a server with one model answers such a request, so it is not a fault here."""
    assert parse_request(body(model=...)).model is None
    assert parse_request(body(model="")).model == ""


@pytest.mark.parametrize("model", [None, 1, True, ["m"], {"name": "m"}])
def test_a_model_that_is_no_string_is_refused(model: Any) -> None:
    """Row 14."""
    assert refused(body(model=model)) == [(("model",), "string_type")]


@pytest.mark.parametrize("state", ["", "x", {}, {"a": [1, None]}, [], [{"type": "text", "text": "x"}], [[1.5]]])
def test_states_that_are_text_are_accepted(state: Any) -> None:
    """Row 17: string, object and array, empty ones too, unchanged."""
    assert parse_request(body(state=state)).state is state


@pytest.mark.parametrize(
    ("state", "kind"),
    [(..., "missing"), (None, "text_type"), (0, "text_type"), (1.5, "text_type"), (False, "text_type")],
)
def test_other_states_are_refused(state: Any, kind: str) -> None:
    """Row 18: missing, null, numbers and booleans."""
    assert refused(body(state=state)) == [(("state",), kind)]


@pytest.mark.parametrize(
    ("questions", "kind"),
    [
        (..., "missing"),
        (None, "dict_type"),
        ([NOUL], "dict_type"),
        ("q", "dict_type"),
        (1, "dict_type"),
        ({}, "too_short"),
    ],
)
def test_questions_that_are_no_map_of_questions_are_refused(questions: Any, kind: str) -> None:
    """Row 19: missing, not an object, empty."""
    assert refused(body(questions=questions)) == [(("questions",), kind)]


def test_unknown_fields_are_ignored() -> None:
    """Rows 33 and 34: what other clients and gateways add changes nothing, in a question neither."""
    extras = {"temperature": 2, "seed": None, "stream": True, "x_trace_id": {}, "provider": [], "instructions": 1}
    labelled = {**NOUL, "labels": ["n", "y"], "options": 3, "criteria": {"maybe": 1, "true": "t"}}
    request = parse_request(body(questions={"q": labelled}, **extras))
    assert request.questions == (Noul("q", "Is it?", (("true", "t"),)),)


@pytest.mark.parametrize(
    "changes",
    [
        {"assets": {"img": {"type": "image", "format": "png", "data_base64": "AA=="}}},
        {"assets": ["x"]},
        {"state": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"state": [{"type": "text", "text": "x"}, {"type": "input_image", "image_url": "data:"}]},
        {"state": [{"role": "user", "content": [{"type": "image", "image": "AA=="}]}]},
        {"images": ["AA=="]},
        {"images": "AA=="},
        {"files": ["data:application/pdf;base64,AA=="]},
        {"videos": [{"url": "https://x.example/v.mp4"}]},
        {"audio": {"data": "AA=="}},
        {"state": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
        {"state": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "x"}}]}]},
        {"state": [{"inline_data": {"mime_type": "image/png", "data": "AA=="}}]},
        {"state": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}]},
        {"state": [{"role": "user", "parts": [{"text": "x"}, {"fileData": {"fileUri": "gs://x"}}]}]},
        {"state": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA=="}}]}]},
        {"state": [{"type": "file", "file": {"file_data": "AA=="}}]},
        {"state": [{"type": "video_url", "video_url": {"url": "x"}}]},
    ],
)
def test_images_are_refused_and_never_ignored(changes: dict[str, Any]) -> None:
    """Row 49: answering without looking at the image is the worst outcome."""
    with pytest.raises(UsageError) as caught:
        parse_request(body(**changes))
    assert caught.value.status == 400
    assert "image" in caught.value.message


@pytest.mark.parametrize(
    "changes",
    [
        {"assets": None},
        {"assets": {}},
        {"state": [{"type": "image", "name": "logo", "x": 4}]},
        {"state": [{"type": ["image"], "image": 1}, "image"]},
        {"state": {"type": "image_url", "image_url": "x"}},
        {"images": []},
        {"files": None},
        {"images": 3},
        {"videos": False},
        {"state": [{"type": "file", "file": "a.txt"}, {"type": "image", "source": "camera 2"}]},
        {"state": [{"inline_data": "none"}, {"type": "document", "title": "x"}]},
        {"state": {"images": ["a", "b"], "files": 2}},
    ],
)
def test_a_state_may_speak_of_images(changes: dict[str, Any]) -> None:
    """A screen described in JSON is text, also when its elements are called images; empty assets are none."""
    parse_request(body(**changes))


def test_a_body_that_is_wrong_and_has_an_image_is_a_validation_error() -> None:
    """What fails validation is 422 first: the fault would remain after the image is gone."""
    assert refused(body(state=1, assets={"a": {}})) == [(("state",), "text_type")]


# Questions: rows 20, 22, 32.


@pytest.mark.parametrize(
    "name", ["q", "ticket-1", "q.2", "with space", " ", "한글", "😀", "__proto__", "toString", "0", "a\nb", "q" * 1024]
)
def test_question_ids_are_kept_verbatim(name: str) -> None:
    """Row 20: any string with at least one character, up to the limit."""
    (question,) = parse_request(one(NOUL, name)).questions
    assert question.id == name


def test_an_empty_or_endless_question_id_is_refused() -> None:
    """None, and one character past MAX_QUESTION_ID_CHARS."""
    assert limits.MAX_QUESTION_ID_CHARS == 1024
    assert refused(one(NOUL, "")) == [(("questions", ""), "too_short")]
    assert refused(one(NOUL, "q" * 1025)) == [(("questions", "q" * 1025), "too_long")]


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ({}, "union_tag_not_found"),
        ({"instructions": "x"}, "union_tag_not_found"),
        ({**NOUL, "type": "boolean"}, "union_tag_invalid"),
        ({**NOUL, "type": "Noul"}, "union_tag_invalid"),
        ({**NOUL, "type": ""}, "union_tag_invalid"),
        ({**NOUL, "type": None}, "union_tag_invalid"),
        ({**NOUL, "type": ["noul"]}, "union_tag_invalid"),
        ({**NOUL, "type": 1}, "union_tag_invalid"),
        ({**NOUL, "type": "box"}, "union_tag_invalid"),
        (None, "dict_type"),
        ("Is it?", "dict_type"),
        ([NOUL], "dict_type"),
    ],
)
def test_a_question_without_a_known_type_is_refused(question: Any, kind: str) -> None:
    """Row 22: missing and unknown are two words, and a question that is no object is a third."""
    assert refused(one(question)) == [(("questions", "q"), kind)]


def test_a_box_question_is_refused_with_its_reason() -> None:
    """The type exists elsewhere; the message says why it does not here."""
    with pytest.raises(InvalidRequest, match="image"):
        parse_request(one({"type": "box", "instructions": "Where?"}))


@pytest.mark.parametrize("text", ["x", {"ask": 1}, ["a", {"b": None}]])
@pytest.mark.parametrize("question", [NOUL, CHOICE, SCORE])
def test_structured_instructions_are_text(question: dict[str, Any], text: Any) -> None:
    """Row 31: strings, objects and arrays, unchanged."""
    assert question_of({**question, "instructions": text}).instructions is text


@pytest.mark.parametrize("text", [0, 1.5, True, False])
@pytest.mark.parametrize("question", [{**NOUL, "criteria": {"true": "x"}}, CHOICE, SCORE])
def test_numbers_and_booleans_are_no_instructions(question: dict[str, Any], text: Any) -> None:
    """Row 32."""
    assert refused(one({**question, "instructions": text})) == [(("questions", "q", "instructions"), "text_type")]


@pytest.mark.parametrize(
    "question", [{"type": "choice", "criteria": {"a": None}}, {"type": "score", "criteria": ["x"]}]
)
def test_a_choice_and_a_score_need_no_instructions(question: dict[str, Any]) -> None:
    """Null and absent are the same: the candidates say what is asked."""
    assert question_of(question).instructions is None
    assert question_of({**question, "instructions": None}).instructions is None


# Noul: rows 23-25.


@pytest.mark.parametrize(
    ("criteria", "kept"),
    [
        (..., None),
        (None, None),
        ({}, ()),
        ({"true": "t", "false": "f"}, (("true", "t"), ("false", "f"))),
        ({"false": "f", "true": "t"}, (("false", "f"), ("true", "t"))),
        ({"true": "t"}, (("true", "t"),)),
        ({"false": {"a": [1]}}, (("false", {"a": [1]}),)),
        ({"true": "t", "false": None}, (("true", "t"), ("false", None))),
        ({"true": "t", "false": ""}, (("true", "t"), ("false", ""))),
    ],
)
def test_noul_criteria_are_optional_on_every_side(criteria: Any, kept: Any) -> None:
    """Row 23: absent, null, two-sided, one-sided; sides in the order they were sent."""
    question = {**NOUL, "criteria": criteria} if criteria is not ... else NOUL
    parsed = question_of(question)
    assert parsed == Noul("q", "Is it?", kept)
    assert parsed.side("true") == dict(kept or ()).get("true")


@pytest.mark.parametrize("instructions", [..., None, ""])
@pytest.mark.parametrize("criteria", [{"true": "t"}, {"false": "f"}, {"true": "", "false": ["x"]}])
def test_a_described_noul_needs_no_instructions(instructions: Any, criteria: Any) -> None:
    """Row 24: one described side is something to ask."""
    question = {"type": "noul", "criteria": criteria}
    if instructions is not ...:
        question["instructions"] = instructions
    assert question_of(question).criteria == tuple(criteria.items())


@pytest.mark.parametrize("instructions", [..., None, "", " \n", {}, []])
@pytest.mark.parametrize("criteria", [..., None, {}, {"true": None, "false": None}, {"true": ""}, {"yes": "x"}])
def test_a_noul_with_nothing_to_ask_is_refused(instructions: Any, criteria: Any) -> None:
    """Row 25: neither instructions nor a described side, where blank text is none."""
    fields = {"type": "noul", "instructions": instructions, "criteria": criteria}
    question = {name: value for name, value in fields.items() if value is not ...}
    assert refused(one(question)) == [(("questions", "q", "instructions"), "missing")]


@pytest.mark.parametrize("criteria", [[], ["yes", "no"], "x", 1, True])
def test_noul_criteria_of_another_kind_are_refused(criteria: Any) -> None:
    """An object or null, nothing else."""
    assert refused(one({**NOUL, "criteria": criteria})) == [(("questions", "q", "criteria"), "dict_type")]


@pytest.mark.parametrize("side", [0, 1.5, True])
def test_a_noul_side_is_text_or_null(side: Any) -> None:
    """Rows 23 and 32."""
    assert refused(one({**NOUL, "criteria": {"false": side}})) == [
        (("questions", "q", "criteria", "false"), "text_type")
    ]


# Choice: rows 26-28.


@pytest.mark.parametrize("count", [1, 2, 26, 64, 128, 255])
def test_a_choice_has_up_to_255_options(count: int) -> None:
    """Row 26, at the limit and at the counts the field's suite asks for; one option is answerable."""
    assert limits.MAX_OPTIONS == 255
    criteria = {f"o{index}": None for index in range(count)}
    assert question_of({**CHOICE, "criteria": criteria}).options == tuple(criteria.items())


@pytest.mark.parametrize(("count", "kind"), [(0, "too_short"), (256, "too_long")])
def test_no_options_and_one_too_many_are_refused(count: int, kind: str) -> None:
    """Row 26, one past the limits."""
    criteria = {f"o{index}": None for index in range(count)}
    assert refused(one({**CHOICE, "criteria": criteria})) == [(("questions", "q", "criteria"), kind)]


def test_option_names_and_descriptions_are_kept() -> None:
    """Rows 27 and 31: null and structured descriptions, names of any kind, in the order that was sent."""
    criteria = {"10": None, "2": {"k": [1]}, "한글 😀": ["x"], "": "", "__proto__": "p", "n" * 4096: None}
    assert question_of({**CHOICE, "criteria": criteria}).options == tuple(criteria.items())


def test_an_option_name_has_a_limit() -> None:
    """One character past MAX_OPTION_NAME_CHARS."""
    ((loc, kind),) = refused(one({**CHOICE, "criteria": {"n" * 4097: None}}))
    assert (loc[:3], kind) == (("questions", "q", "criteria"), "too_long")


@pytest.mark.parametrize(
    ("criteria", "kind"), [(..., "missing"), (None, "dict_type"), (["a", "b"], "dict_type"), ("a", "dict_type")]
)
def test_choice_criteria_are_an_object(criteria: Any, kind: str) -> None:
    """Row 28: a list of names is refused, not numbered."""
    question = {**CHOICE, "criteria": criteria}
    if criteria is ...:
        del question["criteria"]
    assert refused(one(question)) == [(("questions", "q", "criteria"), kind)]


def test_a_choice_with_an_options_list_is_told_what_to_send() -> None:
    """Row 28: one client sends `options`; the refusal names the field that is read."""
    with pytest.raises(InvalidRequest, match=r"criteria .*`options` is not read") as caught:
        parse_request(one({"type": "choice", "instructions": "?", "options": ["a", "b"]}))
    assert caught.value.faults[0].type == "missing"


@pytest.mark.parametrize("description", [0, 1.5, True])
def test_an_option_description_is_text_or_null(description: Any) -> None:
    """Rows 27 and 32; the place names the option."""
    document = one({**CHOICE, "criteria": {"a": "x", "b": description}})
    assert refused(document) == [(("questions", "q", "criteria", "b"), "text_type")]


# Score: rows 28-30.


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_a_score_has_up_to_10_levels(count: int) -> None:
    """Row 29, at the limit; one level is answerable."""
    assert limits.MAX_LEVELS == 10
    levels = [f"l{index}" for index in range(count)]
    assert question_of({**SCORE, "criteria": levels}).levels == tuple(levels)


@pytest.mark.parametrize(("count", "kind"), [(0, "too_short"), (11, "too_long")])
def test_no_levels_and_one_too_many_are_refused(count: int, kind: str) -> None:
    """Row 29, one past the limits."""
    assert refused(one({**SCORE, "criteria": ["x"] * count})) == [(("questions", "q", "criteria"), kind)]


@pytest.mark.parametrize(
    ("criteria", "kind"),
    [(..., "missing"), (None, "list_type"), ({"0": "low", "1": "high"}, "list_type"), ("x", "list_type")],
)
def test_score_criteria_are_an_array(criteria: Any, kind: str) -> None:
    """Row 28: the old map form is refused, because its order means nothing."""
    question = {**SCORE, "criteria": criteria}
    if criteria is ...:
        del question["criteria"]
    assert refused(one(question)) == [(("questions", "q", "criteria"), kind)]


@pytest.mark.parametrize("level", [None, 0, 1.5, True])
def test_a_level_is_text_and_not_null(level: Any) -> None:
    """Rows 30 and 32: a null level would come back as a null legend, which the official client refuses."""
    assert refused(one({**SCORE, "criteria": ["low", level]})) == [(("questions", "q", "criteria", 1), "text_type")]


@pytest.mark.parametrize("level", ["", "x", {"level": "mid"}, ["a"], {}])
def test_structured_levels_are_text(level: Any) -> None:
    """Row 31."""
    assert question_of({**SCORE, "criteria": ["low", level]}).levels[1] is level


# Many questions, many faults.


def test_the_number_of_questions_has_a_limit() -> None:
    """400 and MAX_QUESTIONS questions are parsed; one more is refused as a whole."""
    assert limits.MAX_QUESTIONS == 1000
    for count in (400, 1000):
        assert len(parse_request(body(questions={str(index): NOUL for index in range(count)})).questions) == count
    assert refused(body(questions={str(index): NOUL for index in range(1001)})) == [(("questions",), "too_long")]


def test_every_fault_of_a_body_is_reported_at_once() -> None:
    """A client can fix a body in one go: all parts are walked, in order, each fault with its place."""
    document = {
        "model": 1,
        "questions": {
            "": CHOICE,
            "a": {**CHOICE, "instructions": 1, "criteria": {"x": 1, "y": 2}},
            "b": {"type": "?"},
            "c": {"type": "score", "criteria": [None]},
        },
    }
    assert refused(document) == [
        (("model",), "string_type"),
        (("state",), "missing"),
        (("questions", ""), "too_short"),
        (("questions", "a", "criteria", "x"), "text_type"),
        (("questions", "a", "criteria", "y"), "text_type"),
        (("questions", "a", "instructions"), "text_type"),
        (("questions", "b"), "union_tag_invalid"),
        (("questions", "c", "criteria", 0), "text_type"),
    ]


def test_the_report_is_bounded() -> None:
    """A thousand wrong questions give MAX_FAULTS faults."""
    assert len(refused(body(questions={str(index): {} for index in range(1000)}))) == MAX_FAULTS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
QUESTION = st.fixed_dictionaries(
    {"type": st.sampled_from(["noul", "choice", "score", "box"]) | JSON},
    optional={"instructions": JSON, "criteria": JSON},
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "model": JSON,
        "state": JSON,
        "assets": JSON,
        "questions": JSON | st.dictionaries(st.text(max_size=3), QUESTION),
    },
)


@given(JSON | BODY)
@settings(max_examples=600, derandomize=True, deadline=None)
def test_any_document_is_a_request_or_a_4xx(document: Any) -> None:
    """Nothing a client can write is a crash, and every refusal can be sent."""
    try:
        request = parse_request(document)
    except (InvalidRequest, UsageError) as error:
        status, rendered, _ = render_error(error)
        assert 400 <= status < 500
        json.dumps(rendered, allow_nan=False).encode()
    else:
        assert request.questions


# Answers and errors.


def test_answers_are_rendered_in_the_order_given() -> None:
    """Rows 35, 37, 42: three keys, one answer per id in request order, integer usage, extras behind."""
    choice, noul, score = parse_request(body(questions={"z": CHOICE, "10": NOUL, "2": SCORE})).questions
    assert isinstance(choice, Choice) and isinstance(noul, Noul) and isinstance(score, Score)
    answers = [
        ("z", choice_answer(choice, [0.5, 0.5])),
        ("10", noul_answer(noul, 0.25)),
        ("2", score_answer(score, [0.5, 0.5])),
    ]
    rendered = answered(answers, input_tokens=3, extras={"x_truncated": {"kept": 1, "total": 2}})
    assert list(rendered) == ["model", "answers", "usage", "x_truncated"]
    assert list(rendered["answers"]) == ["z", "10", "2"]
    assert rendered["answers"]["10"] == {"type": "noul", "noul": 0.25}
    assert rendered["usage"] == {"input_tokens": 3, "output_tokens": 0}
    assert list(answered(answers)) == ["model", "answers", "usage"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, {"deep": (float("-inf"),)}]])
def test_an_extra_that_is_not_finite_fails_the_request(value: object) -> None:
    """The encoder would turn it into null: a number that is none must be an error of the model's, not a gap."""
    with pytest.raises(InternalError, match="x_label_mass"):
        answered([], extras={"x_label_mass": value})


@pytest.mark.parametrize("tokens", [-1, 1.0, True, None])
def test_a_token_count_is_an_integer(tokens: Any) -> None:
    """Row 37: the official client refuses floats, so a family that counts wrongly fails here."""
    with pytest.raises(Misuse):
        answered([("q", NoulAnswer(0.5))], input_tokens=tokens)


def test_a_response_cannot_be_built_wrongly() -> None:
    """Row 42 and row 35: foreign field names and two answers for one id are programming errors."""
    with pytest.raises(Misuse):
        answered([("q", NoulAnswer(0.5))], extras={"truncated": 1})
    with pytest.raises(Misuse):
        answered([("q", NoulAnswer(0.5)), ("q", NoulAnswer(0.5))])


def test_a_validation_error_lists_places_from_the_body_on() -> None:
    """The V shape: a non-empty list whose places start with "body"."""
    error = InvalidRequest(
        [Fault(("questions", "q", "criteria", 1), "no", "text_type"), Fault((), "bad", "json_invalid")]
    )
    assert render_error(error) == (
        422,
        {
            "detail": [
                {"loc": ["body", "questions", "q", "criteria", 1], "msg": "no", "type": "text_type"},
                {"loc": ["body"], "msg": "bad", "type": "json_invalid"},
            ]
        },
        {},
    )


def test_a_place_is_printable_and_short() -> None:
    """Ids and names in it are a client's own text: what moves a cursor is escaped, and what is long is cut."""
    _, document, _ = render_error(InvalidRequest([Fault(("questions", "a\x1b[2J\u202e\n" + "b" * 5000), "no", "type")]))
    (fault,) = document["detail"]
    assert fault["loc"][:2] == ["body", "questions"]
    assert fault["loc"][2].startswith("a\\x1b[2J")
    assert fault["loc"][2].isprintable()
    assert len(fault["loc"][2]) < 1100


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (UsageError("x"), 400, "api_usage_error"),
        (TokensExceeded("x"), 400, "max_tokens_exceeded"),
        (BadEncoding("x"), 400, "api_usage_error"),
        (UploadTimeout("x"), 408, "request_timeout"),
        (RequestTooLarge("x"), 413, "request_too_large"),
        (UnsupportedEncoding("x"), 415, "api_usage_error"),
        (InternalError("x"), 500, "internal_error"),
        (TimedOut("x"), 504, "timeout_error"),
    ],
)
def test_other_errors_are_an_object_without_retry_after(error: RequestError, status: int, word: str) -> None:
    """The D shape, always with a message, and no advice to wait where waiting changes nothing."""
    assert render_error(error) == (status, {"detail": {"error_type": word, "message": "x"}}, {})


@pytest.mark.parametrize(
    ("seconds", "header"), [(None, "1"), (0, "1"), (-3, "1"), (1, "1"), (3, "3"), (5, "5"), (60, "5")]
)
def test_refusals_that_pass_say_when_to_come_back(seconds: int | None, header: str) -> None:
    """Rows 51, 52, 54: an integer from 1 to 5 on 429 and 503, never on 413 even when it is given."""
    assert render_error(QueueFull("x", retry_after=seconds))[2] == {"Retry-After": header}
    assert render_error(Unavailable("x", retry_after=seconds))[2] == {"Retry-After": header}
    assert render_error(HostDied("x", dispatched=True, retry_after=seconds or 0))[0] == 503
    assert render_error(RequestTooLarge("x", retry_after=seconds))[2] == {}


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ({"type": "noul", "instructions": 1}, ("questions", "q", "instructions")),
        ({"type": "noul", "criteria": []}, ("questions", "q", "criteria")),
    ],
)
def test_what_was_meant_to_be_asked_is_not_missing_as_well(question: object, place: tuple[str, ...]) -> None:
    """One mistake, one fault: that nothing is asked would send the reader to another place."""
    with pytest.raises(InvalidRequest) as refused:
        parse_request({"state": "x", "questions": {"q": question}})
    assert [fault.loc for fault in refused.value.faults] == [place]
