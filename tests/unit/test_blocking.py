"""A call that blocks an event loop is an error where our code makes it, and nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from blockbuster import BlockingError

from frontend.configuration.toml_file import TomlDocument
from tests import blocking

ROOT = Path(__file__).resolve().parents[2]


def document(folder: Path) -> Path:
    """A file that our code reads with a call that blocks."""
    file = folder / "some.toml"
    file.write_text("a = 1\n")
    return file


async def test_our_code_may_not_block_a_loop(tmp_path: Path) -> None:
    """Reading a file is one of the calls; in a thread it is fine, and so is a test that reads for itself."""
    file = document(tmp_path)
    with pytest.raises(BlockingError):
        TomlDocument.read(file)
    assert (await asyncio.to_thread(TomlDocument.read, file)).content == {"a": 1}
    assert file.read_text() == "a = 1\n"


def test_without_a_loop_it_may(tmp_path: Path) -> None:
    """Commands, and what runs before there is a loop."""
    assert TomlDocument.read(document(tmp_path)).content == {"a": 1}


def test_the_exceptions_are_there() -> None:
    """Each names a function that its file has: one that was moved is moved here, too."""
    for file, reasons in blocking.ALLOWED.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        for function in reasons:
            assert f"def {function}(" in text, (file, function)
