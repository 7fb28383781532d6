"""Fixtures of the supervisor's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.conftest import short_directory


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A fresh short directory: socket paths have a limit that pytest's own folders can exceed."""
    with short_directory() as path:
        yield path
