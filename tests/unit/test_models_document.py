"""docs/models.md prints the figures of docs/models.json, which `make models` has measured."""

from __future__ import annotations

import json

from benchmarks import models


def test_the_table_is_that_of_the_figures() -> None:
    """A figure that was changed by hand, on either side, is noticed."""
    text = models.DOCUMENT.read_text(encoding="utf-8")
    measured = json.loads(models.FILE.read_text(encoding="utf-8"))
    assert models.written(text, measured) == text
    measured["sets"]["tickets"]["models"]["minilm"]["right"] += 1
    assert models.written(text, measured) != text
