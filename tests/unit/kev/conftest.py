"""A merged checkpoint without weights, for the whole session."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontend.families import checkpoints
from tests.helpers import tiny_kev
from tests.unit.kev.helpers import letters


@pytest.fixture(scope="session", autouse=True)
def _tokenizer() -> Iterator[None]:
    """Where the package tokenizers is missing, a token is a character: what is tested here does not depend on it."""
    with pytest.MonkeyPatch.context() as patched:
        if sys.modules.get("tokenizers", True) is None or importlib.util.find_spec("tokenizers") is None:
            patched.setattr(checkpoints, "encoder", lambda file: letters)
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the front reads, and no weights. Read only."""
    return tiny_kev.write_texts(tmp_path_factory.mktemp("kev") / "tiny")
