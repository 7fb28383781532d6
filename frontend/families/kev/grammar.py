"""The request body of the family's own dialect.

    bytes ──read──▶ JSON value ──parse──▶ Asked(model, state, rendered questions)

`state` may be any JSON value, null included; the model may have any name, and is repeated in the answer; unknown fields
mean nothing. Every refusal is a `Refused` whose message is the body's `detail`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frontend.errors import InvalidRequest
from frontend.families.kev.rendering import Rendered, question
from frontend.families.refusal import Refused
from frontend.requests import strict_json

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""Raw body; 413 above it. Ours: the original has no bound."""

MAX_DEPTH: Final = 127
"""Containers inside each other."""

DEFAULT_MODEL: Final = "kev-latest"


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that this model can be asked, before its length in tokens is known."""

    model: str
    state: object
    """Any JSON value."""
    questions: tuple[Rendered, ...]
    """In the order they were sent; at least one."""


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `Refused`, and nothing but that whatever the bytes are."""
    try:
        return strict_json.parse(body, max_depth=MAX_DEPTH)
    except InvalidRequest as error:
        raise Refused(f"invalid JSON: {error.faults[0].msg}", error.faults[0].loc) from None


def parse(document: object) -> Asked:
    """Model, state and rendered questions of a body's value. Raises `Refused` for the first thing wrong."""
    if not isinstance(document, dict):
        raise Refused("the request is an object")
    if "state" not in document:
        raise Refused("state: a field is missing", ("state",))
    model = document.get("model", DEFAULT_MODEL)
    if not isinstance(model, str):
        raise Refused("model: a text is expected", ("model",))
    questions = document.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise Refused("questions: an object with a question or more is expected", ("questions",))
    try:
        return Asked(model, document["state"], tuple([question(name, fields) for name, fields in questions.items()]))
    except Refused as error:
        raise error.below("questions") from None
