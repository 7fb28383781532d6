"""The request body of the family's own dialect, which differs from System One in details.

    bytes ──read──▶ JSON value ──parse──▶ Asked(state, rendered questions)

Unknown fields mean nothing, the model may be missing, and states may be empty. Every refusal is a `Refused` whose
message is the body's `error`; the checks go from the outside to the inside: model, state, questions one by one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from frontend.errors import InvalidRequest
from frontend.families.open_jev.checkpoint import Checkpoint
from frontend.families.open_jev.rendering import Rendered, question
from frontend.families.open_jev.rows import check_candidates, check_questions
from frontend.families.refusal import Refused
from frontend.requests import strict_json

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""Raw body; 413 above it, which is the listener's."""

MAX_DEPTH: Final = 127
"""Containers inside each other: 128 are refused, as by the parser of the original."""

ALWAYS: Final = ("open-jev", "jev-latest")
"""Names that every checkpoint of the family answers to."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that this model can be asked, before its length in tokens is known."""

    state: str | dict[str, object] | list[object]
    """May be empty."""

    questions: tuple[Rendered, ...]
    """In the order they were sent; at least one."""


def names(checkpoint: Checkpoint) -> frozenset[str]:
    """What a request may call the model: the family's names, the base model's, and the released checkpoint's own."""
    release = checkpoint.terms.release
    return frozenset((*ALWAYS, checkpoint.terms.model_id, *((release.alias,) if release else ())))


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `Refused`, and nothing but that whatever the bytes are: duplicate keys,
    numbers that are not finite, `MAX_DEPTH`, and whatever is not JSON in UTF-8."""
    try:
        return strict_json.parse(body, max_depth=MAX_DEPTH)
    except InvalidRequest as error:
        raise Refused(f"invalid JSON: {error.faults[0].msg}", error.faults[0].loc) from None


def parse(document: object, models: Collection[str]) -> Asked:
    """The state and the rendered questions of a body's value. Raises `Refused` for the first thing wrong.

    `models`: what the request may call the model, see `names`; missing and null are always right.
    """
    if not isinstance(document, dict):
        raise Refused("request must be an object")
    model = document.get("model")
    if not (model is None or (isinstance(model, str) and model in models)):
        raise Refused("requested model is not loaded", ("model",))
    if "state" not in document:
        raise Refused("request requires state", ("state",))
    state = document["state"]
    if not isinstance(state, (str, dict, list)):
        raise Refused("state must be text, a JSON object, or an array", ("state",))
    questions = document.get("questions")
    if not isinstance(questions, dict):
        raise Refused("questions must be an object", ("questions",))
    check_questions(len(questions))
    rendered = tuple([_question(name, fields) for name, fields in questions.items()])
    check_candidates(rendered)
    return Asked(state, rendered)


def _question(name: str, fields: object) -> Rendered:
    if not isinstance(fields, dict):
        raise Refused("question definition must be an object", ("questions", name))
    try:
        return question(name, fields)
    except Refused as error:
        raise error.below("questions") from None
