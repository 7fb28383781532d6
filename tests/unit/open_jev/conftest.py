"""A merged export without weights, for the whole session."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontend.families import checkpoints
from frontend.families.open_jev.checkpoint import Checkpoint, load
from tests.helpers import tiny_open_jev
from tests.unit.open_jev.helpers import letters


@pytest.fixture(scope="session", autouse=True)
def _tokenizer() -> Iterator[None]:
    """Where the package tokenizers is missing, a token is a character: what is tested here does not depend on it."""
    with pytest.MonkeyPatch.context() as patched:
        if sys.modules.get("tokenizers", True) is None or importlib.util.find_spec("tokenizers") is None:
            patched.setattr(checkpoints, "encoder", lambda file: letters)
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of a released export with a small byte-level tokenizer; no weights. Read only."""
    return tiny_open_jev.write_texts(tmp_path_factory.mktemp("open_jev") / "tiny")


@pytest.fixture(scope="session")
def checkpoint(folder: Path) -> Checkpoint:
    """What the front makes of it."""
    return load(str(folder))
