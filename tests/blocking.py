"""Calls that would block an event loop, made by our code while one runs, are errors in every test.

`blockbuster` wraps what waits for a disk, a socket, a lock or the clock. A call counts when a function of framehost is
on the stack, so a test may read a file wherever it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from blockbuster import BlockBuster

OURS: Final = ("frontend", "executor_host", "protocol", "supervisor")

ALLOWED: Final = {
    "executor_host/launch/remote.py": {
        "__init__": "looks its own version up at the start, before there is anybody to wait",
    },
    "executor_host/launch/reaper.py": {
        "__init__": "forks and executes once, as the loop itself does for each child",
    },
    "executor_host/launch/ray_hosts.py": {
        "start": "writes into a file that is in memory alone",
    },
    "executor_host/supervision/directory.py": {
        "__init__": "makes the runtime directory at the start, before there is anybody to wait",
        "incarnation": "makes one folder per start of a process; the runtime directory is local and holds no data",
        "restore": "looks at one folder, and makes it anew where a cleaner took it",
        "publish": "writes a few bytes into the runtime directory, once per start of a front",
        "close": "removes the runtime directory at the end",
    },
    "frontend/http/exposition.py": {
        "metrics": "reads its own process's numbers under /proc, where no disk is behind the files",
    },
    "frontend/http/openapi.py": {
        "_data": "reads a file of the package, once for the life of the process",
    },
    "protocol/transport/authentication.py": {
        "in_thread": "is the host's, which has no loop",
    },
    "protocol/transport/keys.py": {
        "create": "is the command `framehost curve`, which has no loop; tests make their keys with it",
        "read_pair": "is read at the start, before there is anybody to wait",
        "_read": "is read at the start, before there is anybody to wait",
        "read_allowed": "is read at the start, before there is anybody to wait",
    },
}
"""By file and function: what it waits for on the loop, and why it may."""


@cache
def _guard() -> BlockBuster:
    guard = BlockBuster(scanned_modules=list(OURS))
    for function in guard.functions.values():
        for file, reasons in ALLOWED.items():
            function.can_block_in(file, set(reasons))
    return guard


@contextmanager
def forbidden() -> Iterator[None]:
    """For as long as the block lasts, in this process."""
    guard = _guard()
    guard.activate()
    try:
        yield
    finally:
        guard.deactivate()
