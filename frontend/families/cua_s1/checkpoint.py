"""What the front needs of a Cua-S1 folder: its tokenizer, which is that of the base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.cua_s1.prompt import LETTER_IDS, LETTERS, MARKERS, Encode

TOKENIZER: Final = "tokenizer.json"


@dataclass(frozen=True, slots=True, repr=False)
class Tokenizer:
    """The tokenizer of one checkpoint. Shared by all requests."""

    encode: Encode
    sha256: Mapping[str, str]
    """Hexadecimal, by file name: of the one."""

    def __repr__(self) -> str:
        return f"<Tokenizer {self.sha256[TOKENIZER][:12]}>"


def load(path: str | None) -> Tokenizer:
    """The tokenizer in the folder `path`. Raises `AssetError`. The same object while the file stays the same."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    return _load(path, checkpoints.signature([Path(path, TOKENIZER)]))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(path: str, signature: checkpoints.Signature) -> Tokenizer:
    file = Path(path, TOKENIZER)
    digest = checkpoints.digest(file)
    encode = checkpoints.encoder(file)
    if encode(list(LETTERS)) != [[token] for token in LETTER_IDS]:
        raise AssetError(f"{TOKENIZER} in {path} does not have the letters A to Z as the tokens 32 to 57")
    for marker, tokens in zip(MARKERS, encode(MARKERS), strict=True):
        if len(tokens) != 1:
            raise AssetError(f"{TOKENIZER} in {path} does not have {marker} as one token")
    return Tokenizer(lambda text: encode([text])[0], {TOKENIZER: digest})
