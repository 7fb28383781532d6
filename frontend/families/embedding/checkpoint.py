"""What the front needs of a sentence encoder's folder: its tokenizer, and how many tokens a text may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontend.families import checkpoints, measuring
from protocol.contracts.embedding import FRONT_FILES, SENTENCE, TOKENIZER, text_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text as the model reads it."""

    ids: list[int]
    """Special tokens included."""
    total: int
    """How many there were before a cut."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of a folder. Shared by all requests, and nothing of it ever changes."""

    tokenizer: Tokenizer
    lower: bool
    """Whether texts are put into lower case first."""

    text_tokens: int
    """Of the longest text, special tokens included."""

    text_chars: int
    """A longer text is longer than `text_tokens`, whatever is in it."""

    sha256: Mapping[str, str]
    """Hexadecimal, by file name, of everything that was read."""

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """The tokens of each text, cut to `text_tokens` with the special tokens kept. Safe in several threads."""
        prepared = [text.lower() for text in texts] if self.lower else list(texts)
        encoded = self.tokenizer.encode_batch_fast(prepared)
        return [
            Encoded(one.ids, len(one.ids)) if len(one.ids) <= self.text_tokens else self._cut(text, len(one.ids))
            for text, one in zip(prepared, encoded, strict=True)
        ]

    def _cut(self, text: str, total: int) -> Encoded:
        (body,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        body.truncate(max(0, self.text_tokens - self.tokenizer.num_special_tokens_to_add(False)))
        return Encoded(self.tokenizer.post_process(body).ids, total)


def load(path: str | None, max_tokens: int | None = None) -> Checkpoint:
    """The checkpoint in the folder `path`; `max_tokens` replaces its own limit.

    Raises `AssetError`. The same object while the files stay the same.
    """
    folder = checkpoints.folder(path)
    files = tuple([folder / name for name in FRONT_FILES if name == TOKENIZER or (folder / name).is_file()])
    return _load(files, max_tokens, checkpoints.signature(files))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(files: tuple[Path, ...], max_tokens: int | None, signature: checkpoints.Signature) -> Checkpoint:
    sums = {file.name: checkpoints.digest(file) for file in files}
    sentence: Mapping[str, Any] = {}
    if SENTENCE in sums:
        sentence, sums[SENTENCE] = checkpoints.document(files[1])
    with checkpoints.agreed():
        longest = text_tokens(sentence, max_tokens)
    tokenizer = checkpoints.tokenizer(files[0])
    return Checkpoint(
        tokenizer=tokenizer,
        lower=sentence.get("do_lower_case") is True,
        text_tokens=longest,
        text_chars=longest * measuring.chars_per_token(tokenizer),
        sha256=sums,
    )
