"""Shared by the tests of the cua-s1 family's front half."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.requests.questions import Choice

SIZE = 8
"""Values of a hidden state."""

FIXTURE_STATE = (
    'Visual-region-derived observation for capture "capture-fixture-1":\n'
    "\"submit-text\": text 'Submit' at (300,240,100,40) confidence=0.96 interactive=true"
)
FIXTURE = Choice(
    "next",
    "Submit the verified form.",
    (
        ("submit-form", "Submit using the unique validated visual region."),
        ("reobserve", "Discard this decision set and obtain a fresh observation."),
        ("abstain", "Stop without acting if no supplied action is safe."),
    ),
)
"""The published prompt fixture."""


def rows(size: int = SIZE) -> NDArray[np.float32]:
    """Letter rows: letter k looks at value k, modulo the size, k + 1 times."""
    made = np.zeros((26, size), np.float32)
    for letter in range(26):
        made[letter, letter % size] = letter + 1
    return made


def letters_of(table: NDArray[np.float32]) -> dict[str, Any]:
    """As a host hands them over."""
    return {"ids": list(range(32, 58)), "rows": table, "sha256": hashlib.sha256(table.tobytes()).hexdigest()}


def facts_of(folder: Path, table: NDArray[np.float32] | None = None) -> dict[str, Any]:
    """What a host with this folder reports, as far as the front reads it."""
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    return {
        "identity": "tiny",
        "files": {"tokenizer.json": digest},
        "letters": letters_of(rows() if table is None else table),
    }


def hidden(*values: float) -> dict[str, Any]:
    """A unit's output."""
    state = np.zeros(SIZE, np.float32)
    state[: len(values)] = values
    return {"hidden": state, "processed": 1, "statistics": {}}


def choice(*options: str, instructions: Any = "Which?", **described: Any) -> dict[str, Any]:
    """A question as JSON."""
    return {"type": "choice", "instructions": instructions, "criteria": dict.fromkeys(options) | described}


def native(questions: dict[str, Any], state: Any = "A dialog.", **fields: Any) -> dict[str, Any]:
    """A body of the family's own dialect."""
    return {"model": "cua-s1-4b-0.2", "state": state, "questions": questions, **fields}
