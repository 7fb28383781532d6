"""The request body of the family's own dialect: that of the published inference file, and its words where it has some.

    bytes ──read──▶ JSON value ──parse──▶ Asked(model, state, questions)

What the original would read and answer with nonsense is refused: criteria of another form, a question without any
text. Ids, states, instructions and descriptions are any JSON of their kind; unknown fields mean nothing. Every refusal
is a `NativeRefusal`: 400 for what is no JSON, 422 for the first thing wrong with what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from frontend.errors import InvalidRequest
from frontend.families.clef.processor import MAX_QUESTIONS
from frontend.families.native import NativeRefusal
from frontend.limits import MAX_LEVELS, MAX_OPTIONS
from frontend.requests import strict_json
from frontend.requests.questions import printable

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""Raw body; 413 above it, which is the listener's. Public servers of the model take 8 to 13 MiB, with images."""

MAX_DEPTH: Final = 127
"""Containers inside each other."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that this model can be asked, before its length in tokens is known."""

    model: str
    """Whatever the request calls the model: it is only repeated."""

    state: object
    """Any JSON value."""

    questions: Mapping[str, Mapping[str, Any]]
    """By id, in the order they were sent; at least one. Each has `type`, `instructions` and `criteria`."""


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `NativeRefusal` (400), and nothing but that whatever the bytes are:
    duplicate keys, numbers that are not finite, lone surrogates, `MAX_DEPTH`, and whatever is not JSON in UTF-8."""
    try:
        return strict_json.parse(body, max_depth=MAX_DEPTH)
    except InvalidRequest as error:
        raise NativeRefusal(400, f"invalid JSON: {error.faults[0].msg}") from None


def parse(document: object) -> Asked:
    """Model, state and questions of a body's value. Raises `NativeRefusal` (422) for the first thing wrong."""
    if not isinstance(document, dict):
        raise _refused("request must be an object")
    model = document.get("model")
    if not isinstance(model, str) or "state" not in document:
        raise _refused("model and state are required")
    questions = document.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise _refused("at least one question is required")
    if len(questions) > MAX_QUESTIONS:
        raise _refused(f"{len(questions)} questions; at most {MAX_QUESTIONS} are decided together")
    for name in ("images", "videos"):
        if document.get(name):
            raise _refused(f"{name} are not read; this server's model reads text only")
    return Asked(model, document["state"], {name: _question(name, fields) for name, fields in questions.items()})


def options(question: Mapping[str, Any]) -> int:
    """How many options a question that was accepted has."""
    return 2 if question["type"] == "noul" else len(question["criteria"])


def _question(name: str, fields: object) -> dict[str, Any]:
    shown = printable(name)
    if not isinstance(fields, dict):
        raise _refused(f"{shown}: a question must be an object")
    kind, criteria = fields.get("type"), fields.get("criteria")
    if kind not in ("noul", "choice", "score"):
        raise _refused(f"{shown}: type must be noul, choice, or score")
    if kind == "noul":
        if not (criteria is None or isinstance(criteria, dict)):
            raise _refused(f"{shown}: criteria of a noul must be an object or null")
    else:
        if not criteria:
            raise _refused(f"{shown}: criteria must not be empty")
        what, form, most = ("options", dict, MAX_OPTIONS) if kind == "choice" else ("levels", list, MAX_LEVELS)
        if not isinstance(criteria, form):
            raise _refused(f"{shown}: criteria of a {kind} must be {'an object' if form is dict else 'an array'}")
        if len(criteria) > most:
            raise _refused(f"{shown}: {len(criteria)} {what}; at most {most} are allowed")
    instructions = fields.get("instructions")
    if not name and instructions in (None, ""):
        raise _refused("a question with an empty id needs instructions of at least 1 character")
    return {"type": kind, "instructions": instructions, "criteria": criteria}


def _refused(message: str) -> NativeRefusal:
    return NativeRefusal(422, message)
