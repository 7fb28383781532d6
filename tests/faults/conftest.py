"""Fixtures for tests with real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A short, private runtime directory: socket paths have a limit that pytest's own folders can exceed."""
    path = Path(tempfile.mkdtemp(prefix="fh-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
