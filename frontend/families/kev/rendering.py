"""From a question's JSON to the texts that a Kev model reads: state, instructions, options.

    choice  an option is its name, with ": " and the description where there is one (0 and false are descriptions)
    score   a level is its text, without a number
    noul    `no` and `yes`, the false side first, each with its description likewise

Whatever is not a string is laid out in lines instead of as JSON:

    null        nothing                        "a": {"b": [1, true]}      a:
    a number    as Python writes it                                         b:
    a list      lines that begin with "- "                                    - 1
    an object   lines `key: value`                                            - True

What a container holds stands two spaces further in, and begins on the line after its key or on that of its "- ".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.kev import LEVELS, OPTIONS_OF_CHOICE

INDENT: Final = "  "

SIDES: Final = (("false", "no"), ("true", "yes"))
"""A noul's sides in their order, and what the model calls them."""

_CONTROL: Final = re.compile(r"<\|([A-Za-z0-9_]+)\|>")

Kind = Literal["choice", "score", "noul"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One question as texts. Its id goes into messages and answers, never into a row."""

    id: str
    kind: Kind
    instructions: str
    options: tuple[str, ...]
    names: tuple[str, ...]
    """What an answer calls each option: option names, level indexes, or "false" and "true"."""


def for_tokens(text: str) -> str:
    """`text` as the tokenizer gets it: nothing a client writes is a delimiter or another control token."""
    return _CONTROL.sub(r"<¦\1¦>", text)


def laid_out(value: object, depth: int = 0) -> str:
    """Any JSON value as the model reads it. `depth`: containers around it."""
    margin = INDENT * depth
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join([f"{margin}- {laid_out(item, depth + 1).lstrip()}" for item in value])
    if isinstance(value, dict):
        return "\n".join([margin + _member(key, item, depth) for key, item in value.items()])
    return str(value)


def _member(key: str, value: object, depth: int) -> str:
    if isinstance(value, (list, dict)):
        return f"{key}:\n{laid_out(value, depth + 1)}"
    return f"{key}: {laid_out(value)}"


def question(name: str, fields: object) -> Rendered:
    """The texts of one question of the family's own grammar. Raises `Refused`, whose place begins with `name`.

    Unknown fields mean nothing, and neither do a noul's criteria but those of its sides.
    """
    said = f'question "{printable(name)}"'
    if not isinstance(fields, dict):
        raise Refused(f"{said}: the definition is an object", (name,))
    kind, criteria = fields.get("type"), fields.get("criteria")
    if kind not in ("choice", "score", "noul"):
        raise Refused(f"{said}: the type is choice, noul or score", (name, "type"))
    if "instructions" not in fields:
        raise Refused(f"{said}: there are no instructions", (name, "instructions"))
    instructions = laid_out(fields["instructions"])
    if kind == "noul":
        if criteria is not None and not isinstance(criteria, dict):
            raise Refused(f"{said}: the criteria of a noul are an object of true and false", (name, "criteria"))
        options = tuple([_option(called, (criteria or {}).get(side)) for side, called in SIDES])
        return Rendered(name, "noul", instructions, options, tuple([side for side, _ in SIDES]))
    if kind == "choice":
        least, most = OPTIONS_OF_CHOICE
        if not isinstance(criteria, dict) or not least <= len(criteria) <= most:
            message = f"{said}: the criteria of a choice are an object of {least} to {most} options"
            raise Refused(message, (name, "criteria"))
        return Rendered(name, "choice", instructions, _options(criteria), tuple(criteria))
    least, most = LEVELS
    if not isinstance(criteria, list) or not least <= len(criteria) <= most:
        raise Refused(f"{said}: the criteria of a score are a list of {least} to {most} levels", (name, "criteria"))
    levels = tuple([laid_out(level) for level in criteria])
    return Rendered(name, "score", instructions, levels, tuple([str(index) for index in range(len(levels))]))


def _options(criteria: dict[str, Any]) -> tuple[str, ...]:
    return tuple([_option(name, description) for name, description in criteria.items()])


def _option(name: str, description: object) -> str:
    return name if description is None or description == "" else f"{name}: {laid_out(description)}"
