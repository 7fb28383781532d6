"""Where pure computation for one request runs: small on the loop, large in a bounded pool of threads.

A thread does not make Python faster, and it shares the interpreter with the loop; what it gives is that the
loop gets a turn every few milliseconds while a large body is parsed, validated or rendered, so that health,
cancellation and other requests go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from frontend import limits
from frontend.runtime.context import ExecutionContext

T = TypeVar("T")


def fits_inline(size: int) -> bool:
    """Whether work on `size` bytes is done before anyone notices."""
    return size <= limits.INLINE_WORK_BYTES


async def in_pool(pool: Executor, context: ExecutionContext, work: Callable[[], T]) -> T:
    """Run `work` in `pool` and return what it returns; what it raises is raised here.

    The request's permits stay held until the thread is done, also when the caller is cancelled: a thread
    cannot be stopped, so the reservation goes with the job. A job that has not begun when the request is over
    raises `ExecutionStopped` instead of beginning.
    """
    owner = context.clone()

    def guarded() -> T:
        owner.check()
        return work()

    loop = asyncio.get_running_loop()
    job = pool.submit(guarded)
    # Not on the awaitable: that one is done as soon as its caller is cancelled, while the thread goes on.
    job.add_done_callback(lambda _: loop.call_soon_threadsafe(owner.close))
    return await asyncio.wrap_future(job, loop=loop)


async def wherever(pool: Executor, context: ExecutionContext, size: int, work: Callable[[], T]) -> T:
    """What `work` on `size` bytes returns: done here when small, else as `in_pool`."""
    return work() if fits_inline(size) else await in_pool(pool, context, work)
