"""What the front needs of a Cua-S1 folder: its tokenizer, which is that of the base model.

The host reports the sha256 of the file it found beside its weights; the processor compares, so that prompts never
meet weights that were trained with other tokens. What was read is kept per process until the file changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from frontend.families.base import AssetError
from frontend.families.cua_s1.prompt import LETTER_IDS, LETTERS, MARKERS, Encode

TOKENIZER: Final = "tokenizer.json"

KEPT: Final = 4
"""Tokenizers kept per process. One of 250,000 tokens takes about 100 MB."""


@dataclass(frozen=True, slots=True, repr=False)
class Tokenizer:
    """The tokenizer of one checkpoint. Shared by all requests."""

    encode: Encode
    sha256: str

    def __repr__(self) -> str:
        return f"<Tokenizer {self.sha256[:12]}>"

    def check_against(self, files: object) -> None:
        """Raises `AssetError` unless `files`, of the host's facts, names the same contents."""
        if not isinstance(files, Mapping):
            raise AssetError("the host does not say which files it has loaded")
        if files.get(TOKENIZER) != self.sha256:
            raise AssetError(f"{TOKENIZER} is not the one that the host has loaded beside its weights")


def load(path: str | None) -> Tokenizer:
    """The tokenizer in the folder `path`. Raises `AssetError`. The same object while the file stays the same."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    try:
        status = Path(path, TOKENIZER).stat()
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    return _load(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=KEPT)
def _load(path: str, signature: tuple[int, ...]) -> Tokenizer:
    file = Path(path, TOKENIZER)
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    encode = _encoder(file)
    letters = [encode(letter) for letter in LETTERS]
    if letters != [[token] for token in LETTER_IDS]:
        raise AssetError(f"{TOKENIZER} in {path} does not have the letters A to Z as the tokens 32 to 57")
    for marker in MARKERS:
        if len(encode(marker)) != 1:
            raise AssetError(f"{TOKENIZER} in {path} does not have {marker} as one token")
    return Tokenizer(encode, digest)


def _encoder(file: Path) -> Encode:
    try:
        import tokenizers
    except ImportError as error:
        raise AssetError(f"this family needs framehost[torch]: {error}") from error
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise AssetError(f"{file.name} is not a tokenizer: {error}") from error
    # A file may carry both; a cut or padded prompt would be another question.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str) -> list[int]:
        # The batch call lets go of the interpreter lock while it works, and counts no offsets.
        ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    return encode
