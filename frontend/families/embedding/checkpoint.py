"""What the front needs of a sentence encoder's folder: its tokenizer, and how many tokens a text may have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from frontend.families import checkpoints
from frontend.families.base import AssetError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER: Final = "tokenizer.json"
SENTENCE: Final = "sentence_bert_config.json"

MAX_TEXT_TOKENS: Final = 32_768
"""Of one text, whatever a folder or the configuration says."""


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
    if path is None:
        raise AssetError("this family needs the path of a sentence encoder's folder")
    files = [Path(path, TOKENIZER)]
    if Path(path, SENTENCE).is_file():
        files.append(Path(path, SENTENCE))
    return _load(tuple(map(str, files)), max_tokens, checkpoints.signature(files))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(files: tuple[str, ...], max_tokens: int | None, signature: checkpoints.Signature) -> Checkpoint:
    try:
        read = {Path(name).name: Path(name).read_bytes() for name in files}
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    sentence = _object(read[SENTENCE]) if SENTENCE in read else {}
    stated = sentence.get("max_seq_length") if max_tokens is None else max_tokens
    if type(stated) is not int or not 1 <= stated <= MAX_TEXT_TOKENS:
        raise AssetError(f"{SENTENCE} does not say how many tokens a text may have, and 'max_tokens' is not given")
    return Checkpoint(
        tokenizer=checkpoints.tokenizer(Path(files[0])),
        lower=sentence.get("do_lower_case") is True,
        text_tokens=stated,
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in read.items()},
    )


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AssetError(f"{SENTENCE} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise AssetError(f"{SENTENCE} is not a JSON object")
    return document
