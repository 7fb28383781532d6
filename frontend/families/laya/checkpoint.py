"""What the front needs of a Laya checkpoint: its tokenizer and its temperatures, read from the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from frontend.families import checkpoints
from frontend.families.checkpoints import EncodeAll
from protocol.contracts import laya as contract


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: EncodeAll
    special: contract.Special
    temperatures: contract.Temperatures
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, for each of the contract's `FRONT_FILES`."""


def load(path: str | None) -> Checkpoint:
    """The checkpoint in the folder `path`. Raises `AssetError`. The same object while the files stay the same."""
    folder = checkpoints.folder(path)
    return _load(folder, checkpoints.signature([folder / name for name in contract.FRONT_FILES]))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(folder: Path, signature: checkpoints.Signature) -> Checkpoint:
    config, configured = checkpoints.document(folder / contract.CONFIG)
    tokenizer = checkpoints.digest(folder / contract.TOKENIZER)
    with checkpoints.agreed(f"{contract.CONFIG} in {folder}"):
        temperatures = contract.read_config(config)
    encode = checkpoints.encoder(folder / contract.TOKENIZER)
    with checkpoints.agreed(f"{contract.TOKENIZER} in {folder}"):
        special = contract.special(encode)
    return Checkpoint(encode, special, temperatures, {contract.CONFIG: configured, contract.TOKENIZER: tokenizer})
