"""Texts that are longer than a model reads, without a tokenizer that sees all of them at once.

A tokenizer takes up to a kilobyte of memory for a character of hostile text, and lets go of nothing before its end; a
body may have millions. So a long text is encoded piece by piece: it is refused as soon as its pieces have more tokens
than the model reads, and a text that is to be cut is never held whole.

    text ──▶ up to `PIECE_CHARS`: encoded as it is
       └───▶ longer: its pieces ──▶ more tokens than may be ──▶ `TooManyTokens`, or their tokens where it is cut
                                └─▶ not more ──▶ encoded as it is

A piece ends before a blank between two words, where no tokenizer of ours joins what stands on the two sides: tokens of
the pieces are those of the text. In a word of more than `PIECE_CHARS / 2` characters it ends anywhere: there the count
may be off by some tokens, and a limit is only held to be passed by more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

PIECE_CHARS: Final = 1 << 16
"""A twentieth of a second of a tokenizer's time."""

SEAM_TOKENS: Final = 64
"""By how many tokens a word that is cut in two may seem longer than it is. Merges reach over a few characters."""

Encode = Callable[[str], list[int]]
EncodeAll = Callable[[Sequence[str]], list[list[int]]]


class TooManyTokens(Exception):
    """A text has more tokens than it may have."""

    def __init__(self, least: int, at: int = 0) -> None:
        """`least`: that it has so many, and probably more. `at`: which of several texts."""
        super().__init__(f"text {at} has {least} tokens or more")
        self.least = least
        self.at = at


def pieces(text: str) -> Iterator[str]:
    """The parts of a text one after the other, of at most `PIECE_CHARS` characters each."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            end = _between_words(text, end - PIECE_CHARS // 2, end) or end
        yield text[start:end]
        start = end


def bounded(encode: Encode, text: str, most: int) -> list[int]:
    """The tokens of a text that has at most `most` of them. Raises `TooManyTokens` for a text of more than
    `PIECE_CHARS` characters that has more; a shorter one is encoded, and counted by the caller."""
    if len(text) > PIECE_CHARS:
        total = 0
        for seams, piece in enumerate(pieces(text)):
            total += len(encode(piece))
            if total - seams * SEAM_TOKENS > most:
                raise TooManyTokens(total - seams * SEAM_TOKENS)
    return encode(text)


def bounded_all(encode: EncodeAll, texts: Sequence[str], most: int) -> list[list[int]]:
    """As `bounded`, of each of several texts; `TooManyTokens.at` says which one was too long."""
    for at, text in enumerate(texts):
        if len(text) > PIECE_CHARS:
            try:
                bounded(lambda piece: encode([piece])[0], text, most)
            except TooManyTokens as error:
                raise TooManyTokens(error.least, at) from None
    return encode(texts)


def to_be_cut(encode: Encode, text: str, most: int) -> list[int]:
    """The tokens of a text of which only `most` are going to be read, at its beginning or at its end."""
    if len(text) > PIECE_CHARS:
        found: list[int] = []
        seams = -1
        for piece in pieces(text):
            found += encode(piece)
            seams += 1
        if len(found) - seams * SEAM_TOKENS > most:
            return found
    return encode(text)


def _between_words(text: str, start: int, end: int) -> int:
    """The last place from `start` to `end` of a blank that stands between two letters or digits; 0 for none."""
    while (at := text.rfind(" ", start, end)) > 0:
        if text[at - 1].isalnum() and text[at + 1 : at + 2].isalnum():
            return at
        end = at
    return 0
