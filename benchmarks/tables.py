"""A table as text: in columns for a terminal, or as Markdown for the docs."""

from __future__ import annotations

Table = list[list[str]]
"""Rows of cells, all of one length. The first row is the head."""


def draw(table: Table, *, markdown: bool) -> str:
    """One line per row, and one below the head."""
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in table]
        lines.insert(1, "|---" * len(table[0]) + "|")
        return "\n".join(lines)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
