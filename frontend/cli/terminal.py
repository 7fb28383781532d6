"""Text as a terminal shows it: what must not move the cursor, and how many cells it takes."""

from __future__ import annotations

import json
import unicodedata


def visible(text: str) -> str:
    """Control characters escaped: what a server or an option name says must not move the cursor."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def width(text: str) -> int:
    """Cells that `text` takes: two for wide East Asian characters and emoji, none for marks on another character."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def short(value: object, limit: int = 40) -> str:
    """`value` in at most `limit` cells: a text, or anything else as JSON. What is left out is an ellipsis."""
    text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if width(text) <= limit:
        return text
    kept, used = [], 1
    for character in text:
        used += _cells(character)
        if used > limit:
            break
        kept.append(character)
    return "".join(kept) + "…"


def padded(text: str, cells: int) -> str:
    """`text` with spaces behind it, so that it takes `cells` cells."""
    return text + " " * (cells - width(text))
