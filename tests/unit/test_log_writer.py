"""The log's own thread: nobody waits for a reader, and what is lost is counted and said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor_host.supervision.log_writer import LogWriter
from tests.process.harness import GUARD_S, wait_for

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass  # the test has


def filled(descriptor: int) -> None:
    """Write until the pipe takes no more."""
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(descriptor, True)


def test_everything_is_there_in_order_when_it_is_closed(pipe: Pipe) -> None:
    """What was said last before the end is what people look for first."""
    reader, writer = pipe
    log = LogWriter(writer)
    for number in range(100):
        log.write(f"line {number}\n")
    log.close(GUARD_S)
    assert os.read(reader, 65536).decode().splitlines() == [f"line {number}" for number in range(100)]
    assert log.lost == 0


def test_what_a_sleeping_reader_missed_is_counted_and_said(pipe: Pipe) -> None:
    """Beyond the bound lines are lost, never kept without end; the log says how many where they are missing."""
    reader, writer = pipe
    filled(writer)
    log = LogWriter(writer, max_kept_bytes=20)
    for text in ("kept 1\n", "kept 2\n", "lost 1\nlost 2\n", "lost 3\n"):
        log.write(text)
    assert log.lost == 3
    while os.read(reader, 65536).endswith(b"x"):
        pass
    wait_for(lambda: "kept=0" in repr(log), "what was kept is written")
    log.write("after\n")
    log.close(GUARD_S)
    assert os.read(reader, 65536).endswith(b"[framehost] 3 lines of this log were lost: it was not taken\nafter\n")


def test_a_reader_who_has_left_costs_lines_and_nothing_else(pipe: Pipe) -> None:
    """An error of the system is no error of whoever has something to say."""
    reader, writer = pipe
    os.close(reader)
    log = LogWriter(writer)
    log.write("one\n")
    wait_for(lambda: log.lost == 1, "it is counted")
    log.close(GUARD_S)


def test_a_disk_that_was_full_is_said_to_have_been(tmp_path: Path) -> None:
    """Each lost line is counted once, however often the log could not be told of them."""
    full, room = os.open("/dev/full", os.O_WRONLY), os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    log = LogWriter(full)
    for number in range(3):
        log.write("a line\n")
        wait_for(lambda: "kept=0" in repr(log), f"write {number} has failed")
    os.dup2(room, full)
    log.write("there is room again\n")
    log.close(GUARD_S)
    for descriptor in (full, room):
        os.close(descriptor)
    said = (tmp_path / "log").read_text()
    assert said == "[framehost] 3 lines of this log were lost: it was not taken\nthere is room again\n"
    assert log.lost == 3


def test_a_descriptor_that_others_made_non_blocking_is_waited_for(pipe: Pipe) -> None:
    """A terminal is shared with the programs that were started from it."""
    reader, writer = pipe
    filled(writer)
    os.set_blocking(writer, False)
    log = LogWriter(writer)
    log.write("said\n")
    while not os.read(reader, 65536).endswith(b"said\n"):
        pass
    log.close(GUARD_S)
    assert log.lost == 0


def test_the_end_does_not_wait_for_a_reader_who_sleeps(pipe: Pipe) -> None:
    """`close` gives up; the descriptor is still the process's."""
    _, writer = pipe
    filled(writer)
    log = LogWriter(writer)
    log.write("never read\n")
    log.close(0.01)
    os.fstat(writer)
