"""Client connections at the limit of open files: somebody idle makes room, and who is refused is told."""

from __future__ import annotations

import logging

import pytest

from frontend import limits
from frontend.serving.clients import Clients, kept_free

FILES = 100
FULL = FILES - kept_free(FILES)
"""The first descriptor that is kept free."""


class Connection:
    """One that remembers whether it was closed."""

    def __init__(self, *, busy: bool = False) -> None:
        self.busy = busy
        self.closed = False

    def is_idle(self) -> bool:
        return not self.busy

    def leave(self) -> None:
        self.closed = True


def clients(now: list[float]) -> Clients:
    return Clients(clock=lambda: now[0], files=lambda: FILES)


def test_the_longest_idle_makes_room() -> None:
    """Not one that is busy, nor one that was active since."""
    now = [0.0]
    made = clients(now)
    busy, active, longest, other = Connection(busy=True), Connection(), Connection(), Connection()
    for number, connection in enumerate((busy, active, longest, other)):
        assert made.admit(connection, number)
    made.active(active)
    now[0] = limits.CLIENT_IDLE_S
    newcomer = Connection()
    assert made.admit(newcomer, FULL)
    assert [one.closed for one in (busy, active, longest, other, newcomer)] == [False, False, True, False, False]
    made.gone(longest)
    assert made.report() == {"open": 4, "limit": FULL, "files": FILES, "ended_idle": 1, "refused": 0}


def test_where_all_are_busy_a_newcomer_is_refused() -> None:
    """And let in as soon as there is room again; what was refused is not counted as open. One that has just come may
    have sent something that has not been read yet."""
    now = [0.0]
    made = clients(now)
    assert made.admit(Connection(busy=True), FULL - 1)
    now[0] = limits.CLIENT_IDLE_S
    assert made.admit(Connection(), FULL - 1)
    refused = Connection()
    assert not made.admit(refused, FULL)
    made.gone(refused)
    assert len(made) == 2
    assert made.admit(Connection(), FULL - 1)
    assert made.report()["refused"] == 1


def test_the_log_names_the_limit_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """However many newcomers there are."""
    now = [0.0]
    made = clients(now)
    with caplog.at_level(logging.WARNING, "framehost.clients"):
        for second in range(120):
            now[0] = float(second)
            made.admit(Connection(), FULL)
    assert len(caplog.messages) == 120 / limits.FILES_WARNING_S
    assert f"the front may have {FILES} files open" in caplog.messages[0]
    assert "LimitNOFILE" in caplog.messages[0]
