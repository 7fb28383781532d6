"""The field's terms, in the product and in its documents: words that only this project would understand are not used.

The glossary in docs/architecture.md has what is said instead.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTEAD = {
    "whoever": "the caller, the client, a process that",
    "nobody": "no client, no process, no thread",
    "somebody": "a client, an operator, a process",
    "doors?": "listener, port",
    "strangers?": "client, foreign",
    "pulse": "watchdog",
    "upkeep": "directory renewal",
    "occupation": "in-flight work of an earlier front",
    "board": "shared state",
}
"""What is said instead of each."""

FILES = sorted(
    [
        *(file for top in ("protocol", "frontend", "executor_host", "docs") for file in (ROOT / top).rglob("*.py")),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        ROOT / "supervisor.py",
    ]
)


@pytest.mark.parametrize("word", INSTEAD)
def test_a_word_of_the_house_is_not_used(word: str) -> None:
    """In no docstring, comment, name, message or document."""
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"(?<![\w`-]){word}(?![\w`])", line, re.IGNORECASE) and "NOBODY" not in line
    ]
    assert found == [], f"say {INSTEAD[word]}"
