"""A checkpoint without weights, and its vocabulary, for the whole session."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend.families.decider.tokens import Vocabulary


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of the released checkpoint with a small byte-level tokenizer; no weights. Read only."""
    pytest.importorskip("tokenizers", reason="the decider family needs framehost[torch]")
    from tests.helpers import tiny_decider

    path = tmp_path_factory.mktemp("decider") / "tiny"
    tiny_decider.write_texts(path)
    return path


@pytest.fixture(scope="session")
def vocabulary(folder: Path) -> Vocabulary:
    """What the front makes of that tokenizer."""
    from frontend.families.decider.checkpoint import load

    return load(str(folder)).vocabulary
