"""The deadlines of all requests with one timer of the loop, instead of one each.

Most requests have the server's own time budget, so they expire in the order in which they came: they are kept in that
order, and only the first is waited for. One that expires before the last of them gets a timer of its own.

    with deadlines.at(instant): ...     as `asyncio.timeout_at`, which makes and cancels a timer every time
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any, Self


class Deadlines:
    """Belongs to the event loop's thread. Instants are on the loop's clock, in seconds."""

    __slots__ = ("_due", "_last", "_loop", "_queue", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: dict[Deadline, None] = {}
        """Those that are waited for together, in the order of their instants."""
        self._last = -math.inf
        """No instant in the queue is later."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        """What the timer was set to: never later than the first of the queue."""

    def at(self, instant: float) -> Deadline:
        """A block that is cancelled, and raises `TimeoutError`, once the clock shows `instant`."""
        return Deadline(self, instant)

    # For Deadline

    def add(self, deadline: Deadline) -> asyncio.Handle | None:
        """Have `deadline` expire at its instant; the handle that it has to itself, if there is one."""
        instant = deadline.instant
        if instant <= self._loop.time():
            return self._loop.call_soon(deadline.expire)
        if self._queue and instant < self._last:
            return self._loop.call_at(instant, deadline.expire)
        self._queue[deadline] = None
        self._last = instant
        if self._timer is None or self._due > instant:
            self._set(instant)
        return None

    def remove(self, deadline: Deadline) -> None:
        """It is over. The timer stays, for those behind it."""
        self._queue.pop(deadline, None)

    def _set(self, instant: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = instant
        self._timer = self._loop.call_at(instant, self._expire)

    def _expire(self) -> None:
        # A loop that counts in milliseconds may call this a moment before its clock shows the instant.
        now = max(self._due, self._loop.time())
        self._timer, self._due = None, math.inf
        over = []
        for deadline in self._queue:
            if deadline.instant > now:
                self._set(deadline.instant)
                break
            over.append(deadline)
        for deadline in over:
            del self._queue[deadline]
            deadline.expire()


class Deadline:
    """One use of `Deadlines.at`. Cancelled from outside, it is as if it were not there."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_handle", "_task", "instant")

    def __init__(self, deadlines: Deadlines, instant: float) -> None:
        self.instant = instant
        self._deadlines = deadlines
        self._task: asyncio.Task[Any] | None = None
        self._handle: asyncio.Handle | None = None
        self._cancelling = 0
        self._expired = False

    def expire(self) -> None:
        """Cancel the block. For `Deadlines`."""
        if self._task is not None:
            self._expired = True
            self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None or self._task is not None:
            raise RuntimeError("a deadline is entered once, inside a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._handle = self._deadlines.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._handle is not None:
            self._handle.cancel()
        elif not self._expired:
            self._deadlines.remove(self)
        # As `asyncio.timeout` has it: a cancellation from outside that came as well is passed on as what it is.
        if self._expired and task is not None and task.uncancel() <= self._cancelling:  # noqa: SIM102
            if kind is asyncio.CancelledError:
                raise TimeoutError from error
