"""The word pieces of a sparrow model: the package's ids, for a fraction of its time.

The package normalises and splits character by character, which is two thirds of a small request. Its result for a text
is that of the text's parts between spaces, tabs and line ends, one after the other, since none of its steps looks
across one; so what a short part has been read as is remembered. A part that was not met before and is ASCII, which
nearly all are, is split by one expression; for any other one the package's own code is asked. The tests compare both
over the whole vocabulary and over generated text.

A part above `MAX_PART` characters is remembered by nothing, the package's own memory of words included, in which long
words would stay for ever.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, Final

MAX_PART: Final = 100
"""Characters. A longer word is one unknown token to the model, whatever it is."""

MAX_PARTS: Final = 65_536
"""Remembered, as many as the package remembers words: with their ids some 15 MiB."""

_DROPPED: Final = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}
"""Control characters of ASCII, which are left out, not split at."""

_WORDS: Final = re.compile(r"[a-z0-9]+|[^a-z0-9]")


class WordPieces:
    """Ids of texts. `inner` is the package's tokenizer, which knows the vocabulary."""

    __slots__ = ("_inner", "_parts")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._parts: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<WordPieces remembered={len(self._parts)}>"

    def ids(self, text: str) -> list[int]:
        """All word pieces of `text`, no special tokens among them."""
        found: list[int] = []
        parts = self._parts
        for part in text.replace("\n", " ").replace("\t", " ").replace("\r", " ").split(" "):
            known = parts.get(part)
            if known is None:
                known = self._read(part)
                if len(part) <= MAX_PART:
                    parts[part] = known
                    if len(parts) > MAX_PARTS:
                        parts.popitem(last=False)
            found += known
        return found

    def encode(self, text: str, max_len: int) -> list[int]:
        """The first `max_len` of them, as the package asks its own tokenizer."""
        return self.ids(text)[:max_len]

    def _read(self, part: str) -> tuple[int, ...]:
        if part.isascii():
            words = _WORDS.findall(part.translate(_DROPPED).lower())
        else:
            words = self._inner.pretokenize(self._inner.normalize(part))
        found: list[int] = []
        for word in words:
            # Asked for directly: the package would remember a long one.
            found += self._inner._wp(word)
        return tuple(found)
