"""Reading a checkpoint folder before any library loads it: hashes, JSON, and the table inside a weights file.

Everything that is wrong with a folder is a `ConfigurationError`, since trying again would find the same folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor_host.errors import ConfigurationError

HASH_BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Read at a time. Large enough that the hash and not the reading is what takes time."""

MAX_JSON_BYTES: Final = 64 * 1024 * 1024
"""Of a JSON file of a checkpoint. The largest of them, a tokenizer, has 20 MB."""

MAX_TABLE_BYTES: Final = 100_000_000
"""Of a safetensors table: the format's own limit."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One line of a safetensors table."""

    dtype: str
    """As the format spells it, `BF16`."""
    shape: tuple[int, ...]


def sha256(path: Path, progress: Callable[[float], None] = lambda fraction: None) -> str:
    """The file's sha256 in hex. `progress` is called with the fraction done after every block."""
    digest = hashlib.sha256()
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(HASH_BLOCK_BYTES):
                digest.update(block)
                progress(min(1.0, file.tell() / max(size, 1)))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. A key that stands twice is refused: which of the two counts differs by reader."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ConfigurationError(f"{path.name} has more than {MAX_JSON_BYTES} bytes")
        document = json.loads(path.read_bytes(), object_pairs_hook=_once)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path.name} is not a JSON object")
    return document


def safetensors_table(path: Path) -> dict[str, Tensor]:
    """Name, dtype and shape of every tensor, from the head of the file alone.

    Raises when the file is none, or when its size is not what its own table says (a download that was cut short).
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(MAX_TABLE_BYTES, size - 8):
                raise ConfigurationError(f"{path.name} is not a safetensors file")
            table = json.loads(file.read(length))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is not a safetensors file: {error}") from error
    tensors: dict[str, Tensor] = {}
    end = 0
    try:
        for name, entry in table.items():
            if name != "__metadata__":
                tensors[name] = Tensor(str(entry["dtype"]), tuple(map(int, entry["shape"])))
                end = max(end, int(entry["data_offsets"][1]))
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ConfigurationError(f"{path.name} is not a safetensors file: its table is broken") from error
    if 8 + length + end != size:
        raise ConfigurationError(f"{path.name} has {size} bytes, and its own table says {8 + length + end}")
    return tensors


def parameters(tensors: dict[str, Tensor]) -> int:
    """Values of all tensors together."""
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
