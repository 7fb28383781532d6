"""Processes without a parent: as process 1 of a container the supervisor inherits them, and has to wait for them.

What a host has started and not waited for becomes a child of process 1 when the host ends. Dead and not waited for,
it stays in the process table for ever. Our own children are waited for where they were started, and are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path


def reap(ours: Collection[int]) -> list[int]:
    """Wait for every dead child of this process that is not one of `ours`; their process ids. Never blocks."""
    reaped = []
    for pid in _children():
        if pid not in ours:
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    reaped.append(pid)
            except ChildProcessError:
                pass  # another waiter has waited for it since the listing
    return reaped


def _children() -> list[int]:
    """The processes whose parent we are. From /proc; empty where there is none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may contain anything, so the fields are counted from its end.
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since the listing
        if int(fields[1]) == os.getpid():
            found.append(int(entry.parent.name))
    return found
