"""What the front needs of a Decider checkpoint: its tokenizer and its temperatures, read from the folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from frontend.families import assets
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

    def check_against(self, files: object) -> None:
        """Raises `AssetError` unless `files`, of the host's facts, names the same contents for `FILES`."""
        assets.check_against(self.sha256, files)


def load(path: str | None) -> Checkpoint:
    """The checkpoint in the folder `path`. Raises `AssetError`. The same object while the files stay the same."""
    if path is None:
        raise AssetError("this family needs the path of a checkpoint folder")
    return _load(path, assets.signature([Path(path, name) for name in FILES]))


@lru_cache(maxsize=assets.KEPT)
def _load(path: str, signature: assets.Signature) -> Checkpoint:
    folder = Path(path)
    try:
        with (folder / CONFIG).open("rb") as file:
            config = file.read(MAX_CONFIG_BYTES)
        temperatures = read_config(json.loads(config))
        sums = {CONFIG: hashlib.sha256(config).hexdigest()}
        with (folder / TOKENIZER).open("rb") as file:
            sums[TOKENIZER] = hashlib.file_digest(file, "sha256").hexdigest()
        encode = assets.encoder(folder / TOKENIZER)
        vocabulary = Vocabulary.of(lambda text: encode([text])[0])
    except OSError as error:
        raise AssetError(f"the checkpoint cannot be read: {error}") from error
    except (ConfigError, ValueError, RecursionError) as error:
        name = TOKENIZER if isinstance(error, NoLabels) else CONFIG
        raise AssetError(f"{name} in {path}: {error}") from error
    return Checkpoint(vocabulary, temperatures, sums)
