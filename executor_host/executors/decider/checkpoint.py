"""What makes a folder a Decider checkpoint (Mapika/decider-2b v11 and its like), checked without loading it.

Two levels. Every folder must have the released *form*: the configuration, calibration, tokenizer and tensors
that the prompts and the arithmetic of this family are made for. A folder that claims to be the released
revision must also have the released *bytes*, so that its answers can be compared with anybody else's.

Files must not change while the host lives; they are hashed once, before anything loads them.

Source: the family's published runtime, decider-ai 1.8.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from executor_host import checkpoints
from executor_host.backbones.qwen3_5_config import check_layers
from executor_host.errors import ConfigurationError

REVISION: Final = "533964dae8be954c5b5e19fa4948e48408094c1e"
"""The released revision of Mapika/decider-2b whose files these are."""

RELEASED: Final = {
    "config.json": (1_790, "6cb8daca9fb653c61485ff7452fc068bacd5c27cbee659ecd24b47186b0d1b52"),
    "decider_config.json": (1_240, "6e4891f2754a1c18a10f8dadb0c04e439e7f79fab0333d56641491bd4a05e722"),
    "tokenizer.json": (19_989_325, "06b9509352d2af50381ab2247e083b80d32d5c0aba91c272ca9ff729b6a0e523"),
    "model.safetensors": (3_763_692_048, "acaef2228b134dcdc20cad4ee79219482c927ec819aa3687b9b8a575c338817f"),
}
"""Size in bytes and sha256 of the files of `REVISION`. Every checkpoint has files of these names."""

REDIRECTING: Final = ("model.safetensors.index.json", "adapter_config.json")
"""Files that make the loading library take other weights than the verified ones, or more."""

VERSION: Final = "2b-v11"
MODEL_ID: Final = "decider-2b-v11"
LABELS: Final = 255
"""Label tokens, and the most options of a question."""

KINDS: Final = ("choice", "noul", "score")

MAX_STATE_TOKENS: Final = 32_768
MAX_ROW_TOKENS: Final = MAX_STATE_TOKENS + 4_096
MAX_ROWS: Final = 1_024
MAX_TOKENS: Final = 1_048_576
"""Limits of one request; the front refuses what is beyond them."""

EMBEDDING: Final = "model.language_model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    files: Mapping[str, str]
    """sha256 of each of the required files."""
    released: bool
    """Whether all of them are those of `REVISION`."""
    temperatures: Mapping[str, float]
    """Per kind of question, rounded to float32 as the arithmetic is."""
    labels: tuple[int, ...]
    """Token ids of the labels A, B, ..., in order."""
    parameters: int


def verify(path: str | None, *, claimed: bool, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint in a folder. Reads every byte once: 3.8 GB of the released model.

    `claimed`: whether it is said to be `REVISION`. `progress`: called with the fraction of all bytes and a note.
    Raises `ConfigurationError` for what is missing, foreign, redirected, cut short, or not the released
    bytes where these are claimed.
    """
    folder = checkpoints.folder(path, "decider")
    for name in REDIRECTING:
        if (folder / name).exists():
            raise ConfigurationError(f"{name} lies beside the weights and would have others loaded; remove it")
    for name, (size, _) in RELEASED.items():
        file = folder / name
        if not file.is_file():
            raise ConfigurationError(f"{name} is missing in {path}")
        if claimed and file.stat().st_size != size:
            raise ConfigurationError(f"{name} has {file.stat().st_size} bytes; the released file has {size}")
    vocabulary, hidden = _check_config(checkpoints.read_json(folder / "config.json"))
    temperatures = _check_calibration(checkpoints.read_json(folder / "decider_config.json"))
    tensors = checkpoints.safetensors_table(folder / "model.safetensors")
    _check_tensors(tensors, vocabulary, hidden)
    files = checkpoints.hashed({name: folder / name for name in RELEASED}, progress)
    for name, (_, digest) in RELEASED.items():
        if claimed and files[name] != digest:
            raise ConfigurationError(f"{name} is not the released file: its sha256 is {files[name]}, not {digest}")
    labels = label_tokens(folder / "tokenizer.json", vocabulary)
    released = all(files[name] == digest for name, (_, digest) in RELEASED.items())
    return Checkpoint(folder, files, released, temperatures, labels, checkpoints.parameters(tensors))


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a verified folder is, line by line, for people. Raises as `verify`."""
    checkpoint = verify(path, claimed=False, progress=progress)
    other = [name for name, (_, digest) in RELEASED.items() if checkpoint.files[name] != digest]
    lines = [
        f"{MODEL_ID}, {checkpoint.parameters:,} parameters, {len(checkpoint.labels)} labels",
        "temperatures " + ", ".join(f"{kind} {value:.4g}" for kind, value in checkpoint.temperatures.items()),
    ]
    if checkpoint.released:
        lines.append(f"the files are those of revision {REVISION}")
    else:
        lines.append(f"not the released revision {REVISION}: {', '.join(other)} differ")
    return lines


def label_tokens(tokenizer: Path, vocabulary: int) -> tuple[int, ...]:
    """The label tokens of a tokenizer: A..Z, AA..ZZ in order, those that are one token each, the first `LABELS`.

    Raises `ConfigurationError`: not a tokenizer, too few, two of them equal, or ids of `vocabulary` or above.
    """
    encoder = checkpoints.tokenizer(tokenizer)
    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    found: list[int] = []
    for label in (*letters, *(first + second for first in letters for second in letters)):
        tokens = encoder.encode(label, add_special_tokens=False).ids
        if len(tokens) == 1:
            found.append(tokens[0])
        if len(found) == LABELS:
            break
    if len(found) < LABELS or len(set(found)) < LABELS:
        raise ConfigurationError(f"{tokenizer.name} has {len(set(found))} labels of one token; {LABELS} are needed")
    if encoder.get_vocab_size(with_added_tokens=True) > vocabulary:
        raise ConfigurationError(f"{tokenizer.name} has more tokens than the model's {vocabulary}")
    return tuple(found)


def _check_config(config: Mapping[str, Any]) -> tuple[int, int]:
    """Vocabulary and hidden size of a model that this family's backbone reads."""
    expected = {"model_type": "qwen3_5_text", "tie_word_embeddings": True, "dtype": "bfloat16"}
    for key, value in expected.items():
        if type(config.get(key)) is not type(value) or config[key] != value:
            raise ConfigurationError(f"config.json: {key} is {config.get(key)!r}, not {value!r}")
    if config.get("quantization_config") is not None:
        raise ConfigurationError("config.json: quantized weights are another model")
    sizes = [config.get(key) for key in ("vocab_size", "hidden_size", "num_hidden_layers")]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ConfigurationError("config.json: vocab_size, hidden_size and num_hidden_layers are not all positive")
    vocabulary, hidden, layers = (int(size) for size in sizes if size is not None)
    check_layers(config, layers)
    return vocabulary, hidden


_CALIBRATION: Final[dict[str, object]] = {
    "version": VERSION,
    "layout": "plain",
    "max_options": LABELS,
    "max_state_tokens": MAX_STATE_TOKENS,
    "isolated_levels": True,
    "neutralize_none": False,
}
_ABSENT_OR_FALSE: Final = ("chat_template", "schema_first", "schema_first_trained")
_ABSENT: Final = ("temperature_by_options", "temperature_schema_first", "temperature_schema_first_by_type")


def _check_calibration(config: Mapping[str, Any]) -> dict[str, float]:
    """The temperatures. What is refused would have the rows rendered, or the answers made, in another way."""
    for key, value in _CALIBRATION.items():
        if type(config.get(key)) is not type(value) or config[key] != value:
            raise ConfigurationError(f"decider_config.json: {key} is {config.get(key)!r}, not {value!r}")
    for key in _ABSENT_OR_FALSE:
        if config.get(key, False) is not False:
            raise ConfigurationError(f"decider_config.json: {key} is {config[key]!r}; it is absent or false")
    for key in _ABSENT:
        if key in config:
            raise ConfigurationError(f"decider_config.json: {key} is another calibration than this family's")
    if "temperature" not in config:
        raise ConfigurationError("decider_config.json: temperature is missing")
    fallback = _temperature("temperature", config["temperature"], text=True)
    by_kind = config.get("temperature_by_type", {})
    if not isinstance(by_kind, dict):
        raise ConfigurationError("decider_config.json: temperature_by_type is not an object")
    for key in by_kind:
        if key not in KINDS:
            raise ConfigurationError(f"decider_config.json: temperature_by_type has {key!r}; it has {', '.join(KINDS)}")
    given = {kind: _temperature(f"temperature_by_type.{kind}", value) for kind, value in by_kind.items()}
    return {kind: given.get(kind, fallback) for kind in KINDS}


def _temperature(key: str, value: object, *, text: bool = False) -> float:
    """A temperature as float32, widened. `text`: a number in a string counts, too."""
    if text and isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            with np.errstate(over="ignore", under="ignore"):
                narrowed = float(np.float32(value))
        except OverflowError:  # an integer beyond every float
            narrowed = math.inf
        if math.isfinite(narrowed) and narrowed > 0:
            return narrowed
    raise ConfigurationError(f"decider_config.json: {key} is not a number above 0 that float32 can hold")


def _check_tensors(tensors: Mapping[str, checkpoints.Tensor], vocabulary: int, hidden: int) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != "BF16":
            raise ConfigurationError(f"model.safetensors: {name} is {tensor.dtype}, not BF16")
        if name.endswith("lm_head.weight"):
            # With tied embeddings there is none, and which of two would be read is up to the loading library.
            raise ConfigurationError(f"model.safetensors: {name} beside tied embeddings")
    embedding = tensors.get(EMBEDDING)
    if embedding is None or embedding.shape != (vocabulary, hidden):
        found = "missing" if embedding is None else f"of shape {list(embedding.shape)}"
        raise ConfigurationError(f"model.safetensors: {EMBEDDING} is {found}; [{vocabulary}, {hidden}] is needed")
