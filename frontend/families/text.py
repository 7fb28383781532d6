"""The document of a `TextRequest`: what families whose host reads text itself send of a request."""

from __future__ import annotations

from json import JSONEncoder
from typing import Any, Final

from frontend.questions import Choice, Noul, Question

encode: Final = JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode  # integers digit by digit, floats as the shortest text that reads back as the same double
"""Compact JSON, as text."""


def described(question: Question) -> dict[str, Any]:
    """A question as the document has it: `type`, `instructions` and `criteria`, and not its id."""
    criteria: object
    if isinstance(question, Choice):
        kind, criteria = "choice", dict(question.options)
    elif isinstance(question, Noul):
        kind, criteria = "noul", None if question.criteria is None else dict(question.criteria)
    else:
        kind, criteria = "score", question.levels
    return {"type": kind, "instructions": question.instructions, "criteria": criteria}
