"""Every published vector of the family: rows to the token, answers to the digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend.families.laya import grammar, native
from frontend.families.laya.rows import compile_rows
from tests.unit.laya.helpers import ENGLISH, GOLDEN, SPECIAL, TEMPERATURES, compiled, logits, recorded, rendered


@pytest.mark.parametrize("vector", GOLDEN["rows"], ids=lambda vector: vector["name"])
def test_published_rows(vector: dict[str, Any]) -> None:
    """Tokens, markers, types, the shape of the batch and both kinds of padding, and usage."""
    asked = grammar.parse({"state": vector["state"], "questions": vector["questions"]})
    encode = recorded(vector["state"], asked.questions, vector["rows"])
    made = compile_rows(asked.state, asked.questions, encode, SPECIAL, ENGLISH, truncate=False)
    payload = made.payload
    assert payload is not None
    lengths = [len(row) for row in vector["rows"]]
    assert payload.tokens.shape == (vector["count"], vector["width"])
    added = [0] * (vector["count"] - len(lengths))
    assert payload.lengths.tolist() == [*lengths, *added]
    assert payload.kinds.tolist() == [*vector["kinds"], *added]
    assert payload.markers.tolist() == [marker for markers in vector["markers"] for marker in markers]
    longest = max(lengths)
    for row, expected in zip(payload.tokens.tolist(), vector["rows"], strict=False):
        padding = [SPECIAL.padding] * (longest - len(expected))
        assert row == [*expected, *padding, *[0] * (vector["width"] - longest)]
    assert not payload.tokens[len(lengths) :].any()
    assert made.tokens == sum(lengths)
    assert made.whole_tokens == made.tokens


def test_published_row_of_forty_options() -> None:
    """With long descriptions every option keeps 4 tokens, its marker included, and the head all of its 9."""
    questions = {"q": {"type": "choice", "instructions": "x", "criteria": {str(i): "d" * 100 for i in range(40)}}}

    def encode(texts: Any) -> list[list[int]]:
        return [[1] * (6 if text == "s" else 9 if text.startswith("choice") else 100) for text in texts]

    payload = compiled("s", questions, encode=encode).payload
    assert payload is not None
    assert payload.markers.tolist() == list(range(11, 168, 4))
    assert payload.lengths.tolist() == [179]
    assert payload.tokens.shape == (1, 192)


def test_published_request_without_questions() -> None:
    """No rows, no tokens, nothing for the host; nothing is tokenized."""

    def encode(texts: Any) -> list[list[int]]:
        raise AssertionError("there is nothing to tokenize")

    made = compiled("s", {}, encode=encode)
    assert (made.payload, made.tokens, made.whole_tokens) == (None, 0, 0)


@pytest.mark.parametrize("vector", GOLDEN["answers"], ids=lambda vector: vector["name"])
def test_published_answers(vector: dict[str, Any]) -> None:
    """Every field of the answer, its name and its place, with the released temperatures and with others."""
    question = rendered(vector["question"])
    found = logits(vector["logits"], vector["action"])
    answer = native.answers([question], [found], TEMPERATURES[vector["config"]])["q"]
    assert answer == vector["answer"]
    assert list(answer) == list(vector["answer"])


def test_the_probe_tells_float32_from_float64() -> None:
    """In float64 the first probability would be printed as 0.01."""
    (probe,) = [vector for vector in GOLDEN["answers"] if vector["name"] == "float32 probe"]
    wide = np.exp(np.array(probe["logits"], np.float32).astype(np.float64))
    assert round(float(wide[0] / wide.sum()), 4) == 0.01
    assert probe["answer"]["probabilities"]["o0"] == 0.0101
