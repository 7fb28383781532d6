"""What the front needs of an Open-Jev checkpoint: tokenizer, chat, temperature and the longest prompt.

A LoRA checkpoint's tokenizer is the base model's, whose folder is the option `base`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.checkpoints import EncodeAll
from frontend.families.open_jev.rendering import Rendered
from frontend.families.open_jev.rows import Compiled, compile_rows
from protocol.contracts.open_jev import (
    MANIFEST,
    MAX_LENGTH,
    MODEL,
    TEMPERATURE,
    TOKENIZER,
    Terms,
    read_export,
    read_lora,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: EncodeAll
    terms: Terms
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, of everything that was read."""

    def compile(self, state: object, questions: Sequence[Rendered]) -> Compiled:
        """The rows of a request. Raises `Refused` as `compile_rows`."""
        terms = self.terms
        return compile_rows(state, questions, self.encode, chat=terms.chat, max_length=terms.max_length)


def load(path: str | None, base: str | None = None, max_length: int | None = None) -> Checkpoint:
    """The checkpoint in the folder `path`, an export or a LoRA checkpoint of the base model in the folder `base`.

    `max_length` replaces the checkpoint's own. Raises `AssetError`. The same object while the files stay the same.
    """
    folder = checkpoints.folder(path)
    files: tuple[Path, ...]
    if max_length is not None and not 1 <= max_length <= MAX_LENGTH:
        raise AssetError(f"the option 'max_length' is {max_length}; it is a number from 1 to {MAX_LENGTH}")
    if (folder / MANIFEST).is_file():
        files = (folder / MANIFEST, folder / TOKENIZER)
    elif (folder / MODEL).is_file():
        if base is None:
            raise AssetError(f"{path} is a LoRA checkpoint; the option 'base' names the folder of its base model")
        files = (folder / MODEL, folder / TEMPERATURE, Path(base, TOKENIZER))
    else:
        raise AssetError(f"{MANIFEST} is missing in {path}, and so is {MODEL}: no complete export, no LoRA checkpoint")
    return _load(files, max_length, checkpoints.signature(files))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(files: tuple[Path, ...], max_length: int | None, signature: checkpoints.Signature) -> Checkpoint:
    *documents, tokenizer = files
    read = [checkpoints.document(file) for file in documents]
    with checkpoints.agreed():
        terms = read_export(read[0][0]) if len(read) == 1 else read_lora(read[0][0], read[1][0])
    sums = {file.name: digest for file, (_, digest) in zip(documents, read, strict=True)}
    sums[TOKENIZER] = checkpoints.digest(tokenizer)
    terms = replace(terms, max_length=max_length or terms.max_length)
    return Checkpoint(checkpoints.encoder(tokenizer), terms, sums)
