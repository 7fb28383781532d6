"""Shared by the tests of the nimble family."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.helpers import tiny_nimble

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": {"ask": "How large?"}, "criteria": ["none", {"n": 1}, "much"]},
}

MARKERS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
_PIECE = re.compile(r"<\|im_start\|>|<\|im_end\|>|</?think>|(?<![A-Za-z])[A-J][A-Z]\Z|.", re.DOTALL)


class Letters:
    """A tokenizer of which a token is a character, but for control tokens, and a pair of capitals at the end of a text:
    lengths can be counted by hand."""

    def __init__(self, pairs: Sequence[str] = tiny_nimble.PAIRS) -> None:
        self.pieces = [*MARKERS, *pairs]

    def encode_batch_fast(self, texts: Sequence[str], add_special_tokens: bool) -> list[Any]:
        return [SimpleNamespace(ids=[self._token(piece) for piece in _PIECE.findall(text)]) for text in texts]

    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
        return {piece: self._token(piece) for piece in (*self.pieces, "a", "A", "ab", "Ab", "ABCD", "ÄÖ")}

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {self._token(marker): SimpleNamespace(special=marker[1] == "|") for marker in MARKERS}

    def _token(self, piece: str) -> int:
        return 0x110000 + self.pieces.index(piece) if piece in self.pieces else ord(piece[0])


def letters(texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text."""
    return [one.ids for one in Letters().encode_batch_fast(texts, False)]


def spelled(tokens: Sequence[int]) -> str:
    """The text of a row."""
    return "".join(MARKERS[token - 0x110000] if token >= 0x110000 else chr(token) for token in tokens)


def write_texts(folder: Path, **fields: Any) -> Path:
    """What the front reads, for the tokenizer above."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps("letters"))
    tiny_nimble.write_schema(folder, **fields)
    return folder
