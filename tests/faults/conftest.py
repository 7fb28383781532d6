"""Fixtures for tests with real processes."""

from __future__ import annotations

from tests.process.conftest import runtime

__all__ = ["runtime"]
