"""Three dialects on one path: which of them a body on `/v1/decisions` is in.

    questions   beside them   dialect
    ---------   -----------   ------------------------------------------
    an array    any           OpenAI's
    an object   `input`       Gemini's
    an object   otherwise     Perplexity's, which is System One's

Before there is a body, or where it has no questions, the key header decides: Gemini's SDK has its own. Else it is
OpenAI's, whose path this is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontend.http import gemini, openai, perplexity
from frontend.http.dialect import Dialect


def by_headers(headers: Mapping[str, str]) -> Dialect:
    """The dialect of a request whose body has not been read."""
    return gemini if "x-goog-api-key" in headers else openai


def by_body(document: object, known: Dialect) -> Dialect:
    """The dialect of `document`; `known` is what the headers say."""
    if not isinstance(document, dict):
        return known
    fields: dict[str, Any] = document
    questions = fields.get("questions")
    if isinstance(questions, list):
        return openai
    if isinstance(questions, dict):
        return gemini if "input" in fields and "state" not in fields else perplexity
    return known if "state" not in fields else perplexity
