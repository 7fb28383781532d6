"""From a question's JSON to the prompts that an Open-Jev model reads: one independent prompt per candidate.

    Context:\\n<state>\\n\\n  Question: <instructions>\\nProposed answer: <option>\\nIs this proposed ...
    `---- the same ----'  `------------------------- a candidate ----------------------------'

A choice has a candidate per option, a score one per level, a noul exactly one. Neither question ids nor other
candidates are in a prompt. Everything that is not a string is JSON with the keys of every object *sorted*, which
is this family's own: no other family's renderer will do.

The messages are those of the family's own worker; the System One profile shows them, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from frontend.families.refusal import Refused

OPTIONS: Final = (1, 255)
"""Options of a choice."""

LEVELS: Final = (2, 10)
"""Levels of a score."""

CONTEXT: Final = "Context:\n{state}\n\n"
PROPOSED: Final = "Question: {text}\nProposed answer: {option}\nIs this proposed answer correct? Answer Yes or No."
NOUL: Final = "Question: {text}\nIs the answer to this question yes? Answer Yes or No."
SIDES: Final = "{text}\nYes means: {yes}\nNo means: {no}"
"""The text of a noul whose two answers are described."""

NOT_TEXT: Final = "instructions and descriptions must be text, an object, or an array"

Kind = Literal["choice", "noul", "score"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One question as texts. Its id goes into messages and answers, never into a prompt.

    Prompts are made one at a time: the instructions are in each, and a body of 8 MiB has room for 255 options
    beside instructions of 8 MiB.
    """

    id: str
    kind: Kind
    text: str
    """The instructions; of a noul with what its answers mean."""

    options: tuple[str, ...]
    """Of a choice or a score, in request order; empty for a noul."""

    names: tuple[str, ...]
    """What an answer calls each probability: option names, "false" and "true", or level indexes."""

    legend: tuple[Any, ...] = ()
    """The levels of a score as they were sent; empty for the others."""

    @property
    def count(self) -> int:
        """How many candidates there are, each with a prompt of its own."""
        return len(self.options) or 1

    def candidate(self, index: int) -> str:
        """What follows the state in the prompt of one candidate."""
        if self.kind == "noul":
            return NOUL.format(text=self.text)
        return PROPOSED.format(text=self.text, option=self.options[index])


def text(value: object) -> str:
    """A string as it is, an object or an array as JSON with sorted keys. Raises `Refused` for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    raise Refused(NOT_TEXT)


def context(state: object) -> str:
    """What every prompt of a request begins with. The state is a string, an object or an array."""
    return CONTEXT.format(state=text(state))


def prompts(state: object, question: Rendered) -> list[str]:
    """The whole prompts of a question, without the chat around them."""
    start = context(state)
    return [start + question.candidate(index) for index in range(question.count)]


def question(name: str, fields: Mapping[str, Any]) -> Rendered:
    """The prompts of one question. Raises `Refused`, whose place begins with `name`.

    Instructions that are missing or null are refused, and so are noul criteria that do not describe both answers.
    Unknown fields mean nothing.
    """
    asked = _described(fields.get("instructions"), (name, "instructions"))
    kind, criteria = fields.get("type"), fields.get("criteria")
    if kind == "choice":
        return _choice(name, asked, criteria)
    if kind == "score":
        return _score(name, asked, criteria)
    if kind == "noul":
        return _noul(name, asked, criteria)
    raise Refused("question type must be choice, score, or noul", (name, "type"))


def _described(value: object, place: tuple[str | int, ...]) -> str:
    try:
        return text(value)
    except Refused as error:
        raise Refused(error.message, place) from None


def _choice(name: str, asked: str, criteria: object) -> Rendered:
    place = (name, "criteria")
    if not isinstance(criteria, dict):
        raise Refused("Choice requires an object", place)
    least, most = OPTIONS
    if not least <= len(criteria) <= most:
        raise Refused(f"Choice requires between {least} and {most} candidates", place)
    options = tuple(
        option if description is None else f"{option}: {_described(description, (*place, option))}"
        for option, description in criteria.items()
    )
    return Rendered(name, "choice", asked, options, tuple(criteria))


def _score(name: str, asked: str, criteria: object) -> Rendered:
    place = (name, "criteria")
    if not isinstance(criteria, list):
        raise Refused("Score requires an array", place)
    least, most = LEVELS
    if not least <= len(criteria) <= most:
        raise Refused(f"Score requires {least} to {most} descriptive levels", place)
    levels = tuple([_described(level, (*place, index)) for index, level in enumerate(criteria)])
    names = tuple([str(index) for index in range(len(levels))])
    return Rendered(name, "score", asked, levels, names, tuple(criteria))


def _noul(name: str, asked: str, criteria: object) -> Rendered:
    if criteria is not None:
        place = (name, "criteria")
        if not isinstance(criteria, dict) or criteria.keys() != {"true", "false"}:
            raise Refused("Noul criteria must contain true and false descriptions", place)
        yes, no = (_described(criteria[side], (*place, side)) for side in ("true", "false"))
        asked = SIDES.format(text=asked, yes=yes, no=no)
    return Rendered(name, "noul", asked, (), ("false", "true"))
