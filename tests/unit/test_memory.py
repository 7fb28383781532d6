"""What processes have in memory, as levels."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from executor_host.launch import memory


def looks(levels: Iterator[int]) -> Callable[[], Awaitable[int]]:
    """The levels that somebody sees who looks again and again."""

    async def look() -> int:
        return next(levels)

    return look


async def test_memory_that_comes_back_late_is_waited_for() -> None:
    """The level lags behind the end of the process: not done before it is 0."""
    levels = iter([300, 300, 200, 0])
    assert await memory.freed(looks(levels), limit_s=30.0) == 0
    assert list(levels) == []


async def test_memory_that_is_back_already_is_not_waited_for() -> None:
    """Nothing changes any more, and nothing has to: one look is enough."""
    levels = iter([0])
    assert await memory.freed(looks(levels), limit_s=30.0) == 0


async def test_memory_that_does_not_come_back_is_told_and_not_waited_for_for_ever() -> None:
    """The last level, after the limit."""
    assert await memory.freed(looks(itertools.repeat(7)), limit_s=0.05) == 7


def test_a_group_is_the_process_and_what_it_has_started() -> None:
    """Children count, and so does a process of whatever name; a group without members has nothing."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert memory.group_resident_bytes(process.pid) > memory.resident_bytes(process.pid) > 2**20
        process.communicate(b"\n")
    assert memory.group_resident_bytes(process.pid) == 0
    assert memory.resident_bytes(os.getpid()) > 2**20


def test_a_checkpoint_is_a_file_or_everything_in_a_folder(tmp_path: Path) -> None:
    """What is not there takes nothing."""
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "below" / "b").write_bytes(b"123")
    assert memory.checkpoint_bytes(str(tmp_path)) == 8
    assert memory.checkpoint_bytes(str(tmp_path / "a")) == 5
    assert memory.checkpoint_bytes(str(tmp_path / "no")) == memory.checkpoint_bytes(None) == 0
