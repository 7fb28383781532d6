"""The request body of the family's own dialect, which is wider than System One.

    bytes ──read──▶ JSON value ──parse──▶ Asked(state, rendered questions)

States may be numbers or null, questions may be none at all, and several fields have a second name. Switches
of the original server that would change the prompt are refused unless they say what the prompt is anyway.
Every refusal is a `Refused` whose message is the body's `detail`; the order of checks is the original's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from frontend.errors import Fault, InvalidRequest
from frontend.families.decider.rendering import Rendered, json_text, question
from frontend.families.refusal import Refused
from frontend.requests import strict_json
from frontend.requests.questions import printable

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""Raw body. The original's transport answers 413 above it, its compiler 422."""

MAX_DEPTH: Final = 127
"""Containers inside each other: 128 are refused."""

INTEGERS: Final = (-(2**63), 2**64 - 1)
"""Integers that are read: those of 64 bits, with or without sign."""

SWITCHES: Final = {"independent": True, "schema_first": False, "neutralize_none": False, "chat": False}
"""Switches at the top of a body and the only value each may have. `isolated_levels` is checked with them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that this model can be asked, before its length in tokens is known."""

    state: object
    """Any JSON value."""

    questions: tuple[Rendered, ...]
    """In the order they were sent; may be empty."""


def read(body: bytes) -> object:
    """The one JSON value in `body`. Raises `Refused`, and nothing but that whatever the bytes are.

    Refused are duplicate keys, `MAX_DEPTH`, integers outside `INTEGERS`, numbers that are not finite, and
    whatever is not JSON in UTF-8.
    """
    if len(body) > MAX_BODY_BYTES:
        raise Refused(f"request body exceeds {MAX_BODY_BYTES} bytes")
    try:
        document = strict_json.parse(body, max_depth=MAX_DEPTH)
    except InvalidRequest as error:
        raise Refused(_first(error.faults[0])) from None
    if _LONG_INTEGER.search(body):
        least, most = INTEGERS
        for number in _integers(document):
            if not least <= number <= most:
                raise Refused(f"JSON integer out of range: {printable(str(number))}")
    return document


def parse(document: object) -> Asked:
    """The state and the rendered questions of a body's value. Raises `Refused` for the first thing wrong."""
    if not isinstance(document, dict):
        raise Refused("request must be an object")
    for name, expected in SWITCHES.items():
        _switch(document, name, expected, ())
    _switch(document, "isolated_levels", True, ())
    layout = document.get("layout")
    if not (layout is None or layout == "state_first"):
        raise Refused("unsupported layout: expected state_first", ("layout",))
    model = document.get("model")
    if not (model is None or isinstance(model, str)):
        raise Refused("model must be a string", ("model",))
    if "state" not in document:
        raise Refused("missing state", ("state",))
    if "questions" not in document:
        raise Refused("missing questions", ("questions",))
    questions = document["questions"]
    if not isinstance(questions, dict):
        raise Refused("questions must be an object", ("questions",))
    return Asked(document["state"], tuple([_question(name, fields) for name, fields in questions.items()]))


def _question(name: str, fields: object) -> Rendered:
    if not isinstance(fields, dict):
        raise Refused("question must be an object", ("questions", name))
    _switch(fields, "isolated", True, ("questions", name))
    try:
        return question(name, fields)
    except Refused as error:
        raise error.below("questions") from None


def _switch(fields: dict[str, Any], name: str, expected: bool, place: tuple[str, ...]) -> None:
    if fields.get(name, expected) is not expected:
        raise Refused(f"unsupported {name}: expected {json_text(expected)}", (*place, name))


_LONG_INTEGER: Final = re.compile(rb"[0-9]{19}")


def _first(fault: Fault) -> str:
    if fault.type == "duplicate_key" and fault.loc:
        return f"duplicate JSON key {json_text([fault.loc[-1]])[1:-1]}"
    return f"invalid JSON: {fault.msg}"


def _integers(root: object) -> Iterator[int]:
    """Every integer at or below `root`. Recursion is bounded by the depth check."""
    if isinstance(root, dict):
        for value in root.values():
            yield from _integers(value)
    elif isinstance(root, list):
        for value in root:
            yield from _integers(value)
    elif isinstance(root, int) and not isinstance(root, bool):
        yield root
