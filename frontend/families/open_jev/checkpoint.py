"""What the front needs of an Open-Jev checkpoint: tokenizer, chat, temperature and the longest prompt.

Two layouts are served. In a *merged export* all of it lies in one folder, under the manifest that was written
last. A *LoRA checkpoint* has the adapter and the calibration; the tokenizer is the base model's, whose folder is
the option `base`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Final

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.open_jev.rows import DEFAULT_CHAT, Chat, Encode

MANIFEST: Final = "open_jev_export.json"
MODEL: Final = "model.json"
TEMPERATURE: Final = "temperature.json"
TOKENIZER: Final = "tokenizer.json"

FORMAT: Final = "open-jev-text-merged/1"
"""Of the manifest; the only one there is."""

DEFAULT_MAX_LENGTH: Final = 4096
MAX_LENGTH: Final = 16_384
"""Tokens of one prompt: unless an export or the configuration says otherwise, and at most."""

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
"""Of one of the JSON files. The largest is a manifest with 5,120 numbers, 120 kB."""

ALIASES: Final[Mapping[str, str]] = {"Qwen/Qwen3.8-27B": "open-jev-27b-v1.1", "Qwen/Qwen3.5-9B": "open-jev-9b"}
"""What clients of the family's own worker may call the checkpoint of each base model."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: Encode
    chat: Chat
    temperature: float
    """Of every question, whatever its type."""

    max_length: int
    """Tokens of the longest prompt, the chat included. Longer ones are refused, never cut."""

    model_id: str
    """The base model, which is what this family's own worker answers with."""

    base_revision: str
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, of everything that was read."""

    @property
    def alias(self) -> str | None:
        """The released checkpoint's own name, None for others."""
        return ALIASES.get(self.model_id)


def load(path: str | None, base: str | None = None, max_length: int | None = None) -> Checkpoint:
    """The checkpoint in the folder `path`, an export or a LoRA checkpoint of the base model in the folder `base`.

    `max_length` replaces the checkpoint's own. Raises `AssetError`. The same object while the files stay the same.
    """
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    if max_length is not None and not 1 <= max_length <= MAX_LENGTH:
        raise AssetError(f"the option 'max_length' is {max_length}; it is a number from 1 to {MAX_LENGTH}")
    folder = Path(path)
    files: tuple[str, ...]
    if (folder / MANIFEST).is_file():
        files = (str(folder / MANIFEST), str(folder / TOKENIZER))
    elif (folder / MODEL).is_file():
        if base is None:
            raise AssetError(f"{path} is a LoRA checkpoint; the option 'base' names the folder of its base model")
        files = (str(folder / MODEL), str(folder / TEMPERATURE), str(Path(base, TOKENIZER)))
    else:
        raise AssetError(f"{MANIFEST} is missing in {path}, and so is {MODEL}: no complete export, no LoRA checkpoint")
    return _load(files, max_length, checkpoints.signature(map(Path, files)))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(files: tuple[str, ...], max_length: int | None, signature: checkpoints.Signature) -> Checkpoint:
    *documents, tokenizer = map(Path, files)
    sums: dict[str, str] = {}
    fields = [_read(file, sums) for file in documents]
    sums[TOKENIZER] = checkpoints.digest(tokenizer)
    encode = checkpoints.encoder(tokenizer)
    if len(fields) == 1:
        (manifest,) = fields
        if manifest.get("format") != FORMAT:
            raise AssetError(f"{MANIFEST}: format is {manifest.get('format')!r}, not {FORMAT!r}")
        chat = Chat(_text(manifest, MANIFEST, "chat_prefix"), _text(manifest, MANIFEST, "chat_suffix"))
        longest = manifest.get("max_length")
        if type(longest) is not int or not 1 <= longest <= MAX_LENGTH:
            raise AssetError(f"{MANIFEST}: max_length is {longest!r}; a number from 1 to {MAX_LENGTH} is expected")
        model_id, revision = (_text(manifest, MANIFEST, key) for key in ("model_id", "base_revision"))
        temperature = _temperature(manifest, MANIFEST)
    else:
        model, calibration = fields
        chat, longest = DEFAULT_CHAT, DEFAULT_MAX_LENGTH
        model_id, revision = (_text(model, MODEL, key) for key in ("model_id", "revision"))
        temperature = _temperature(calibration, TEMPERATURE)
    return Checkpoint(encode, chat, temperature, max_length or longest, model_id, revision, sums)


def _read(file: Path, sums: dict[str, str]) -> dict[str, Any]:
    raw, sums[file.name] = checkpoints.read(file, MAX_DOCUMENT_BYTES)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise AssetError(f"{file.name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise AssetError(f"{file.name} is not a JSON object")
    return document


def _text(document: Mapping[str, Any], name: str, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise AssetError(f"{name}: {key} is {value!r}; a text is expected")
    return value


def _temperature(document: Mapping[str, Any], name: str) -> float:
    value = document.get("temperature")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = 0.0
        if isfinite(number) and number > 0.0:
            return number
    raise AssetError(f"{name}: temperature is {value!r}; a finite number above 0 is expected")
