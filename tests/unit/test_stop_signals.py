"""Signals that ask `serve` to stop: none is lost before it can act, and none counts after it has said how it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from executor_host.supervision.stop_signals import NUMBERS, StopSignals


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    """Installed, and the test's own handlers back afterwards."""
    before = {number: signal.getsignal(number) for number in (*NUMBERS, signal.SIGHUP)}
    made = StopSignals()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_what_comes_before_somebody_listens_is_kept(signals: StopSignals, number: signal.Signals) -> None:
    """Each one: two of them mean more than one."""
    told: list[str] = []
    signal.raise_signal(number)
    signal.raise_signal(number)
    signals.tell(lambda: told.append("stop"), lambda: told.append("reload"))
    assert told == ["stop", "stop"]
    signal.raise_signal(number)
    assert told == ["stop"] * 3


@pytest.mark.parametrize("number", NUMBERS)
def test_what_comes_too_late_changes_nothing(signals: StopSignals, number: signal.Signals) -> None:
    """The status has been said."""
    told: list[str] = []
    signals.tell(lambda: told.append("stop"), lambda: told.append("reload"))
    signals.ignore()
    signal.raise_signal(number)
    assert told == []


def test_a_terminal_that_is_closed_has_the_file_read_again_and_stops_nothing(signals: StopSignals) -> None:
    """Before the server runs its file was just read; after its last line it comes too late."""
    told: list[str] = []
    signal.raise_signal(signal.SIGHUP)
    signals.tell(lambda: told.append("stop"), lambda: told.append("reload"))
    assert told == []
    signal.raise_signal(signal.SIGHUP)
    assert told == ["reload"]
    signals.ignore()
    signal.raise_signal(signal.SIGHUP)
    assert told == ["reload"]
