"""What the front needs of a Cua-S1 folder: its tokenizer, which is that of the base model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from frontend.families import assets
from frontend.families.base import AssetError
from frontend.families.cua_s1.prompt import LETTER_IDS, LETTERS, MARKERS, Encode

TOKENIZER: Final = "tokenizer.json"


@dataclass(frozen=True, slots=True, repr=False)
class Tokenizer:
    """The tokenizer of one checkpoint. Shared by all requests."""

    encode: Encode
    sha256: str

    def __repr__(self) -> str:
        return f"<Tokenizer {self.sha256[:12]}>"

    def check_against(self, files: object) -> None:
        """Raises `AssetError` unless `files`, of the host's facts, names the same contents."""
        assets.check_against({TOKENIZER: self.sha256}, files)


def load(path: str | None) -> Tokenizer:
    """The tokenizer in the folder `path`. Raises `AssetError`. The same object while the file stays the same."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    return _load(path, assets.signature([Path(path, TOKENIZER)]))


@lru_cache(maxsize=assets.KEPT)
def _load(path: str, signature: assets.Signature) -> Tokenizer:
    file = Path(path, TOKENIZER)
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    encode = assets.encoder(file)
    if encode(list(LETTERS)) != [[token] for token in LETTER_IDS]:
        raise AssetError(f"{TOKENIZER} in {path} does not have the letters A to Z as the tokens 32 to 57")
    for marker, tokens in zip(MARKERS, encode(MARKERS), strict=True):
        if len(tokens) != 1:
            raise AssetError(f"{TOKENIZER} in {path} does not have {marker} as one token")
    return Tokenizer(lambda text: encode([text])[0], digest)
