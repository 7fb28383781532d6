"""With the released checkpoint's own tokenizer, when FRAMEHOST_DECIDER names its folder."""

from __future__ import annotations

import os
from typing import Any

import pytest

from frontend.families.decider import grammar
from frontend.families.decider.checkpoint import Checkpoint, load
from frontend.families.decider.rows import compile_rows
from tests.unit.decider.helpers import GOLDEN, TEMPERATURES, rows_of
from tests.unit.decider.test_golden_rows import WIDE

FOLDER = os.environ.get("FRAMEHOST_DECIDER")

pytestmark = pytest.mark.skipif(not FOLDER, reason="FRAMEHOST_DECIDER does not name the released checkpoint")

TOKENIZER = "06b9509352d2af50381ab2247e083b80d32d5c0aba91c272ca9ff729b6a0e523"
CONFIG = "6e4891f2754a1c18a10f8dadb0c04e439e7f79fab0333d56641491bd4a05e722"


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """The released one, or whatever the variable names."""
    return load(FOLDER)


def test_it_is_the_released_one(checkpoint: Checkpoint) -> None:
    """The published hashes, labels, temperatures, and what stands before a label."""
    assert checkpoint.sha256 == {"tokenizer.json": TOKENIZER, "decider_config.json": CONFIG}
    assert list(checkpoint.vocabulary.labels) == GOLDEN["label_ids"]
    assert checkpoint.vocabulary.names[-1] == "JT"
    assert checkpoint.vocabulary.opening == (198, 7)
    assert checkpoint.temperatures == TEMPERATURES


@pytest.mark.parametrize("vector", GOLDEN["rows"], ids=lambda vector: vector["name"])
def test_published_rows(checkpoint: Checkpoint, vector: dict[str, Any]) -> None:
    """Every token id of every published row."""
    asked = grammar.parse(vector.get("request", WIDE))
    made = compile_rows(asked.state, asked.questions, checkpoint.vocabulary, truncate=True)
    assert (rows_of(made.payload) if made.payload else []) == vector["rows"]
    counts = (made.state_tokens, made.input_tokens, made.processed_tokens)
    assert counts == (vector["context_tokens"], vector["input_tokens"], vector["processed_tokens"])


@pytest.mark.parametrize("repeats", [40_000, 45_000])
def test_published_cut(checkpoint: Checkpoint, repeats: int) -> None:
    """The state's first 32,768 tokens and the whole question after them."""
    asked = grammar.parse(WIDE | {"state": "hello " * repeats})
    made = compile_rows(asked.state, asked.questions, checkpoint.vocabulary, truncate=True)
    assert made.payload is not None
    assert (made.state_tokens, made.whole_state_tokens > 32_768) == (32_768, True)
    assert 32_768 < made.processed_tokens <= 36_864
