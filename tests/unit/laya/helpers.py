"""Shared by the tests of the laya family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from frontend.families.checkpoints import EncodeAll
from frontend.families.laya import grammar
from frontend.families.laya.finishing import Logits
from frontend.families.laya.rendering import Rendered, for_tokens, question
from frontend.families.laya.rows import Compiled, compile_rows
from protocol.contracts.laya import Config, Special, Temperatures, read_config

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
"""The published vectors of the family."""

CONFIGS: Mapping[str, Config] = {name: read_config(config) for name, config in GOLDEN["configs"].items()}
TEMPERATURES: Mapping[str, Temperatures] = {name: config.temperatures for name, config in CONFIGS.items()}
SPECIAL = Special(**GOLDEN["special"], mask="[MASK]")
ENGLISH = read_config({})

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": {"ask": "How large?"}, "criteria": ["none", {"n": 1}, "much"]},
}


def letters(texts: Sequence[str]) -> list[list[int]]:
    """One token per character: lengths can be counted by hand."""
    return [[ord(letter) for letter in text] for text in texts]


def recorded(state: str, questions: Sequence[Rendered], rows: Sequence[Sequence[int]]) -> EncodeAll:
    """A tokenizer that knows the texts of one request: their tokens are read out of the published rows."""
    known: dict[str, list[int]] = {}
    for asked, row in zip(questions, rows, strict=True):
        ends = [index for index, token in enumerate(row) if token in (SPECIAL.begin, SPECIAL.end, SPECIAL.marker)]
        parts = [list(row[start + 1 : end]) for start, end in pairwise(ends)]
        # After the last option stands nothing but the state.
        texts = [asked.head, *(f" {option}" for option in asked.options), state]
        known |= dict(
            zip([for_tokens(text, SPECIAL.mask) for text in texts], [part for part in parts if part], strict=True)
        )
    return lambda wanted: [list(known[text]) for text in wanted]


def compiled(state: Any, questions: Any, *, truncate: bool = True, encode: EncodeAll = letters) -> Compiled:
    """The rows of questions in the family's grammar, one token per character unless told otherwise."""
    asked = grammar.parse({"state": state, "questions": questions})
    return compile_rows(asked.state, asked.questions, encode, SPECIAL, ENGLISH, truncate=truncate)


def rendered(fields: Any) -> Rendered:
    """One question."""
    return question("q", fields)


def logits(options: Sequence[float], action: Sequence[float] = (0.0, 0.0)) -> Logits:
    """What the model says of one question."""
    return Logits(np.array(options, np.float32).tolist(), np.array(action, np.float32).tolist())


def output(made: Compiled, value: float = 0.0) -> dict[str, Any]:
    """What a host says that gives every option the same logit."""
    assert made.payload is not None
    rows = made.payload.rows
    return {
        "logits": np.full(len(made.payload.markers), value, np.float32),
        "counts": made.payload.counts[:rows].copy(),
        "action": np.zeros((rows, 2), np.float32),
    }
