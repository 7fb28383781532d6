"""Reading a checkpoint folder before any library loads it: hashes, JSON, and the table inside a weights file.

Everything that is wrong with a folder is a `ConfigurationError`, since trying again would find the same folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from executor_host.errors import ConfigurationError
from protocol.contracts import agreement

HASH_BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Read at a time. Large enough that the hash and not the reading is what takes time."""

MAX_JSON_BYTES: Final = 64 * 1024 * 1024
"""Of a JSON file of a checkpoint. The largest of them, a tokenizer, has 20 MB."""

MAX_TABLE_BYTES: Final = 100_000_000
"""Of a safetensors table: the format's own limit."""

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
"""What a folder has: one file of weights, or an index of several."""

ADAPTER: Final = "adapter_config.json"
"""What a folder has whose weights are to be added to those of another one."""


PICKLES: Final = ("pytorch_model*.bin", "*.pth")
"""Weights in the older form, which is a program and not only numbers."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One line of a safetensors table."""

    dtype: str
    """As the format spells it, `BF16`."""
    shape: tuple[int, ...]


def folder(path: str | None, family: str, what: str = "a checkpoint") -> Path:
    """The folder that a model of `family` is configured to be in, which is there."""
    if path is None:
        raise ConfigurationError(f"the {family} family needs the folder of {what}")
    found = Path(path)
    if not found.is_dir():
        raise ConfigurationError(f"{path} is not a folder")
    return found


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
    document = _json(path)
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path.name} is not a JSON object")
    return document


def read_json_list(path: Path) -> list[Any]:
    """The array in a JSON file, likewise."""
    document = _json(path)
    if not isinstance(document, list):
        raise ConfigurationError(f"{path.name} is not a JSON array")
    return document


def _json(path: Path) -> object:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ConfigurationError(f"{path.name} has more than {MAX_JSON_BYTES} bytes")
        document: object = json.loads(path.read_bytes(), object_pairs_hook=_once)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is not JSON: {error}") from error
    return document


@contextmanager
def agreed(name: str = "") -> Iterator[None]:
    """Around readers of a family's contract: what they refuse is a `ConfigurationError`, which begins with `name` where
    they have not named the file themselves."""
    try:
        yield
    except agreement.ContractError as error:
        raise ConfigurationError(f"{name}: {error}" if name else str(error)) from error


def text(document: Mapping[str, Any], name: str, key: str) -> str:
    """A text in a document, which `name` is what people call."""
    with agreed():
        return agreement.text(document, name, key)


def count(document: Mapping[str, Any], name: str, key: str, most: int) -> int:
    """A number from 1 to `most` in a document, likewise."""
    with agreed():
        return agreement.count(document, name, key, most)


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


def no_model(folder: Path) -> str:
    """What a folder without a `config.json` is instead of a model, and what to do with it; "" when nothing tells."""
    if not any(folder.iterdir()):
        return "it is an empty folder"
    if (folder / ADAPTER).is_file():
        base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        whose = base if isinstance(base, str) and base.isprintable() else "another model"
        return f"it is an adapter of {whose} and no model: merge the two, and give the folder of the result"
    gguf = sorted(folder.glob("*.gguf"))
    if gguf:
        return f"a GGUF file is given by its own path: {gguf[0]}"
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return f"{found[0].name} has weights; config.json and tokenizer.json, which belong to them, are not beside it"
    return ""


def weights(folder: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Every tensor of a folder's weights, which are one file or shards with an index, and the names of their files."""
    single, index = (folder / WEIGHTS).is_file(), (folder / INDEX).is_file()
    if single and index:
        raise ConfigurationError(f"{WEIGHTS} and {INDEX} are both in {folder}; which is meant?")
    if single:
        return safetensors_table(folder / WEIGHTS), [WEIGHTS]
    if not index:
        pickles = sorted(file.name for pattern in PICKLES for file in folder.glob(pattern))
        why = f"; {pickles[0]} is a pickle, which is never loaded: save the model as safetensors" if pickles else ""
        raise ConfigurationError(f"{WEIGHTS} is missing in {folder}, and so is {INDEX}{why}")
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ConfigurationError(f"{INDEX}: weight_map is not an object of tensors")
    tables: dict[str, dict[str, Tensor]] = {}
    tensors = {}
    for key, name in places.items():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ConfigurationError(f"{INDEX}: {key} is said to be in {name!r}, which is no file of this folder")
        if name not in tables:
            if not (folder / name).is_file():
                raise ConfigurationError(f"{name} is missing in {folder}")
            tables[name] = safetensors_table(folder / name)
        if key not in tables[name]:
            raise ConfigurationError(f"{name}: {key} is missing")
        tensors[key] = tables[name][key]
    for name, table in tables.items():
        extra = sorted(table.keys() - tensors.keys())
        if extra:
            raise ConfigurationError(f"{name}: {extra[0]} is not in {INDEX}")
    return tensors, [INDEX, *sorted(tables)]


def hashed(paths: Mapping[str, Path], progress: Callable[[float, str], None]) -> dict[str, str]:
    """The sha256 of each file, by its name in `paths`. `progress`: called with the fraction of all bytes and a note
    that names the file and the bytes."""
    sizes = {name: max(1, file.stat().st_size) for name, file in paths.items()}
    total, before, files = sum(sizes.values()), 0, {}
    for name, file in paths.items():
        files[name] = sha256(file, partial(_report, progress, f"hashing {name}", before, sizes[name], total))
        before += sizes[name]
    return files


def _report(
    progress: Callable[[float, str], None], note: str, before: int, size: int, total: int, fraction: float
) -> None:
    done = int(before + fraction * size)
    progress(min(1.0, done / total), f"{note}, {amount(done, total)} of {amount(total)}")


def amount(count: int, scale: int = 0) -> str:
    """Bytes for people, in the unit of `scale` if that is given."""
    scale = scale or count
    unit, size = ("GiB", 2**30) if scale >= 2**30 else ("MiB", 2**20)
    return f"{count / size:.1f} {unit}"


def weight_bytes(folder: Path) -> int:
    """Of all files of weights in a folder: what a load brings into memory, before any conversion."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def of_weights(files: Mapping[str, str]) -> dict[str, str]:
    """Of the files of a checkpoint (sha256 by name) those that hold weights."""
    return {name: digest for name, digest in files.items() if name.endswith(".safetensors")}


def combined(files: Mapping[str, str]) -> str:
    """One sha256 for several files: of the lines that `sha256sum` would print for them, by name."""
    return hashlib.sha256("".join([f"{files[name]}  {name}\n" for name in sorted(files)]).encode()).hexdigest()


def tokenizer(file: Path) -> Any:
    """The `tokenizers.Tokenizer` in a file, which neither cuts nor pads whatever the file says."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigurationError(f"this family needs framehost[torch]: {error}") from error
    try:
        encoder = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise ConfigurationError(f"{file.name} is not a tokenizer: {error}") from error
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def parameters(tensors: dict[str, Tensor]) -> int:
    """Values of all tensors together."""
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
