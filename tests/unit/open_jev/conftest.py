"""A merged export without weights, for the whole session."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend.families.open_jev.checkpoint import Checkpoint, load


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of a released export with a small byte-level tokenizer; no weights. Read only."""
    pytest.importorskip("tokenizers", reason="the open-jev family needs framehost[torch]")
    from tests.helpers import tiny_open_jev

    return tiny_open_jev.write_texts(tmp_path_factory.mktemp("open_jev") / "tiny")


@pytest.fixture(scope="session")
def checkpoint(folder: Path) -> Checkpoint:
    """What the front makes of it."""
    return load(str(folder))
