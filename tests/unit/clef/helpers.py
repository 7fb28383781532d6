"""Shared by the tests of the clef family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from executor_host.executors.clef.encoding import Encoded, Tokenize, encode
from protocol.payloads import TextRequest

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
"""The published vectors of the family."""

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"login": None, "billing": "a charge"}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": None, "criteria": ["none", {"n": 1}, "much"]},
}
STATE: dict[str, Any] = {"text": "charged twice", "items": [1, 2.0]}


def bytes_of(texts: Sequence[str]) -> list[list[int]]:
    """One token per byte of UTF-8: spans can be counted by hand."""
    return [list(text.encode()) for text in texts]


def listed(questions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Questions as the host gets them: in a list, each with its id and every field."""
    return [{"instructions": None, "criteria": None, **fields, "id": name} for name, fields in questions.items()]


def encoded(
    request: Mapping[str, Any], tokenize: Tokenize = bytes_of, max_length: int = 16_384, *, truncate: bool = False
) -> Encoded:
    """A request of the family's own dialect as the model reads it."""
    questions = listed(request["questions"])
    return encode(request["state"], questions, tokenize, max_length=max_length, truncate=truncate)


def request(questions: Mapping[str, Any] = QUESTIONS, state: object = STATE) -> TextRequest:
    """A request as it arrives in the host."""
    return TextRequest(json.dumps({"state": state, "questions": listed(questions)}).encode())
