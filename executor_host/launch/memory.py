"""How much memory local processes have, from /proc: facts about now, never differences between two moments."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGESIZE")

POLL_S = 0.02
"""Between two looks at memory that a process group is giving back."""


def resident_bytes(pid: int) -> int:
    """Resident memory of a local process, 0 when it is gone or not ours to see. From /proc, in bytes."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * PAGE_BYTES


def group_resident_bytes(group: int) -> int:
    """Resident memory of every process in a process group, in bytes; 0 when none is left or all are dead.

    A group is what a host and whatever it has started are in, so this is the memory that its end gives back.
    """
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # The second field, the command, may hold spaces and parentheses: fields are counted after the last ")".
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended since the listing
            if int(fields[2]) == group:
                total += resident_bytes(int(entry.name))
    return total


async def freed(level: Callable[[], Awaitable[int]], *, limit_s: float) -> int:
    """Wait until `await level()` is 0, at most `limit_s` seconds; the last level seen.

    A level and not a change: what was freed before the first look must not be waited for.
    """
    deadline = asyncio.get_running_loop().time() + limit_s
    while (now := await level()) > 0 and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(POLL_S)
    return now


def checkpoint_bytes(path: str | None) -> int:
    """What is at `path`, a file or a folder with everything below it; 0 when there is nothing to be measured there.

    A first guess at what a model takes in memory, until it has been loaded once.
    """
    if path is None:
        return 0
    total = 0
    try:
        for file in [Path(path), *Path(path).rglob("*")]:
            if file.is_file():
                total += file.stat().st_size
    except OSError:
        pass  # it is being written or removed: a guess is a guess
    return total
