"""Shared by the tests of the kev family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frontend.families.kev import grammar
from frontend.families.kev.rows import Compiled, compile_rows
from protocol.contracts.kev import DELIMITERS, Delimiters

MARKS = Delimiters(state=1, question=2, option=3, option_end=4, decide=5)

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": {"ask": "How large?"}, "criteria": ["none", {"n": 1}, "much"]},
}


def letters(texts: Sequence[str]) -> list[list[int]]:
    """One token per character, and one per delimiter alone: lengths can be counted by hand."""
    return [[DELIMITERS.index(text) + 1] if text in DELIMITERS else [ord(one) for one in text] for text in texts]


def compiled(state: Any, questions: Any = None, *, max_length: int = 8192) -> Compiled:
    """The rows of questions in the family's grammar, one token per character."""
    asked = grammar.parse({"state": state, "questions": QUESTIONS if questions is None else questions})
    return compile_rows(asked.state, asked.questions, letters, MARKS, max_length)


def spelled(made: Compiled) -> list[str]:
    """Every row as text, the delimiters as the digits 1 to 5."""
    rows = zip(made.payload.tokens, made.payload.lengths, strict=True)
    return ["".join(str(token) if token < 6 else chr(token) for token in row[:length]) for row, length in rows]
