"""From a question's JSON to the texts a Decider model reads: question text, option texts, level texts, state.

All of it is the pinned reference's behaviour, so an odd rule here is a
rule there: an explicit null as instructions of a choice is the text `null`, 0 and false are descriptions, and
only null and "" are not. Texts are compared byte for byte with the reference in the tests; nothing may be
made nicer.

Digits and white space are those of Unicode 15, whatever the interpreter knows.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal

from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.decider import LABELS

ANNOTATE_MIN: Final = 8
"""Arrays of at least this many elements get their positions written into them."""

OPTIONS: Final = (2, LABELS)
"""Options of a choice."""

LEVELS: Final = (2, 10)
"""Levels of a score."""

NOUL_WITHOUT_INSTRUCTIONS: Final = "Which answer fits the context?"

Kind = Literal["choice", "noul", "score"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One question as texts. Its id goes into messages and answers, never into a row."""

    id: str
    kind: Kind
    text: str
    """The question text; never empty."""

    options: tuple[str, ...]
    """Option texts of a choice or noul in label order, level texts of a score without their numbers."""

    names: tuple[str, ...]
    """What an answer calls each option: option names, "false" and "true", or level indexes."""

    legend: tuple[str, ...] = ()
    """Level texts of a score with their numbers; empty for the others."""


def json_text(value: object) -> str:
    """A string as it is, anything else as Python's default JSON with non-ASCII characters unescaped."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def state_text(state: object) -> str:
    """What stands after `Context:`: a string as it is, anything else as JSON with long arrays annotated."""
    return state if isinstance(state, str) else json_text(annotated(state))


def annotated(value: object) -> object:
    """`value` with `_index` written into every array of `ANNOTATE_MIN` or more elements, at any depth.

    An object element gets `_index` first, and its own `_index` keeps that place with its own value. Any
    other element becomes `{"_index": position, "value": element}`. The input is not changed.
    """
    if isinstance(value, dict):
        return {key: annotated(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) < ANNOTATE_MIN:
        return [annotated(inner) for inner in value]
    return [
        {"_index": index, **{key: annotated(field) for key, field in inner.items()}}
        if isinstance(inner, dict)
        else {"_index": index, "value": annotated(inner)}
        for index, inner in enumerate(value)
    ]


def question(name: str, fields: Mapping[str, Any]) -> Rendered:
    """The texts of one question of the family's own grammar. Raises `Refused`.

    `type` is choice when absent, `bool` means noul; `question` and `options` stand in for absent
    `instructions` and `criteria`, and only for absent ones.
    """
    kind = fields.get("type", "choice")
    if kind == "bool":
        kind = "noul"
    if kind not in ("choice", "noul", "score"):
        raise Refused(f"unknown question type {printable(json.dumps(kind, ensure_ascii=False))}", (name, "type"))
    asked = fields.get("instructions", fields.get("question", ""))
    criteria = fields.get("criteria", fields.get("options"))
    if kind == "noul":
        return _noul(name, asked, criteria)
    text = json_text(asked)
    if not text:
        raise Refused("question without instructions", (name, "instructions"))
    return _choice(name, text, criteria) if kind == "choice" else _score(name, text, criteria)


def level_text(text: str) -> str:
    """`text` without the number in front of it: `2: somewhat` is `somewhat`. May be empty."""
    return _NUMBERED.sub("", text, count=1)


def level_number(key: str) -> float:
    """The number that a key of an object of levels stands for, by Python's `float` grammar.

    Raises `ValueError` for everything else, infinities and NaN included.
    """
    if key[:1] in _SEPARATORS or key[-1:] in _SEPARATORS or _NEWER_DIGIT.search(key):
        raise ValueError("not a number")
    number = float(key.translate(_OLDER_DIGITS))
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number


# Question types.


def _described(description: object) -> bool:
    return not (description is None or description == "")


def _option(name: str, description: object) -> str:
    return f"{name}: {json_text(description)}" if _described(description) else name


def _choice(name: str, text: str, criteria: object) -> Rendered:
    if isinstance(criteria, list):
        if not all(isinstance(option, str) for option in criteria):
            raise Refused("Choice option names must be strings", (name, "criteria"))
        criteria = dict.fromkeys(criteria)
    least, most = OPTIONS
    if not isinstance(criteria, dict) or not least <= len(criteria) <= most:
        raise Refused(f"Choice requires {least}..{most} options", (name, "criteria"))
    options = tuple([_option(option, description) for option, description in criteria.items()])
    return Rendered(name, "choice", text, options, tuple(criteria))


def _noul(name: str, asked: object, criteria: object) -> Rendered:
    if not (criteria is None or isinstance(criteria, dict)):
        raise Refused("noul criteria: an object of true and false descriptions", (name, "criteria"))
    sides = criteria or {}
    no, yes = sides.get("false"), sides.get("true")
    if asked is None or asked == "":
        if not (_described(no) or _described(yes)):
            message = "noul question without instructions: criteria must describe true or false"
            raise Refused(message, (name, "instructions"))
        asked = NOUL_WITHOUT_INSTRUCTIONS
    return Rendered(name, "noul", json_text(asked), (_option("no", no), _option("yes", yes)), ("false", "true"))


def _score(name: str, text: str, criteria: object) -> Rendered:
    if isinstance(criteria, dict):
        numbered = []
        for key, level in criteria.items():
            try:
                numbered.append((level_number(key), level))
            except ValueError:
                raise Refused("Score level keys must be finite numbers", (name, "criteria", key)) from None
        criteria = [level for _, level in sorted(numbered, key=lambda pair: pair[0])]
    least, most = LEVELS
    if not isinstance(criteria, list) or not least <= len(criteria) <= most:
        raise Refused(f"Score requires {least}..{most} levels", (name, "criteria"))
    legend = tuple([json_text(level) for level in criteria])
    levels = tuple([level_text(level) for level in legend])
    return Rendered(name, "score", text, levels, tuple([str(index) for index in range(len(legend))]), legend)


# Digits of Unicode 15 on older and newer interpreters.

_SEPARATORS: Final = frozenset("\x1c\x1d\x1e\x1f")
"""Space to `str.isspace` and to patterns, not to numbers."""

_ADDED_IN_15: Final = (0x11F50, 0x1E4F0)
"""First of the ten digits of each script that Unicode 15 added (Kawi, Nag Mundari)."""

_ADDED_LATER: Final = (0x10D40, 0x116D0, 0x116DA, 0x11BF0, 0x11DE0, 0x16D70, 0x1CCF0, 0x1E5F1)
"""The same for 16 and 17."""


def _span(firsts: tuple[int, ...]) -> str:
    return "".join(f"{chr(first)}-{chr(first + 9)}" for first in firsts)


_OLDER_DIGITS: Final = {
    first + value: str(value)
    for first in _ADDED_IN_15
    for value in range(10)
    if unicodedata.decimal(chr(first), None) is None
}
_NEWER_DIGIT: Final = re.compile(f"[{_span(_ADDED_LATER)}]")
_NUMBERED: Final = re.compile(rf"\A\s*-?(?:(?![{_span(_ADDED_LATER)}])[\d{_span(_ADDED_IN_15)}])+\s*:\s*")
