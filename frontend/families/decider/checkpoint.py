"""What the front needs of a Decider checkpoint: its tokenizer and its temperatures, read from the folder.

The host loads the weights that lie beside them and reports the sha256 of every file; the processor compares,
so that rows never meet weights that were trained with other tokens. What was read is kept per process until a
file changes: a restarted host costs a look at the folder, not a second of tokenizer loading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frontend.families.base import AssetError
from frontend.families.decider.config import ConfigError, Temperatures, read_config
from frontend.families.decider.tokens import NoLabels, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER: Final = "tokenizer.json"
CONFIG: Final = "decider_config.json"
FILES: Final = (TOKENIZER, CONFIG)

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""decider_config.json. The released one has 1,240; what is a thousand times larger is another file."""

KEPT: Final = 4
"""Checkpoints kept per process. A tokenizer of 250,000 tokens takes about 100 MB."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    vocabulary: Vocabulary
    temperatures: Temperatures
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, for each of `FILES`."""

    def check_against(self, files: object) -> None:
        """Raises `AssetError` unless `files`, of the host's facts, names the same contents for `FILES`."""
        if not isinstance(files, Mapping):
            raise AssetError("the host does not say which files it has loaded")
        for name in FILES:
            if files.get(name) != self.sha256[name]:
                raise AssetError(f"{name} is not the one that the host has loaded beside its weights")


def load(path: str | None) -> Checkpoint:
    """The checkpoint in the folder `path`. Raises `AssetError`. The same object while the files stay the same."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    try:
        signature = tuple([_signature(Path(path, name)) for name in FILES])
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    return _load(path, signature)


def _signature(file: Path) -> tuple[int, ...]:
    status = file.stat()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=KEPT)
def _load(path: str, signature: tuple[tuple[int, ...], ...]) -> Checkpoint:
    folder = Path(path)
    try:
        with (folder / CONFIG).open("rb") as file:
            config = file.read(MAX_CONFIG_BYTES)
        temperatures = read_config(json.loads(config))
        sums = {CONFIG: hashlib.sha256(config).hexdigest()}
        with (folder / TOKENIZER).open("rb") as file:
            sums[TOKENIZER] = hashlib.file_digest(file, "sha256").hexdigest()
        vocabulary = Vocabulary.of(_encoder(folder / TOKENIZER))
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    except (ConfigError, ValueError, RecursionError) as error:
        name = TOKENIZER if isinstance(error, NoLabels) else CONFIG
        raise AssetError(f"{name} in {path}: {error}") from error
    return Checkpoint(vocabulary, temperatures, sums)


class _Encoder:
    """A tokenizer as a function."""

    __slots__ = ("_tokenizer",)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        # The batch call, for one text: it lets go of the interpreter lock while it works (the single call stopped
        # the event loop for 1 s on 2 MB) and counts no offsets, which nobody reads (a third of the time).
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids


def _encoder(file: Path) -> _Encoder:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise AssetError(f"this family needs framehost[torch]: {error}") from error
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise AssetError(f"{file.name} is not a tokenizer: {error}") from error
    # A file may carry both; a cut or padded row would be another question.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _Encoder(tokenizer)
