"""From a question's JSON to the texts that a Laya model reads: head, options, state.

    [CLS] <type> question: <instructions> [SEP] [MASK] <option> [MASK] <option> ... [SEP] <state> [SEP]
          `------------ head -----------'

    choice  an option is its name, with ": " and the description where there is one (0 and false are descriptions)
    score   `level <i>: <level>`, counted from 0
    noul    the false side, then the true one; a side without a description gets a sentence of the model's own

Whatever is not a string is JSON with non-ASCII characters as they are and the keys in the order they were sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from frontend.families.refusal import Refused
from frontend.requests.questions import printable

LABELS: Final[Mapping[str, str]] = {"false": "false", "true": "true"}
DESCRIPTIONS: Final[Mapping[str, str]] = {
    "false": "no, the statement does not hold",
    "true": "yes, the statement holds",
}
"""What a noul's sides are called, and what they say when the question does not."""

SIDES: Final = ("false", "true")
"""In the order of a noul's options."""

Kind = Literal["choice", "score", "noul"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One question as texts. Its id goes into messages and answers, never into a row."""

    id: str
    kind: Kind
    head: str
    options: tuple[str, ...]
    """Option texts in the order of the markers; at least one."""

    names: tuple[str, ...]
    """What an answer calls each option: option names, level indexes, or "false" and "true"."""

    legend: tuple[Any, ...] = ()
    """The levels of a score as they were sent; empty for the others."""


def json_text(value: object) -> str:
    """A string as it is, anything else as Python's default JSON with non-ASCII characters unescaped."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def for_tokens(text: str, mask: str) -> str:
    """`text` as the tokenizer gets it: nothing a client writes is a marker, whose text is `mask`."""
    return text.replace(mask, " ")


def question(name: str, fields: object) -> Rendered:
    """The texts of one question of the family's own grammar. Raises `Refused`, whose place begins with `name`.

    Criteria of a choice may be a list of names; criteria of a noul may spell its sides in any case, and `labels`
    give them other names for the model. Unknown fields mean nothing.
    """
    said = f'question "{printable(name)}"'
    if not isinstance(fields, dict):
        raise Refused(f"{said}: the definition is an object", (name,))
    kind, criteria = fields.get("type"), fields.get("criteria")
    if kind not in ("choice", "score", "noul"):
        raise Refused(f"{said}: the type is choice, noul or score", (name, "type"))
    if "instructions" not in fields:
        raise Refused(f"{said}: there are no instructions", (name, "instructions"))
    if "labels" in fields and kind != "noul":
        raise Refused(f"{said}: only a noul has labels", (name, "labels"))
    head = f"{kind} question: {json_text(fields['instructions'])}"
    if kind == "choice":
        described = _choice(said, name, criteria)
        options = tuple([_option(option, description) for option, description in described.items()])
        return Rendered(name, "choice", head, options, tuple(described))
    if kind == "score":
        if not isinstance(criteria, list) or not criteria:
            raise Refused(f"{said}: the criteria of a score are a list of one level or more", (name, "criteria"))
        levels = tuple([f"level {index}: {json_text(level)}" for index, level in enumerate(criteria)])
        names = tuple([str(index) for index in range(len(criteria))])
        return Rendered(name, "score", head, levels, names, tuple(criteria))
    sides = _noul(said, name, criteria)
    labels = _labels(said, name, fields["labels"]) if "labels" in fields else LABELS
    options = tuple(
        [
            f"{labels[side]}: {json_text(sides[side]) if _described(sides.get(side)) else DESCRIPTIONS[side]}"
            for side in SIDES
        ]
    )
    return Rendered(name, "noul", head, options, SIDES)


def _described(description: object) -> bool:
    return not (description is None or description == "")


def _option(name: str, description: object) -> str:
    return f"{name}: {json_text(description)}" if _described(description) else name


def _choice(said: str, name: str, criteria: object) -> dict[str, Any]:
    if isinstance(criteria, list) and all(isinstance(option, str) for option in criteria):
        criteria = dict.fromkeys(criteria)
    if not isinstance(criteria, dict) or not criteria:
        message = f"{said}: the criteria of a choice are an object of options, or a list of their names; at least one"
        raise Refused(message, (name, "criteria"))
    return criteria


def _noul(said: str, name: str, criteria: object) -> dict[str, Any]:
    if criteria is None:
        return {}
    sides = {key.lower(): value for key, value in criteria.items()} if isinstance(criteria, dict) else {"": None}
    if not sides.keys() <= LABELS.keys():
        raise Refused(f"{said}: the criteria of a noul are an object of true and false", (name, "criteria"))
    return sides


def _labels(said: str, name: str, labels: object) -> Mapping[str, str]:
    if labels is None:
        return LABELS
    if isinstance(labels, dict) and labels.keys() == LABELS.keys():
        texts = {side: label.strip() for side, label in labels.items() if isinstance(label, str)}
        if len(texts) == len(set(texts.values())) == len(SIDES) and all(texts.values()):
            return texts
    message = f"{said}: the labels of a noul are two different texts, not blank, for true and false"
    raise Refused(message, (name, "labels"))
