"""The request body of the family's own server, which is stricter than System One in details.

    bytes ──read──▶ JSON value ──parse──▶ Asked(model, state, rendered questions)

Unknown fields are refused everywhere, `model` is required and has to be one of ours, descriptions are texts, and
choices and scores have two options or more, as many at most as the checkpoint was trained with. Every refusal is a
`Refused` whose message is the body's `error.message`; the checks go from the outside to the inside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frontend.errors import InvalidRequest
from frontend.families.nimble.rendering import SIDES, Rendered, question
from frontend.families.nimble.rows import check_questions
from frontend.families.refusal import Refused
from frontend.requests import strict_json
from frontend.requests.questions import printable

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""Raw body; 413 above it."""

MAX_DEPTH: Final = 127
"""Containers inside each other. Ours: the original's parser has another bound."""

ALIAS: Final = "nimble-latest"
"""A name that every checkpoint of the family answers to, as to whatever begins with `JEV`."""

JEV: Final = "jev-"

LEAST: Final = 2
"""Options of a choice, and levels of a score."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that this model can be asked, before its length in tokens is known."""

    model: str
    state: str | dict[str, Any] | list[Any]
    questions: tuple[Rendered, ...]
    """In the order they were sent; at least one."""


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `Refused`, and nothing but that whatever the bytes are."""
    try:
        return strict_json.parse(body, max_depth=MAX_DEPTH)
    except InvalidRequest as error:
        raise Refused(f"invalid JSON: {error.faults[0].msg}", error.faults[0].loc) from None


def parse(document: object, models: Collection[str], *, fill: bool, most: int) -> Asked:
    """Model, state and rendered questions of a body's value. Raises `Refused` for the first thing wrong.

    `models`: names of the checkpoint; `fill`: as `rendering.question`; `most`: options of a question.
    """
    if not isinstance(document, dict):
        raise Refused("the request is an object")
    _only(document, ("model", "state", "questions"), "the request")
    for key in ("state", "model", "questions"):
        if key not in document:
            raise Refused(f"{key}: a field is missing", (key,))
    state, model, questions = document["state"], document["model"], document["questions"]
    if not isinstance(state, (str, dict, list)):
        raise Refused("state: a text, an object or an array is expected", ("state",))
    if not isinstance(model, str) or not model:
        raise Refused("model: a text is expected", ("model",))
    if not isinstance(questions, dict):
        raise Refused("questions: an object is expected", ("questions",))
    check_questions(len(questions))
    try:
        rendered = tuple([_question(name, fields, fill, most) for name, fields in questions.items()])
    except Refused as error:
        raise error.below("questions") from None
    if model != ALIAS and model not in models and not model.startswith(JEV):
        raise Refused(f"Unknown model: {printable(model)}", ("model",))
    return Asked(model, state, rendered)


def _question(name: str, fields: object, fill: bool, most: int) -> Rendered:
    said = f'question "{printable(name)}"'
    if not isinstance(fields, dict):
        raise Refused(f"{said}: the definition is an object", (name,))
    _only(fields, ("type", "instructions", "criteria"), said, (name,))
    if not isinstance(fields.get("instructions", ""), (str, dict, list)):
        raise Refused(f"{said}: the instructions are a text, an object or an array", (name, "instructions"))
    kind = fields.get("type")
    if kind in ("choice", "score"):
        criteria = fields.get("criteria")
        if not isinstance(criteria, dict if kind == "choice" else list) or not LEAST <= len(criteria) <= most:
            form = "an object" if kind == "choice" else "a list"
            raise Refused(f"{said}: the criteria of a {kind} are {form} of {LEAST} to {most}", (name, "criteria"))
        for text in criteria.values() if isinstance(criteria, dict) else criteria:
            if not (isinstance(text, str) or (text is None and kind == "choice")):
                raise Refused(f"{said}: a description is a text", (name, "criteria"))
    elif kind == "noul" and "criteria" in fields:
        criteria = fields["criteria"]
        if not isinstance(criteria, dict) or not all(isinstance(text, str) for text in criteria.values()):
            raise Refused(f"{said}: the criteria of a noul are an object of texts", (name, "criteria"))
        _only(criteria, SIDES, f"{said}: the criteria", (name, "criteria"))
    return question(name, fields, fill=fill, most=most)


def _only(fields: Mapping[str, Any], known: Collection[str], said: str, place: tuple[str, ...] = ()) -> None:
    for key in fields:
        if key not in known:
            raise Refused(f"{said}: {printable(key)} is no field of it", (*place, key))
