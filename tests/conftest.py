"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from executor_host.supervision.stop_signals import NUMBERS


def pytest_configure() -> None:
    """A shell that runs us in the background has Ctrl-C ignored, and whoever we start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals_are_as_they_were() -> Iterator[None]:
    """`serve` ends by ignoring the requests to stop; where a test calls it, later ones would start deaf processes."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
