"""Shared by the tests of the decider family's front half."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from frontend.families.decider.rendering import Rendered
from frontend.families.decider.rows import row_texts
from frontend.families.decider.tokens import Vocabulary
from protocol.contracts.decider import Temperatures, label_names, read_config
from protocol.payloads import RowsRequest

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
"""The published vectors of the family."""

RELEASED: dict[str, Any] = {
    "version": "2b-v11",
    "layout": "plain",
    "max_options": 255,
    "max_state_tokens": 32768,
    "isolated_levels": True,
    "neutralize_none": False,
    "temperature": 1.0,
    "temperature_by_type": {"choice": 1.164, "noul": 1.624, "score": 1.124},
}
TEMPERATURES: Temperatures = read_config(RELEASED)


def rows_of(payload: RowsRequest) -> list[list[int]]:
    """The rows of a payload, one list of tokens each."""
    ends = [0, *accumulate(payload.lengths.tolist())]
    return [payload.tokens[start:end].tolist() for start, end in pairwise(ends)]


def texts_of(questions: Iterable[Rendered]) -> list[tuple[str, tuple[str, ...]]]:
    """(question text, option texts) of every row, in order."""
    return [row for question in questions for row in row_texts(question)]


def letters() -> Vocabulary:
    """A vocabulary of one token per character, and of one per label: lengths can be counted by hand."""
    labels = label_names()
    numbers = {name: 0x110000 + index for index, name in enumerate(labels)}
    return Vocabulary.of(lambda text: [numbers[text]] if text in numbers else [ord(letter) for letter in text])
