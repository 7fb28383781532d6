"""The requests that a Laya host makes of itself before it is ready: five shapes, each twice.

Short, middle and long states under one question, one question of each type together, and two of each: what the
family's own worker prepares its device with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from executor_host import checkpoints
from protocol.contracts.laya import Special
from protocol.payloads import MarkedRowsRequest

TIMES: Final = 2
"""The first time of a shape is the slow one; the second shows that it is over."""

WORD: Final = "refund"
CHOICE: Final = (
    0,
    "choice question: Which team should handle this?",
    ("billing: Charges and refunds", "technical: Software problems", "other: Anything else"),
)
SCORE: Final = (1, "score question: How urgent is it?", ("level 0: Low", "level 1: Medium", "level 2: High"))
NOUL: Final = (
    2,
    "noul question: Does the customer ask for a refund?",
    ("false: no, the statement does not hold", "true: yes, the statement holds"),
)
SHAPES: Final = (
    (10, (CHOICE,)),
    (150, (CHOICE,)),
    (400, (CHOICE,)),
    (10, (CHOICE, SCORE, NOUL)),
    (10, (CHOICE, SCORE, NOUL, CHOICE, SCORE, NOUL)),
)
"""(words of the state, questions)"""


def requests(tokenizer: Path, special: Special, most: int) -> Iterator[MarkedRowsRequest]:
    """Every request once, tokenized with a `tokenizer.json`. What is beyond a row of `most` tokens is cut off the
    state."""
    encoder = checkpoints.tokenizer(tokenizer)
    for words, questions in SHAPES:
        state = encoder.encode(" ".join([WORD] * words), add_special_tokens=False).ids
        yield _request(encoder, state, questions, special, most)


def _request(
    encoder: Any,
    state: list[int],
    questions: Sequence[tuple[int, str, tuple[str, ...]]],
    special: Special,
    most: int,
) -> MarkedRowsRequest:
    rows: list[list[int]] = []
    markers: list[int] = []
    for _, head, options in questions:
        row = [special.begin, *encoder.encode(head, add_special_tokens=False).ids, special.end]
        for option in options:
            markers.append(len(row))
            row += [special.marker, *encoder.encode(f" {option}", add_special_tokens=False).ids]
        row.append(special.end)
        rows.append([*row, *state[: max(0, most - len(row) - 1)], special.end][:most])
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
    return MarkedRowsRequest(
        tokens=tokens,
        lengths=np.array([len(row) for row in rows], np.int32),
        kinds=np.array([kind for kind, _, _ in questions], np.int32),
        markers=np.array(markers, np.int32),
        counts=np.array([len(options) for _, _, options in questions], np.int32),
    )
