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
        self.left = 0
        """Bytes that it has not read."""
        self.answers = 0

    def is_idle(self) -> bool:
        return not self.busy

    def unwritten(self) -> int:
        return self.left

    def answered(self) -> int:
        return self.answers

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
    assert made.report() == {"open": 4, "limit": FULL, "files": FILES, "ended_idle": 1, "aborted": 0, "refused": 0}


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


def test_who_does_not_read_an_answer_in_time_is_aborted() -> None:
    """One that reads, one that has read, and one that asks on are left alone; slowly is not fast enough for ever."""
    now = [0.0]
    made = clients(now)
    silent, slow, reader, asking = (Connection(busy=True) for _ in range(4))
    for number, connection in enumerate((silent, slow, reader, asking)):
        made.admit(connection, number)
    silent.left = reader.left = asking.left = 1_000
    slow.left = 30 * limits.WRITE_BYTES_PER_S
    made.sweep()
    assert made.unwritten() == 4
    reader.left = 0
    now[0] = limits.WRITE_S - 1
    made.sweep()
    assert not any(connection.closed for connection in (silent, slow, reader, asking))
    asking.answers += 1
    slow.left -= 10 * limits.WRITE_BYTES_PER_S
    now[0] = limits.WRITE_S
    made.sweep()
    assert [connection.closed for connection in (silent, slow, reader, asking)] == [True, False, False, False]
    assert (made.report()["aborted"], len(made)) == (1, 3)
    asking.answers += 1
    slow.left -= 9 * limits.WRITE_BYTES_PER_S
    now[0] = 2 * limits.WRITE_S
    made.sweep()
    assert slow.closed
    assert not asking.closed
