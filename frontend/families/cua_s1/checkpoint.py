"""What the front needs of a Cua-S1 folder: its tokenizer, which is that of the base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from frontend.families import checkpoints
from frontend.families.cua_s1.prompt import Encode
from protocol.contracts.cua_s1 import TOKENIZER, check_tokens


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
    folder = checkpoints.folder(path)
    return _load(folder, checkpoints.signature([folder / TOKENIZER]))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(folder: Path, signature: checkpoints.Signature) -> Tokenizer:
    file = folder / TOKENIZER
    digest = checkpoints.digest(file)
    encode = checkpoints.encoder(file)
    with checkpoints.agreed(f"{TOKENIZER} in {folder}"):
        check_tokens(encode)
    return Tokenizer(lambda text: encode([text])[0], {TOKENIZER: digest})
