"""Fixtures for tests with real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def short_directory() -> Iterator[Path]:
    """A short, private directory: socket paths have a limit that pytest's own folders can exceed."""
    path = Path(tempfile.mkdtemp(prefix="fh-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A fresh short directory, for the runtime directory and for the files of one test."""
    with short_directory() as path:
        yield path
