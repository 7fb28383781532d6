"""The request body of the family's own dialect: bytes to state and questions, or one refusal.

    bytes --read--> JSON value --parse--> Request

Every refusal is a `Refused` in the original server's words, for the first thing wrong in its own
order: model, state, questions, then each question in turn. Unknown fields are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from frontend.errors import InvalidRequest
from frontend.families.cua_s1.prompt import MAX_OPTIONS, MAX_QUESTIONS
from frontend.families.refusal import Refused
from frontend.requests import strict_json
from frontend.requests.questions import Choice, Text
from protocol.contracts.cua_s1 import MODEL_ID

MAX_BODY_BYTES: Final = 4 << 20
"""Raw body. Above: 413."""

MAX_DEPTH: Final = 127
"""Containers inside each other."""

_TEXT: Final = (str, dict, list)


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `Refused`, and nothing but that whatever the bytes are.

    Refused are duplicate keys anywhere, what is not JSON in UTF-8, numbers that are no finite float or have more
    than 4,300 digits, lone surrogates, and containers deeper than `MAX_DEPTH`.
    """
    if len(body) > MAX_BODY_BYTES:
        raise too_large()
    try:
        return strict_json.parse(body, max_depth=MAX_DEPTH)
    except InvalidRequest as error:
        fault = error.faults[0]
        if fault.type == "duplicate_key":
            raise _duplicate(body) from None
        raise Refused(f"request body is not valid JSON: {fault.msg}", reason="form") from None


def too_large() -> Refused:
    """For a body above `MAX_BODY_BYTES`, wherever that is noticed."""
    return Refused("request body too large", reason="size")


@dataclass(frozen=True, slots=True)
class Request:
    """A body that this model can be asked, before the length of its prompts is known."""

    state: Text
    """Not empty."""
    choices: tuple[Choice, ...]
    """1 to 64, each with 1 to 26 options."""


def parse(document: object) -> Request:
    """The request in a body's value. Raises `Refused` for the first thing wrong."""
    if not isinstance(document, dict):
        raise Refused("request body must be a JSON object", reason="form")
    if document.get("model") != MODEL_ID:
        raise Refused(f"'model' must be '{MODEL_ID}'", ("model",))
    state = checked_state(document.get("state"))
    questions = document.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise Refused("'questions' must be a non-empty object", ("questions",))
    check_count(len(questions))
    asked = tuple([_question(name, fields) for name, fields in questions.items()])
    return Request(state, asked)


def checked_state(state: object) -> Text:
    """The same; `Refused` unless it is text that is not empty."""
    if state in ("", {}, []):
        raise Refused("'state' must not be empty", ("state",))
    if not isinstance(state, (str, dict, list)):
        raise Refused("'state' must be a string, an object or an array", ("state",))
    return state


def check_count(questions: int) -> None:
    """Raises `Refused` for too many."""
    if questions > MAX_QUESTIONS:
        raise Refused(f"more than {MAX_QUESTIONS} questions", ("questions",), reason="size")


def unsupported(name: str, kind: str) -> Refused:
    """For a question of a type that other families answer."""
    return Refused(f"question {name!r}: type {kind!r} is not supported", ("questions", name, "type"))


def wrong_options(name: str) -> Refused:
    """For criteria that are no object, or have too few or too many options."""
    message = f"question {name!r}: 'criteria' must be an object with 1 to {MAX_OPTIONS} options"
    return Refused(message, ("questions", name, "criteria"))


def _question(name: str, fields: object) -> Choice:
    place = ("questions", name)
    if not isinstance(fields, dict):
        raise Refused(f"question {name!r} must be an object", place)
    kind = fields.get("type")
    if kind in ("noul", "score"):
        raise unsupported(name, kind)
    if kind != "choice":
        raise Refused(f"question {name!r}: unknown type {kind!r}", (*place, "type"))
    if "instructions" not in fields:
        raise Refused(f"question {name!r}: 'instructions' is required", (*place, "instructions"))
    instructions = fields["instructions"]
    if not (instructions is None or isinstance(instructions, _TEXT)):
        raise _not_text(f"question {name!r}", (*place, "instructions"))  # in the original's words, which name no field
    criteria = fields.get("criteria")
    if not isinstance(criteria, dict) or not 1 <= len(criteria) <= MAX_OPTIONS:
        raise wrong_options(name)
    for option, description in criteria.items():
        if not (description is None or isinstance(description, _TEXT)):
            raise _not_text(f"question {name!r}: {option!r}", (*place, "criteria", option))
    return Choice(name, instructions, tuple(criteria.items()))


def _not_text(what: str, place: tuple[str | int, ...]) -> Refused:
    return Refused(f"{what} must be a string, an object or an array", place)


class _Duplicate(ValueError):
    pass


def _duplicate(body: bytes) -> Refused:
    """The refusal for the first key that stands twice in one object of a body whose nesting is bounded."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _Duplicate(key)
            seen.add(key)

    try:
        json.loads(body, object_pairs_hook=once)
    except _Duplicate as error:
        return Refused(f"duplicate key {error.args[0]!r}", reason="form")
    except ValueError as error:
        return Refused(f"request body is not valid JSON: {error}", reason="form")
    return Refused("request body is not valid JSON", reason="form")
