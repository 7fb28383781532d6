"""What the front needs of a Kev checkpoint: its tokenizer, which of a LoRA checkpoint is the base model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.checkpoints import EncodeAll
from frontend.families.kev.rendering import Rendered
from frontend.families.kev.rows import Compiled, compile_rows
from protocol.contracts import kev as contract


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: EncodeAll
    delimiters: contract.Delimiters
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, of everything that was read."""

    def compile(self, state: object, questions: Sequence[Rendered], max_length: int) -> Compiled:
        """The rows of a request. Raises `Refused` as `compile_rows`."""
        return compile_rows(state, questions, self.encode, self.delimiters, max_length)


def load(path: str | None, base: str | None) -> Checkpoint:
    """The checkpoint in the folder `path`, whose base model, if it is a LoRA one, is in the folder `base`.

    Raises `AssetError`. The same object while the file stays the same.
    """
    folder = checkpoints.folder(path)
    if (folder / contract.ADAPTER_CONFIG).is_file():
        if base is None:
            raise AssetError(f"{path} is a LoRA checkpoint; the option 'base' names the folder of its base model")
        folder = Path(base)
    file = folder / contract.TOKENIZER
    return _load(file, checkpoints.signature([file]))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(file: Path, signature: checkpoints.Signature) -> Checkpoint:
    digest = checkpoints.digest(file)
    encode = checkpoints.encoder(file)
    with checkpoints.agreed():
        delimiters = contract.delimiters(encode)
    return Checkpoint(encode, delimiters, {contract.TOKENIZER: digest})
