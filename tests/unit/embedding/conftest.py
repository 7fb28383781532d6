"""The front's files of a sentence encoder, for the whole session."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend.families.embedding.processor import EmbeddingProcessor


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a word-piece tokenizer and no weights. Read only."""
    pytest.importorskip("tokenizers", reason="the embedding family needs framehost[torch]")
    from tests.helpers import tiny_embedding

    return tiny_embedding.write_texts(tmp_path_factory.mktemp("embedding") / "texts")


@pytest.fixture(scope="session")
def processor(texts: Path) -> EmbeddingProcessor:
    """With its default options."""
    return EmbeddingProcessor({}, {}, str(texts))
