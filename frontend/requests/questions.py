"""The domain model: one decision request, as every dialect produces it and every family consumes it.

    DecisionRequest
      model      name the client asked for, or None
      state      Text
      questions  Choice | Noul | Score, in request order

`Text` is what the field calls text: a string, or a JSON object or array that the family renders in its
own way. All values are kept verbatim, order included: option names come back byte for byte, and a
structured level is echoed as it was sent. The values are shared, never copied; no code may change them.

These types hold what a dialect has already validated, so they check nothing themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

PREFIXES: Final = {"gemini": "models/", "openrouter": "typesafe/"}
"""What clients of a dialect put before a model's name; it is cut off there, so no name begins with one."""

ALIASES: Final = ("jev-latest", "jev-preview")
"""What a request may say for the default model; the SDKs of the field send the first."""

Text: TypeAlias = str | dict[str, Any] | list[Any]
"""A string, or structured text. Never None, a number or a boolean."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Pick one of the options. At least one; names are distinct and in the order they were sent."""

    id: str
    instructions: Text | None
    options: tuple[tuple[str, Text | None], ...]
    """(name, description or None) in request order."""


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no. Has instructions, or at least one described side, or both."""

    id: str
    instructions: Text | None
    criteria: tuple[tuple[str, Text | None], ...] | None
    """("true" or "false", description or None) for each side that was sent, as ordered; None without criteria.

    A side that is missing and a side that is null are kept apart, because some families read them differently.
    """

    def side(self, name: str) -> Text | None:
        """The description of side "true" or "false", None when it is missing or null."""
        for key, description in self.criteria or ():
            if key == name:
                return description
        return None


@dataclass(frozen=True, slots=True)
class Score:
    """Place the state on ordered levels, lowest first. At least one level; none is None."""

    id: str
    instructions: Text | None
    levels: tuple[Text, ...]


Question: TypeAlias = Choice | Noul | Score


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """One state, at least one question. `model` is None when the client named none: the app decides then."""

    model: str | None
    state: Text
    questions: tuple[Question, ...]
    session: str | None = field(default=None, kw_only=True)
    """The client's name for the conversation that it is a turn of; None: it is of none."""


MAX_SESSION_CHARS: Final = 128
"""Of a client's name for a conversation: a UUID has 36."""

MAX_SHOWN_CHARS: Final = 80
"""Characters of a client's own text repeated in a message or a place: enough to recognise it."""


_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, separators of lines, what reverses the direction of a line, and halves of surrogate pairs."""


def printable(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """`text` as it can be shown in a message: at most `limit` characters, of which none moves a cursor, ends a line or
    cannot be encoded; those are shown as escapes."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if _UNPRINTABLE.search(text) is None:
        return text
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
