"""What the front needs of a Nimble checkpoint: its tokenizer, and which codes its options have there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from frontend.families import checkpoints
from frontend.families.checkpoints import EncodeAll
from frontend.families.nimble.rendering import Rendered
from frontend.families.nimble.rows import Compiled, compile_rows
from protocol.contracts import nimble as contract
from protocol.contracts.nimble import SCHEMA, TOKENIZER


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: EncodeAll
    schema: contract.Schema
    codes: contract.Codes
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, of everything that was read."""

    def compile(self, state: object, questions: Sequence[Rendered], max_length: int) -> Compiled:
        """The rows of a request. Raises `Refused` as `compile_rows`."""
        return compile_rows(state, questions, self.encode, self.codes.names, max_length)


def load(path: str | None, *, unreleased: bool = False) -> Checkpoint:
    """The checkpoint in the folder `path`. `unreleased`: as `contract.read_schema`. Raises `AssetError`. The same
    object while the files stay the same."""
    folder = checkpoints.folder(path)
    files = (folder / SCHEMA, folder / TOKENIZER)
    return _load(files, unreleased, checkpoints.signature(files))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(files: tuple[Path, Path], unreleased: bool, signature: checkpoints.Signature) -> Checkpoint:
    document, digest = checkpoints.document(files[0])
    sums = {SCHEMA: digest, TOKENIZER: checkpoints.digest(files[1])}
    tokenizer = checkpoints.tokenizer(files[1])
    encode = checkpoints.encoding(tokenizer)
    special = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    with checkpoints.agreed():
        schema = contract.read_schema(document, unreleased=unreleased)
        codes = contract.read_codes(tokenizer.get_vocab(with_added_tokens=True), encode, special)
        contract.check_codes(schema, codes)
    return Checkpoint(encode, schema, codes, sums)
