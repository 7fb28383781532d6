"""A tiny checkpoint for the whole session, with and without weights."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of the released checkpoint with a small byte-level tokenizer; no weights. Read only."""
    pytest.importorskip("tokenizers", reason="the laya family needs framehost[torch]")
    from tests.helpers import tiny_laya

    path = tmp_path_factory.mktemp("laya") / "texts"
    tiny_laya.write_texts(path)
    return path


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with random weights. Read only."""
    for module in ("torch", "transformers", "tokenizers", "safetensors"):
        pytest.importorskip(module, reason="the laya family needs framehost[torch]")
    from tests.helpers import tiny_laya

    return tiny_laya.write(tmp_path_factory.mktemp("laya") / "whole")
