"""What the front needs of a Laya checkpoint: its tokenizer and its temperatures, read from the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.checkpoints import EncodeAll
from frontend.families.laya.config import ConfigError, Temperatures, read_config
from frontend.families.laya.rows import Special

CONFIG: Final = "rl_agent_config.json"
TOKENIZER: Final = "tokenizer/tokenizer.json"
FILES: Final = (CONFIG, TOKENIZER)

SPECIAL: Final = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
"""Texts of the tokens of `Special`, in its order. Tokenizers of the other languages' checkpoints have other ones."""

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""rl_agent_config.json has a few kB; what is so much larger is another file."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    encode: EncodeAll
    special: Special
    temperatures: Temperatures
    sha256: Mapping[str, str]
    """Hexadecimal, by file name, for each of `FILES`."""


def load(path: str | None) -> Checkpoint:
    """The checkpoint in the folder `path`. Raises `AssetError`. The same object while the files stay the same."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    return _load(path, checkpoints.signature([Path(path, name) for name in FILES]))


@lru_cache(maxsize=checkpoints.KEPT)
def _load(path: str, signature: checkpoints.Signature) -> Checkpoint:
    folder = Path(path)
    config, configured = checkpoints.read(folder / CONFIG, MAX_CONFIG_BYTES)
    tokenizer = checkpoints.digest(folder / TOKENIZER)
    try:
        temperatures = read_config(json.loads(config))
    except (ConfigError, ValueError, RecursionError) as error:
        raise AssetError(f"{CONFIG} in {path}: {error}") from error
    encode = checkpoints.encoder(folder / TOKENIZER)
    return Checkpoint(encode, special(encode), temperatures, {CONFIG: configured, TOKENIZER: tokenizer})


def special(encode: EncodeAll) -> Special:
    """The special tokens of a tokenizer. Raises `AssetError` when one of their texts is not one token."""
    found = []
    for text, tokens in zip(SPECIAL, encode(SPECIAL), strict=True):
        if len(tokens) != 1:
            raise AssetError(f"{TOKENIZER} does not have {text} as one token: not the English checkpoint")
        found += tokens
    return Special(*found)
