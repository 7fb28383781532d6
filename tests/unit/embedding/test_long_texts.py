"""Texts of a size that no model reads: refused, or cut, by their length, before a tokenizer sees them."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from frontend.errors import RequestTooLarge, TokensExceeded
from frontend.families import measuring
from frontend.families.embedding.processor import EmbeddingProcessor
from frontend.http.systemone import parse_request
from tests.helpers.tiny_embedding import MAX_SEQ_LENGTH

MOST = MAX_SEQ_LENGTH * measuring.UNKNOWN_WORD_CHARS

HOSTILE = {
    "base64": base64.b64encode(random.Random(1).randbytes(36_000)).decode(),
    "CJK": "統計" * 30_000,
    "punctuation": "!?;" * 16_000,
    "x -": "x -" * 16_000,
    "one letter": "a" * 48_000,
    "digits": "1234567890" * 4_800,
}

PLACES = {
    "state": lambda text: {"state": text, "questions": {"q": {"type": "noul", "instructions": "is it broken"}}},
    "option": lambda text: {
        "state": "x",
        "questions": {"q": {"type": "choice", "criteria": {"a": text, "b": "an invoice"}}},
    },
    "level": lambda text: {"state": "x", "questions": {"q": {"type": "score", "criteria": ["none", text]}}},
    "instructions": lambda text: {"state": "x", "questions": {"q": {"type": "noul", "instructions": text}}},
}


class Watched:
    """A tokenizer that knows the longest text that it was given."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.longest = 0

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.longest = max(self.longest, *map(len, texts))
        return self._real.encode_batch_fast(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def watched(texts: Path, *, truncate: bool) -> tuple[EmbeddingProcessor, Watched]:
    processor = EmbeddingProcessor({}, {"truncate": truncate}, str(texts))
    tokenizer = Watched(processor.checkpoint.tokenizer)

    processor._checkpoint = dataclasses.replace(processor.checkpoint, tokenizer=tokenizer)  # type: ignore[arg-type]
    return processor, tokenizer


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_text_beyond_what_the_model_reads_is_refused_unread(texts: Path, kind: str, place: str) -> None:
    """400 that names the place, the size and the limit, and the tokenizer has seen nothing of it."""
    processor, tokenizer = watched(texts, truncate=False)
    with pytest.raises(
        TokensExceeded, match=rf"has \d+ characters; .* at most {MAX_SEQ_LENGTH} tokens .* are {MOST} char"
    ):
        processor.prepare(parse_request(PLACES[place](HOSTILE[kind])))
    assert tokenizer.longest == 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_with_truncate_no_more_is_read_than_the_model_may_have(texts: Path, kind: str, place: str) -> None:
    """The beginning decides, as for any text that is cut."""
    processor, tokenizer = watched(texts, truncate=True)
    prepared = processor.prepare(parse_request(PLACES[place](HOSTILE[kind])))
    assert prepared.cost <= 4 * MAX_SEQ_LENGTH
    assert tokenizer.longest <= MOST


def test_blanks_do_not_count(texts: Path) -> None:
    """A text that is short but for its blanks is read as if they were one; only the length of the rest counts."""
    processor, tokenizer = watched(texts, truncate=False)
    plain = processor.prepare(parse_request(PLACES["state"]("the customer was charged twice")))
    wide = processor.prepare(
        parse_request(PLACES["state"]((" \n\t" * 700_000).join(("the customer was", "charged twice"))))
    )
    assert [list(unit.tokens) for unit in plain.units] == [list(unit.tokens) for unit in wide.units]  # type: ignore[attr-defined]
    assert tokenizer.longest <= MOST


def test_what_fits_is_not_touched() -> None:
    """Up to the limit every character stays, blanks included."""
    text = "a  b \n\n c"
    assert measuring.shortened(text, len(text)) is text
    assert measuring.shortened(text, len(text) - 1) == "a b c"
    assert measuring.shortened("x" * 100, 10) == "x" * 11
    across = " " * (measuring.CHUNK_CHARS + 5) + "a"
    assert measuring.shortened(across, 10) == " a"


def test_a_request_of_many_texts_is_refused_before_all_of_them_are_read(texts: Path) -> None:
    """As soon as what was read is above the limit."""
    processor, _ = watched(texts, truncate=False)
    many = {f"q{number}": {"type": "score", "criteria": ["the bug " * 11] * 10} for number in range(1_000)}
    with pytest.raises(RequestTooLarge, match=r"tokens in the first \d+ texts; this model reads at most"):
        processor.prepare(parse_request(json.loads(json.dumps({"state": "x", "questions": many}))))
