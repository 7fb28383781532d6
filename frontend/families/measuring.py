"""Text by its length, before a tokenizer sees it.

A tokenizer takes up to a second and a hundred bytes of memory per character of hostile text, and a body may have
millions. How many characters the tokens that a model reads can spell follows from its vocabulary; a longer text is too
long whatever is in it, and is refused, or cut, without being tokenized.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN_WORD_CHARS: Final = 100
"""A word up to this length may be one unknown token (`max_input_chars_per_word` of the published word piece models)."""

CHUNK_CHARS: Final = 1 << 16
"""Of a text that is looked at in one call, which keeps the interpreter lock."""

_BLANKS = re.compile(r"[ \t\r\n]+")


def chars_per_token(tokenizer: Tokenizer) -> int:
    """The most characters that one token spells. Byte-level vocabularies count bytes, of which there are not fewer."""
    return max(UNKNOWN_WORD_CHARS, *map(len, tokenizer.get_vocab()))


def shortened(text: str, most: int) -> str:
    """`text` as it is, up to `most` characters; a longer one with its runs of blanks as one blank each, as far as to
    one character beyond `most`.

    Word piece tokenizers read a run of blanks as one, so what is still longer is too long, and its beginning is that of
    the whole.
    """
    if len(text) <= most:
        return text
    kept: list[str] = []
    size = 0
    for start in range(0, len(text), CHUNK_CHARS):
        piece = _BLANKS.sub(" ", text[start : start + CHUNK_CHARS])
        if kept and kept[-1].endswith(" ") and piece.startswith(" "):
            piece = piece[1:]
        kept.append(piece)
        size += len(piece)
        if size > most:
            break
    return "".join(kept)[: most + 1]
