"""Shared by the tests of the open-jev family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from frontend.families.open_jev.rows import Compiled, compile_rows
from frontend.requests.questions import Choice, Noul, Question, Score
from protocol.contracts.open_jev import Chat
from protocol.payloads import RowsRequest

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
"""The published vectors of the family."""

TEMPERATURE: float = GOLDEN["temperature"]

CHAT = Chat("<", ">")

QUESTIONS: dict[str, Any] = {
    "route": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "charges", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "urgency": {"type": "score", "instructions": {"ask": "How urgent?"}, "criteria": ["low", {"n": 1}, "high"]},
}


def letters(texts: Sequence[str]) -> list[list[int]]:
    """One token per character: lengths can be counted by hand."""
    return [[ord(letter) for letter in text] for text in texts]


def compiled(state: Any, questions: Any, max_length: int = 16_384) -> Compiled:
    """The rows of questions in the family's grammar, one token per character."""
    from frontend.families.open_jev import grammar

    asked = grammar.parse({"state": state, "questions": questions}, ())
    return compile_rows(asked.state, asked.questions, letters, chat=CHAT, max_length=max_length)


def rows_of(payload: RowsRequest) -> list[list[int]]:
    """The rows of a payload, one list of tokens each."""
    ends = [0, *accumulate(payload.lengths.tolist())]
    return [payload.tokens[start:end].tolist() for start, end in pairwise(ends)]


def texts_of(payload: RowsRequest) -> list[str]:
    """The rows of a payload that `letters` has made."""
    return ["".join(map(chr, row)) for row in rows_of(payload)]


def systemone(name: str, fields: dict[str, Any]) -> Question:
    """A question of the family's grammar as the System One types hold it."""
    instructions, criteria = fields.get("instructions"), fields.get("criteria")
    if fields["type"] == "choice":
        return Choice(name, instructions, tuple(criteria.items()))
    if fields["type"] == "score":
        return Score(name, instructions, tuple(criteria))
    return Noul(name, instructions, None if criteria is None else tuple(criteria.items()))
