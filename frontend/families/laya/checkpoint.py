"""What the front needs of a Laya checkpoint: its tokenizer, lengths and temperatures, read from the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from frontend.families import checkpoints
from frontend.families.checkpoints import EncodeAll
from frontend.families.laya.rendering import Rendered
from frontend.families.laya.rows import Compiled, compile_rows
from protocol.contracts import laya as contract


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: EncodeAll
    special: contract.Special
    config: contract.Config
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, for each of the contract's `FRONT_FILES`."""

    @property
    def variant(self) -> contract.Variant:
        """Which of the published checkpoints it is like."""
        return contract.variant(self.config, self.special)

    def compile(self, state: object, questions: Sequence[Rendered], *, truncate: bool) -> Compiled:
        """The rows of a request. Raises `Refused` as `compile_rows`."""
        return compile_rows(state, questions, self.encode, self.special, self.config, truncate=truncate)


def load(path: str | None) -> Checkpoint:
    """The checkpoint in the folder `path`. Raises `AssetError`. The same object while the files stay the same."""
    folder = checkpoints.folder(path)
    return _load(folder, checkpoints.signature([folder / name for name in contract.FRONT_FILES]))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(folder: Path, signature: checkpoints.Signature) -> Checkpoint:
    document, configured = checkpoints.document(folder / contract.CONFIG)
    roles, named = checkpoints.document(folder / contract.ROLES)
    tokenizer = checkpoints.digest(folder / contract.TOKENIZER)
    with checkpoints.agreed(f"{contract.CONFIG} in {folder}"):
        config = contract.read_config(document)
    encode = checkpoints.encoder(folder / contract.TOKENIZER)
    with checkpoints.agreed():
        special = contract.special(roles, encode)
    sums = {contract.CONFIG: configured, contract.TOKENIZER: tokenizer, contract.ROLES: named}
    return Checkpoint(encode, special, config, sums)
