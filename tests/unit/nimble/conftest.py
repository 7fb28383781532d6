"""The front's half of a checkpoint, whose tokenizer has a token per character."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend.families import checkpoints
from frontend.families.nimble.processor import NimbleProcessor
from tests.unit.nimble.helpers import Letters, write_texts


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the front reads, and no weights. Read only."""
    return write_texts(tmp_path_factory.mktemp("nimble") / "letters")


@pytest.fixture(scope="session")
def front(texts: Path) -> NimbleProcessor:
    """A processor of that folder, with a host's temperature of 2."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoints, "tokenizer", lambda file: Letters())
        bare = NimbleProcessor({}, {}, str(texts))
        facts = {"files": dict(bare.checkpoint.sha256), "temperature": 2.0}
        return NimbleProcessor(facts, {"max_length": 4096}, str(texts))
