"""The request body of the family's own dialect, which differs from System One in details.

    bytes ──read──▶ JSON value ──parse──▶ Asked(state, rendered questions)

`state` may be any JSON value, null included; there may be no questions at all; every field that is not one of the
four is refused. Every refusal is a `Refused` whose message is the body's `error`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frontend.errors import InvalidRequest
from frontend.families.laya.rendering import Rendered, question
from frontend.families.refusal import Refused
from frontend.requests import strict_json
from frontend.requests.questions import printable

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""Raw body; 413 above it, which is the listener's."""

MAX_DEPTH: Final = 127
"""Containers inside each other: 128 are refused, as by the parser of the original."""

FIELDS: Final = ("state", "questions", "model", "lang")
MODELS: Final = (None, "english")
LANGUAGES: Final = (None, "en", "english")
"""What `model` and `lang` may be; both may be missing. The other languages' checkpoints are other models."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that this model can be asked, before its length in tokens is known."""

    state: object
    """Any JSON value."""

    questions: tuple[Rendered, ...]
    """In the order they were sent; may be empty."""


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `Refused`, and nothing but that whatever the bytes are: a key that stands
    twice in the outermost object (further in, the last one counts), numbers that are not finite, `MAX_DEPTH`, and
    whatever is not JSON in UTF-8."""
    try:
        return strict_json.parse(body, max_depth=MAX_DEPTH, nested_duplicates=True)
    except InvalidRequest as error:
        raise Refused(f"invalid JSON: {error.faults[0].msg}", error.faults[0].loc) from None


def parse(document: object) -> Asked:
    """The state and the rendered questions of a body's value. Raises `Refused` for the first thing wrong."""
    if not isinstance(document, dict):
        raise Refused("request must be an object")
    for name in document:
        if name not in FIELDS:
            raise Refused(f'unknown field "{printable(name)}", expected one of {", ".join(FIELDS)}', (name,))
    for name in ("state", "questions"):
        if name not in document:
            raise Refused(f"missing field {name}", (name,))
    questions = document["questions"]
    if not isinstance(questions, dict):
        raise Refused("questions must be an object", ("questions",))
    if document.get("model") not in MODELS:
        raise Refused("only model=english is supported", ("model",))
    if document.get("lang") not in LANGUAGES:
        raise Refused("only English is supported; use lang=en", ("lang",))
    try:
        rendered = tuple([question(name, fields) for name, fields in questions.items()])
    except Refused as error:
        raise error.below("questions") from None
    return Asked(document["state"], rendered)
