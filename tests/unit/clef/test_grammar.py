"""The family's own request body: what is read, and what is refused in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.errors import InvalidRequest, QueueFull, RequestTooLarge, TokensExceeded
from frontend.families.clef import grammar
from frontend.families.clef.processor import MAX_QUESTIONS, ClefProcessor
from frontend.families.clef.profile import ClefNative
from frontend.families.native import HostView, NativeRefusal
from frontend.http.systemone import parse_request
from tests.unit.clef.helpers import QUESTIONS, STATE

NOUL: dict[str, Any] = {"type": "noul"}


def body(questions: Any = QUESTIONS, **fields: Any) -> dict[str, Any]:
    """A request's value."""
    return {"model": "clef-flash", "state": STATE, "questions": questions, **fields}


def without(name: str) -> dict[str, Any]:
    """A request's value that lacks a field."""
    return {key: value for key, value in body().items() if key != name}


def one(**fields: Any) -> dict[str, Any]:
    """A request's value with one question of these fields."""
    return body({"q": fields})


REFUSED: dict[str, tuple[Any, str]] = {
    "no object": ([], "request must be an object"),
    "no model": (without("model"), "model and state are required"),
    "a model that is no text": (body(model=1), "model and state are required"),
    "no state": (without("state"), "model and state are required"),
    "no questions": (without("questions"), "at least one question is required"),
    "questions in a list": (body([]), "at least one question is required"),
    "empty questions": (body({}), "at least one question is required"),
    "65 questions": (
        body({str(number): NOUL for number in range(65)}),
        "65 questions; at most 64 are decided together",
    ),
    "an image": (body(images=["x"]), "images are not read; this server's model reads text only"),
    "a video": (body(videos=["x"]), "videos are not read; this server's model reads text only"),
    "a question that is none": (body({"q": "x"}), "q: a question must be an object"),
    "no type": (one(), "q: type must be noul, choice, or score"),
    "another type": (one(type="box"), "q: type must be noul, choice, or score"),
    "a type that cannot be a key": (one(type=["noul"]), "q: type must be noul, choice, or score"),
    "no options": (one(type="choice"), "q: criteria must not be empty"),
    "empty options": (one(type="choice", criteria={}), "q: criteria must not be empty"),
    "empty levels": (one(type="score", criteria=[]), "q: criteria must not be empty"),
    "options in a list": (one(type="choice", criteria=["a"]), "q: criteria of a choice must be an object"),
    "levels in an object": (one(type="score", criteria={"a": 1}), "q: criteria of a score must be an array"),
    "sides in a list": (one(type="noul", criteria=["a"]), "q: criteria of a noul must be an object or null"),
    "256 options": (
        one(type="choice", criteria=dict.fromkeys(map(str, range(256)))),
        "q: 256 options; at most 255 are allowed",
    ),
    "11 levels": (one(type="score", criteria=["x"] * 11), "q: 11 levels; at most 10 are allowed"),
    "nothing to read": (body({"": NOUL}), "a question with an empty id needs instructions of at least 1 character"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    """422 and the first thing wrong, in the reference's words where it has some; every limit is named."""
    document, expected = REFUSED[case]
    with pytest.raises(NativeRefusal) as caught:
        grammar.parse(document)
    assert (caught.value.status, caught.value.message) == (422, expected)


ACCEPTED: dict[str, dict[str, Any]] = {
    "a null state": body(state=None),
    "a number as state": body(state=1),
    "no images": body(images=[], videos=None),
    "unknown fields": body(x=1),
    "an empty model": body(model=""),
    "64 questions": body({str(number): NOUL for number in range(64)}),
    "255 options": one(type="choice", criteria=dict.fromkeys(map(str, range(255)))),
    "10 levels of any kind": one(type="score", criteria=[None, 1, True, {}, [], "x", "", 2.0, "y", "z"]),
    "one option, one level": body(
        {"a": {"type": "choice", "criteria": {"x": 1}}, "b": {"type": "score", "criteria": [0]}}
    ),
    "an empty id with instructions": body({"": {"type": "noul", "instructions": "Is it?"}}),
    "any id": body({"Is it so? 🙂\n": NOUL}),
    "sides": one(type="noul", criteria={"true": None, "maybe": 1}, instructions=["which"]),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_accepted(case: str) -> None:
    """One unit, whose document has every question with its id, its fields as sent, in their order."""
    document = ACCEPTED[case]
    ready = ClefNative(ClefProcessor({}, {})).prepare(json.dumps(document).encode())
    (unit,) = ready.units
    sent = json.loads(unit.document)  # type: ignore[attr-defined]
    assert sent["state"] == document["state"]
    assert [question.pop("id") for question in sent["questions"]] == list(document["questions"])
    for question, fields in zip(sent["questions"], document["questions"].values(), strict=True):
        assert question == {name: fields.get(name) for name in ("type", "instructions", "criteria")}
    assert ready.cost == len(unit.document)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":"\\ud800"}', b"[" * 128 + b"]" * 128]
)
def test_what_is_no_json(raw: bytes) -> None:
    """400, and nothing but that."""
    with pytest.raises(NativeRefusal) as caught:
        grammar.read(raw)
    assert caught.value.status == 400
    assert caught.value.message.startswith("invalid JSON: ")


def test_127_containers_are_read_and_rendered() -> None:
    """The deepest body that is accepted can also be serialised."""
    state: Any = "s"
    for _ in range(grammar.MAX_DEPTH - 1):
        state = [state]
    ClefNative(ClefProcessor({}, {})).prepare(json.dumps(body(state=state)).encode())


def test_the_main_port_has_the_same_limit_of_questions() -> None:
    """64 are prepared; 65 are 422 at their place, and the limit is named."""
    processor = ClefProcessor({}, {})

    def asked(count: int) -> Any:
        questions = {str(number): {"type": "noul", "instructions": "?"} for number in range(count)}
        return processor.prepare(parse_request({"state": "s", "questions": questions}))

    assert len(asked(MAX_QUESTIONS).units) == 1
    with pytest.raises(InvalidRequest) as caught:
        asked(MAX_QUESTIONS + 1)
    (fault,) = caught.value.faults
    assert (fault.loc, fault.type) == (("questions",), "too_long")
    assert "65 questions" in fault.msg
    assert "at most 64" in fault.msg


def test_one_request_is_one_unit_with_ids_and_all_questions() -> None:
    """They are decided together, so no number of them is ever two units."""
    ready = ClefProcessor({}, {}).prepare(parse_request({"state": STATE, "questions": QUESTIONS}))
    (unit,) = ready.units
    document = json.loads(unit.document)  # type: ignore[attr-defined]
    assert [question["id"] for question in document["questions"]] == list(QUESTIONS)
    assert ready.cost == len(unit.document)  # type: ignore[attr-defined]


def test_the_body_limit_is_the_listeners() -> None:
    """8 MiB, and its words for a budget in use and for what can never fit."""
    profile = ClefNative(ClefProcessor({}, {}))
    assert profile.MAX_BODY_BYTES == 8 * 1024 * 1024
    assert profile.refusal(QueueFull("x", retry_after=1)) == (503, "native execution capacity exhausted")
    assert profile.refusal(RequestTooLarge("limit 5")) == (422, "limit 5")
    assert profile.refusal(TokensExceeded("maximum is 5")) == (422, "maximum is 5")


def test_a_response_repeats_the_model_and_counts_tokens() -> None:
    """In the reference's shape: model, answers in request order, usage."""
    import numpy as np

    profile = ClefNative(ClefProcessor({}, {}))
    ready = profile.prepare(json.dumps(body(model="anything")).encode())
    output = {
        "logits": np.array([0, 1, 2, 0, 0, 0, 1], np.float32),
        "counts": np.array([2, 2, 3], np.int32),
        "tokens": 321,
        "truncated": {"kept": 1, "total": 2},
    }
    found = profile.finish(ready, [output], 0.5)
    assert list(found) == ["model", "answers", "usage"]
    assert (found["model"], found["usage"]) == ("anything", {"input_tokens": 321, "output_tokens": 0})
    assert list(found["answers"]) == list(QUESTIONS)
    assert found["answers"]["team"]["choice"] == "billing"
    assert found["answers"]["refund"] == {"type": "noul", "noul": 0.8808}
    assert found["answers"]["harm"]["legend"] == {"0": "none", "1": {"n": 1}, "2": "much"}


def test_health_is_what_the_host_has_said() -> None:
    """Before there was one, and afterwards; nobody is asked."""
    profile = ClefNative(ClefProcessor({}, {}))
    assert profile.health(HostView(ready=False))["status"] == "unavailable"
    facts = {"name": "clef-flash", "dtype": "bfloat16", "limits": {"tokens": 16384}, "truncate": False}
    assert profile.health(HostView(ready=True, facts=facts)) == {
        "status": "ready",
        "model": "clef-flash",
        "dtype": "bfloat16",
        "max_length": 16384,
        "truncate": False,
    }
