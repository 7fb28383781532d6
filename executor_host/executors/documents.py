"""The document of a `TextRequest`, for families whose host reads the whole request itself."""

from __future__ import annotations

import json
from typing import Any, Final

from protocol.errors import Malformed
from protocol.payloads import TextRequest

CRITERIA: Final[dict[str, tuple[type, ...]]] = {"choice": (dict,), "score": (list,), "noul": (dict, type(None))}


def read(payload: TextRequest, *, ids: bool) -> tuple[Any, list[dict[str, Any]]]:
    """State and questions, one or more, each with `type`, `instructions` and `criteria`, and with an `id` where the
    family reads `ids`. The front has validated them; what is checked is that it did: `Malformed` otherwise."""
    try:
        document = json.loads(payload.document)
        state, questions = document["state"], document["questions"]
        if not questions:
            raise ValueError("no questions")
        for question in questions:
            if question.keys() != {"type", "instructions", "criteria", *(("id",) if ids else ())}:
                raise ValueError("a question of another form")
            criteria, expected = question["criteria"], CRITERIA[question["type"]]
            if (ids and not isinstance(question["id"], str)) or not isinstance(criteria, expected):
                raise ValueError("a field of the wrong kind")
            if question["type"] != "noul" and not criteria:
                raise ValueError("no options")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed("the document is not a request of this family") from error
    return state, questions
