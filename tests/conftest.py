"""What holds for all tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from executor_host.supervision.stop_signals import NUMBERS
from tests import blocking

HEAVY = ("torch", "transformers")
"""What `--without-torch` makes impossible to import; each costs seconds before the first test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-fast`: what does not need torch; the tests that do are skipped, and say so."""
    parser.addoption("--without-torch", action="store_true", help="skip what needs torch, as if it were not installed")


def pytest_configure(config: pytest.Config) -> None:
    """A shell that runs us in the background has Ctrl-C ignored, and whoever we start would inherit that."""
    if config.getoption("without_torch"):
        assert not set(HEAVY) & set(sys.modules)
        sys.modules.update(dict.fromkeys(HEAVY))  # type: ignore[arg-type]  # None: the import is an error
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals_are_as_they_were() -> Iterator[None]:
    """`serve` ends by ignoring the requests to stop; where a test calls it, later ones would start deaf processes."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _loops_are_not_blocked() -> Iterator[None]:
    """A call that waits, made by our code on an event loop, is an error in the test that does it."""
    with blocking.forbidden():
        yield
