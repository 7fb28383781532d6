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
    """The processes whose parent we are, as the kernel lists them for each of our threads; empty where it does not. The
    table of all processes is not walked through: a machine may have many, and this is the supervisor's loop."""
    found = []
    for thread in Path("/proc/self/task").glob("*/children"):
        try:
            found += [int(pid) for pid in thread.read_text().split()]
        except OSError:
            continue  # the thread has ended since the listing
    return found
