"""From a request to the one sequence of tokens that Clef reads, and where its questions and options are in it.

    prefix │ state │ schema ( field ( instruction, option, option, ... ), field, ... ) │ suffix

Every piece is tokenized by itself, without special tokens of the tokenizer's own, and the tokens are put one after
the other: the tokens of the joined text would be others. Ids of questions and options are part of what the model
reads, and all questions of a request stand in one sequence, so an answer depends on its neighbours.

Only the state may be cut, at its end, and only when the operator has asked for that.

Source: the published inference file of the model, joint_schema_model.py, for every text and order here; what it
leaves open (a state that is too long is cut in silence there, an empty span is not noticed) is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host.errors import InputRefused
from protocol.long_texts import PIECE_CHARS, EncodeAll, TooManyTokens, bounded, bounded_all, to_be_cut

PREFIX: Final = (
    "<|im_start|>system\nRead the complete state and schema. Decide every field jointly. Each answer must be exactly "
    "one of that field's allowed options.<|im_end|>\n<|im_start|>user\nSTATE:\n"
)
SCHEMA: Final = "\n\nSCHEMA FIELDS:\n"
OPTIONS: Final = "\nALLOWED OPTIONS:\n"
END: Final = "END FIELD\n"
SUFFIX: Final = "\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nJOINT SCHEMA DECISIONS:"

KINDS: Final[Mapping[str, int]] = {"noul": 0, "choice": 1, "score": 2}
"""Type of a question -> its row of the head's type embedding."""

SIDES: Final[Mapping[str, str]] = {
    "true": "The proposition is true or the answer is yes.",
    "false": "The proposition is false or the answer is no.",
}
"""The options of a noul in their order, and what describes those that the request does not."""

Tokenize: TypeAlias = EncodeAll
"""The tokens of each of several texts by itself."""

Span: TypeAlias = tuple[int, int]
"""First token and the one after the last."""


@dataclass(frozen=True, slots=True)
class Field:
    """One question in the sequence."""

    kind: int
    question: Span
    """Its instructions."""
    options: tuple[Span, ...]
    """In the order in which the model reads them."""
    order: tuple[int, ...]
    """Which of `options` is the first, the second, ... of the request."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One request as the model reads it."""

    tokens: NDArray[np.int32]
    """[length] at most the maximum."""
    fields: tuple[Field, ...]
    """In request order, which is the order in the sequence. Spans neither overlap nor are empty."""
    kept: int
    """Tokens of the state that are in the sequence."""
    total: int
    """Tokens of the state."""
    state_end: int
    """Tokens up to the end of the state, which other requests may begin with, too."""

    @property
    def request_order(self) -> NDArray[np.int64]:
        """[options of all questions] for each option in request order, its place among all in reading order."""
        starts = np.cumsum([0, *(len(field.options) for field in self.fields)])
        places = [start + place for start, field in zip(starts, self.fields, strict=False) for place in field.order]
        return np.array(places, np.int64)


def render(value: object) -> str:
    """A string as it is; anything else as compact JSON with sorted keys and Python's spelling of numbers."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def options(question: Mapping[str, Any]) -> list[tuple[str, object]]:
    """(id, description or None) of a question's options, in the order in which the model reads them.

    `true` and `false` of a noul; a choice's names sorted by code point; a score's levels by their index.
    """
    criteria = question.get("criteria")
    if question["type"] == "noul":
        sides = {**SIDES, **(criteria or {})}
        return [(side, sides[side]) for side in SIDES]
    if question["type"] == "choice":
        assert criteria is not None
        return sorted(criteria.items())
    assert criteria is not None
    return [(str(level), description) for level, description in enumerate(criteria)]


def encode(
    state: object, questions: Sequence[Mapping[str, Any]], tokenize: Tokenize, *, max_length: int, truncate: bool
) -> Encoded:
    """The sequence of a request of `{"id", "type", "instructions", "criteria"}` questions.

    Raises `InputRefused` (400, `max_tokens_exceeded`) when everything but the state has more than `max_length` tokens,
    or the whole has and `truncate` is off; and (400, `invalid_request`) for a question or an option without tokens.
    """
    pieces = [PREFIX, render(state), SCHEMA]
    marks: list[tuple[int, list[int]]] = []
    for number, question in enumerate(questions, start=1):
        pieces.append(f"\nFIELD {number}\nID: {question['id']}\nTYPE: {question['type']}\nINSTRUCTION: ")
        instructions = question.get("instructions")
        asked = len(pieces)
        pieces += [render(question["id"] if instructions in (None, "") else instructions), OPTIONS]
        allowed = []
        for place, (name, description) in enumerate(options(question), start=1):
            meaning = {"option_id": name} if description is None else {"option_id": name, "description": description}
            pieces.append(f"OPTION {place}: ")
            allowed.append(len(pieces))
            pieces += [render(meaning), "\n"]
        pieces.append(END)
        marks.append((asked, allowed))
    pieces.append(SUFFIX)
    distinct = list(dict.fromkeys(pieces))
    text = pieces[1]
    if len(text) > PIECE_CHARS:
        distinct.remove(text)
    try:
        known = dict(zip(distinct, bounded_all(tokenize, distinct, max_length), strict=True))
    except TooManyTokens as error:
        raise _schema_too_long(f"{error.least} tokens or more", max_length) from None
    if len(text) > PIECE_CHARS:
        try:
            read = to_be_cut if truncate else bounded
            known[text] = read(lambda piece: tokenize([piece])[0], text, max_length)
        except TooManyTokens as error:
            fixed = sum([len(known[piece]) for piece in pieces if piece != text])
            raise _state_too_long(f"{error.least} tokens or more", fixed, max_length) from None
    parts = [known[piece] for piece in pieces]
    total = len(parts[1])
    fixed = sum(map(len, parts)) - total
    if fixed > max_length:
        raise _schema_too_long(f"{fixed} tokens", max_length)
    if total > max_length - fixed and not truncate:
        raise _state_too_long(f"{total} tokens", fixed, max_length)
    parts[1] = parts[1][: max_length - fixed]
    ends = np.cumsum([len(part) for part in parts]).tolist()

    def span(piece: int, where: str, index: int) -> Span:
        if not parts[piece]:
            message = f"{where} of question number {index + 1} has no tokens; the model needs 1 or more"
            raise InputRefused(400, "invalid_request", ("questions", index), message)
        return ends[piece - 1], ends[piece]

    fields = tuple(
        Field(
            KINDS[question["type"]],
            span(asked, "the text", index),
            tuple([span(piece, "an option", index) for piece in allowed]),
            _order(question, len(allowed)),
        )
        for index, (question, (asked, allowed)) in enumerate(zip(questions, marks, strict=True))
    )
    tokens = np.fromiter((token for part in parts for token in part), np.int32, count=ends[-1])
    return Encoded(tokens, fields, len(parts[1]), total, ends[1])


def _schema_too_long(size: str, most: int) -> InputRefused:
    message = f"schema requires {size} before state; maximum is {most}"
    return InputRefused(400, "max_tokens_exceeded", ("questions",), message)


def _state_too_long(size: str, fixed: int, most: int) -> InputRefused:
    message = (
        f"state has {size}, and {most - fixed} are left beside the {fixed} of the schema; maximum is {most}: shorten"
        " it, or have the model configured with truncate or a higher max_length"
    )
    return InputRefused(400, "max_tokens_exceeded", ("state",), message)


def _order(question: Mapping[str, Any], count: int) -> tuple[int, ...]:
    if question["type"] != "choice":
        return tuple(range(count))
    places = {name: place for place, name in enumerate(sorted(question["criteria"]))}
    return tuple([places[name] for name in question["criteria"]])
