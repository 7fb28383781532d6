"""From questions to the schema that a Nimble model reads: one JSON object of the state and of every question.

    {"context": state, "schema": [{"name": id, "description": instructions, "choices": [
        {"code": "A", "value": name, "description": text}, ...]}, ...]}

    choice  the values are the options' names
    score   "0", "1", ... with the levels as descriptions
    noul    false and true, bare and in this order

Whatever is not a string is its JSON, inside a JSON string. `<` and `>` are escaped everywhere, so that nothing a client
writes is a control token. All questions stand in the prompt of each, ids included: the model was trained so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.nimble import MAX_CODES

SIDES: Final[Mapping[str, str]] = {"false": "No", "true": "Yes"}
"""A noul's sides in their order, and what describes one that has no description."""

Kind = Literal["choice", "score", "noul"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One question as it stands in the schema."""

    id: str
    kind: Kind
    description: str
    values: tuple[str | bool, ...]
    texts: tuple[str | None, ...]
    """What describes each value; None: nothing does."""
    names: tuple[str, ...]
    """What an answer calls each value: option names, level indexes, or "false" and "true"."""

    def field(self, codes: Sequence[str]) -> dict[str, Any]:
        """The question's object in the schema."""
        choices = []
        for code, value, text in zip(codes, self.values, self.texts, strict=False):
            choice: dict[str, Any] = {"code": code, "value": value}
            if text is not None:
                choice["description"] = text
            choices.append(choice)
        return {"name": self.id, "description": self.description, "choices": choices}


def safe_json(value: object) -> str:
    """JSON without angle brackets, which control tokens have."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e")


def text(value: object) -> str:
    """A string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def context(state: object) -> str:
    """The state as the model reads it. Raises `Refused` for one that is blank."""
    found = text(state)
    if not found.strip():
        raise Refused("the state is blank", ("state",))
    return found


def question(name: str, fields: Mapping[str, Any], *, fill: bool = True, most: int = MAX_CODES) -> Rendered:
    """One question of either dialect. Raises `Refused`, whose place begins with `name`.

    `fill`: whether an option without a description is described by its name, a noul's sides by Yes and No. `most`:
    options that the checkpoint has codes for. Unknown fields mean nothing.
    """
    said = f'question "{printable(name)}"'
    if not name.strip():
        raise Refused(f"{said}: the id is blank, and the model reads it", (name,))
    if fields.get("instructions") is None:
        raise Refused(f"{said}: there are no instructions", (name, "instructions"))
    description = text(fields["instructions"])
    if not description.strip():
        raise Refused(f"{said}: the instructions are blank", (name, "instructions"))
    kind, criteria = fields.get("type"), fields.get("criteria")
    place = (name, "criteria")
    if kind == "noul":
        if not (criteria is None or isinstance(criteria, dict)):
            raise Refused(f"{said}: the criteria of a noul are an object of true and false", place)
        texts = tuple([_text((criteria or {}).get(side), called if fill else None) for side, called in SIDES.items()])
        return Rendered(name, "noul", description, (False, True), texts, tuple(SIDES))
    if kind == "choice":
        if not isinstance(criteria, dict) or not 1 <= len(criteria) <= most:
            raise Refused(f"{said}: the criteria of a choice are an object of 1 to {most} options", place)
        for option in criteria:
            if not option.strip():
                raise Refused(f"{said}: the name of an option is blank", (*place, option))
        options = tuple(criteria)
        texts = tuple([_text(criteria[option], option if fill else None) for option in options])
        return Rendered(name, "choice", description, options, texts, options)
    if kind == "score":
        if not isinstance(criteria, list) or not 1 <= len(criteria) <= most:
            raise Refused(f"{said}: the criteria of a score are a list of 1 to {most} levels", place)
        levels = tuple([str(index) for index in range(len(criteria))])
        return Rendered(name, "score", description, levels, tuple([text(level) for level in criteria]), levels)
    raise Refused(f"{said}: the type is choice, noul or score", (name, "type"))


def _text(value: object, otherwise: str | None) -> str | None:
    return otherwise if value is None else text(value)
