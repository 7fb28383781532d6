"""A checkpoint without weights, and what the front makes of it, for the whole session."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend.families.cua_s1.processor import CuaS1Processor
from tests.unit.cua_s1.helpers import facts_of


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts of a checkpoint with a small byte-level tokenizer; no weights. Read only."""
    pytest.importorskip("tokenizers", reason="the cua-s1 family needs framehost[torch]")
    from tests.helpers import tiny_cua_s1

    path = tmp_path_factory.mktemp("cua-s1") / "tiny"
    tiny_cua_s1.write_texts(path)
    return path


@pytest.fixture(scope="session")
def processor(folder: Path) -> CuaS1Processor:
    """The front's half after a host was up."""
    return CuaS1Processor(facts_of(folder), {}, str(folder))
