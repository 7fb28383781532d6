"""Work that waits for a disk or walks through the process table, done beside the event loop, which must not.

A thread that hangs in a system call cannot be ended, and a pool would wait for it at the end of the process. So each
piece of work has a daemon thread of its own, and is given up after a limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], *, limit_s: float) -> T:
    """What `work()` returns or raises, from a thread of its own. Raises `TimeoutError` when it has not ended after
    `limit_s` seconds; then, and when this is cancelled, it goes on and its result is lost."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)  # type: ignore[arg-type]
        else:
            outcome.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop has ended: no caller waits any more

    threading.Thread(target=run, name="aside", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await outcome
