"""Questions as members of a JSON object, and the documents of the text families, whose host reads the whole request
itself: one JSON text per request.

What only the host knows of a request comes back with its numbers: how many tokens there were, and what was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import JSONEncoder
from typing import Any, Final, TypeGuard, TypeVar

from frontend.errors import InternalError
from frontend.families.refusal import Refused
from frontend.requests.questions import Choice, Noul, Question

RenderedT = TypeVar("RenderedT")

encode: Final = JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode  # integers digit by digit, floats as the shortest text that reads back as the same double


def fields(question: Question) -> dict[str, Any]:
    """Type, instructions and criteria of a question, as they were sent; not its id."""
    criteria: object
    if isinstance(question, Choice):
        kind, criteria = "choice", dict(question.options)
    elif isinstance(question, Noul):
        kind, criteria = "noul", None if question.criteria is None else dict(question.criteria)
    else:
        kind, criteria = "score", list(question.levels)
    return {"type": kind, "instructions": question.instructions, "criteria": criteria}


def rendered(question: Question, render: Callable[[str, dict[str, Any]], RenderedT]) -> RenderedT:
    """A System One question as a family's own grammar renders it. Raises `Refused` with its place in the body.

    Instructions that are null are missing here: this dialect does not tell the two apart, which some families do.
    """
    members = fields(question)
    if members["instructions"] is None:
        del members["instructions"]
    try:
        return render(question.id, members)
    except Refused as error:
        raise error.below("questions") from None


def usage(output: Mapping[str, Any]) -> tuple[int, dict[str, int] | None]:
    """`tokens` of a host's output, and `truncated`: None, or the counts `kept` and `total`.

    Anything else is an `InternalError`.
    """
    tokens, cut = output.get("tokens"), output.get("truncated")
    if not _is_count(tokens):
        raise InternalError("the model's output has no token count")
    if cut is None:
        return tokens, None
    if not isinstance(cut, Mapping):
        raise InternalError("the model's report of a cut is not a map")
    kept, total = cut.get("kept"), cut.get("total")
    if not (_is_count(kept) and _is_count(total)):
        raise InternalError("the model's report of a cut has no counts")
    return tokens, {"kept": kept, "total": total}


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0
