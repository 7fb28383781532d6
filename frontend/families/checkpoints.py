"""What the front needs of a checkpoint folder, and the processors that are made of it.

The host loads the weights that lie beside these files and reports the sha256 of every file; the processor compares,
so that rows never meet weights that were trained with other tokens.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from frontend.errors import Unavailable
from frontend.families.base import AssetError, Processor
from frontend.limits import RETRY_AFTER_SECONDS
from protocol.contracts.agreement import ContractError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KEPT: Final = 4
"""Checkpoints of a family kept per process: a restarted host costs a look at the folder, not a second of tokenizer
loading. A tokenizer of 250,000 tokens takes about 100 MB."""

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
"""Of one of the JSON files. The largest is a manifest with 5,120 numbers, 120 kB."""

EncodeAll: TypeAlias = Callable[[Sequence[str]], list[list[int]]]
"""The token ids of each string, without added special tokens. Safe to call from several threads at once."""

Signature: TypeAlias = tuple[tuple[int, ...], ...]


def signature(files: Iterable[Path]) -> Signature:
    """What changes when one of the files does. Raises `AssetError` when one is not there."""
    try:
        found = [file.stat() for file in files]
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    return tuple([(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) for status in found])


def digest(file: Path) -> str:
    """The sha256 of a file, hexadecimal. Raises `AssetError`."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error


def read(file: Path, most_bytes: int) -> tuple[bytes, str]:
    """A small file, of a larger one the beginning, and the sha256 of what was read. Raises `AssetError`."""
    try:
        with file.open("rb") as opened:
            content = opened.read(most_bytes)
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    return content, hashlib.sha256(content).hexdigest()


def folder(path: str | None) -> Path:
    """The folder that a deployment is configured with. Raises `AssetError` when there is none."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    return Path(path)


def document(file: Path) -> tuple[dict[str, Any], str]:
    """The object in a JSON file of at most `MAX_DOCUMENT_BYTES`, and its sha256. Raises `AssetError`."""
    content, found = read(file, MAX_DOCUMENT_BYTES)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AssetError(f"{file.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise AssetError(f"{file.name} is not a JSON object")
    return value, found


@contextmanager
def agreed(name: str = "") -> Iterator[None]:
    """Around readers of a family's contract: what they refuse is an `AssetError`, which begins with `name` where they
    have not named the file themselves."""
    try:
        yield
    except ContractError as error:
        raise AssetError(f"{name}: {error}" if name else str(error)) from error


def check_against(own: Mapping[str, str], files: object) -> None:
    """Raises `AssetError` unless `files`, of the host's facts, names the same contents as `own`: sha256 by name."""
    if not isinstance(files, Mapping):
        raise AssetError("the host does not say which files it has loaded")
    for name, digest in own.items():
        if files.get(name) != digest:
            raise AssetError(f"{name} is not the one that the host has loaded beside its weights")


def tokenizer(file: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`, which neither cuts nor pads whatever the file says. Raises `AssetError`."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise AssetError(f"this family needs framehost[torch]: {error}") from error
    try:
        found = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise AssetError(f"{file.name} is not a tokenizer: {error}") from error
    # A file may carry both; a cut or padded text would be another question.
    found.no_truncation()
    found.no_padding()
    return found


def encoder(file: Path) -> EncodeAll:
    """The tokenizer in a `tokenizer.json` as a function. Raises `AssetError`."""
    return encoding(tokenizer(file))


def encoding(made: Tokenizer) -> EncodeAll:
    """A tokenizer as a function."""

    def encode(texts: Sequence[str]) -> list[list[int]]:
        # The batch call lets go of the interpreter lock while it works (the single call stopped the event loop for
        # 1 s on 2 MB) and counts no offsets, which no code reads (a third of the time).
        return [one.ids for one in made.encode_batch_fast(list(texts), add_special_tokens=False)]

    return encode


class Read(Protocol):
    """The front's share of a checkpoint. Shared by all requests, and nothing of it ever changes."""

    @property
    def sha256(self) -> Mapping[str, str]:
        """Hexadecimal, by file name, of everything that was read."""
        ...


CheckpointT = TypeVar("CheckpointT", bound=Read)


class CheckpointProcessor(Processor, Generic[CheckpointT]):
    """A processor that needs a checkpoint's files. They are read when it is made."""

    def __init__(self, facts: Mapping[str, object], options: Mapping[str, object], path: str | None = None) -> None:
        """As `Processor`. `facts["files"]` is the sha256 of every file the host has loaded, by its name."""
        super().__init__(facts, options, path)
        self._checkpoint: CheckpointT | None = None
        self._complaint = ""
        try:
            self._checkpoint = self.read_checkpoint()
        except AssetError as error:
            if facts:
                raise
            self._complaint = str(error)
        if self._checkpoint is not None and facts:
            check_against(self._checkpoint.sha256, facts.get("files"))

    @abstractmethod
    def read_checkpoint(self) -> CheckpointT:
        """What is at `self.path`. Raises `AssetError`. Called once, while the processor is made."""

    @property
    def checkpoint(self) -> CheckpointT:
        """What was read of the checkpoint. Raises `Unavailable` when it could not be read."""
        if self._checkpoint is None:
            raise Unavailable(
                f"the model cannot be prepared for: {self._complaint}", retry_after=RETRY_AFTER_SECONDS[1]
            )
        return self._checkpoint
