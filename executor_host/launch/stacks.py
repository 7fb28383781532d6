"""What a process was doing before it is killed for taking too long: its stacks, in its own output.

Hosts and fronts register faulthandler for SIGUSR1, which writes from the signal handler itself: it needs neither
the interpreter lock nor a running event loop, and so works in the middle of a C call. It cannot work in a process
that is stopped, and need not in one that has other plans for the signal; then there are no stacks, which is said.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from executor_host.launch.base import ProcessHandle

DUMP_WAIT_S = 2.0
"""How long the stacks may take to arrive. Dozens of threads are written within milliseconds."""

QUIET_S = 0.1
"""Output that has begun and then paused for this long is taken to be complete."""

POLL_S = 0.02


async def dump(handle: ProcessHandle) -> str:
    """Ask for the stacks and wait until they are in `handle.last_words()`; returns what to say when they are not."""
    if handle.pid == 0:
        return "it runs elsewhere, so there are no stacks"
    if stopped(handle.pid):
        return "it is stopped (SIGSTOP, or a debugger), so there are no stacks"
    before = seen = handle.last_words()
    handle.send_signal(signal.SIGUSR1)
    quiet = 0.0
    try:
        async with asyncio.timeout(DUMP_WAIT_S):
            while seen == before or quiet < QUIET_S:
                await asyncio.sleep(POLL_S)
                now = handle.last_words()
                quiet = quiet + POLL_S if now == seen else 0.0
                seen = now
    except TimeoutError:
        pass
    return "" if seen != before else f"its stacks did not come within {DUMP_WAIT_S:g} s"


def stopped(pid: int) -> bool:
    """Whether a local process is stopped; False when there is none."""
    try:
        # The name in parentheses may contain anything, so the fields are counted from its end.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")
