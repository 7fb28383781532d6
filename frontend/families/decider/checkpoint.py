"""What the front needs of a Decider checkpoint: its tokenizer and its temperatures, read from the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.decider.config import ConfigError, Temperatures, read_config
from frontend.families.decider.tokens import NoLabels, Vocabulary

TOKENIZER: Final = "tokenizer.json"
CONFIG: Final = "decider_config.json"
FILES: Final = (TOKENIZER, CONFIG)

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""decider_config.json. The released one has 1,240; what is a thousand times larger is another file."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The front's share of one checkpoint. Shared by all requests, and nothing of it ever changes."""

    vocabulary: Vocabulary
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
    try:
        vocabulary = Vocabulary.of(lambda text: encode([text])[0])
    except NoLabels as error:
        raise AssetError(f"{TOKENIZER} in {path}: {error}") from error
    return Checkpoint(vocabulary, temperatures, {CONFIG: configured, TOKENIZER: tokenizer})
