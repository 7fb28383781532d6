"""When a host has owed an answer for too long: one timer per link, which costs a healthy unit two assignments.

The host owes an answer from the moment it is dialled until its WELCOME, and from the moment a unit is sent, or
found running for an earlier front, until its reply or its idle report. The front knows all of these and the host
cannot be asked: it may hold the interpreter lock, or be stopped. What follows is the supervisor's affair. Time in which
the front itself stood still (a frozen container) does not count.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

CONFIRM_S = 0.25
"""How long an expired timer waits before it counts. A front that was itself stopped for longer than the limit finds
the timer expired and the answer unread; in this time it reads."""


LOOK_S = 1.0
"""Between two looks at what is owed. More lateness than `LATE_S` of one of them is time in which we stood still."""

LATE_S = 2.0


class OverdueWatch:
    """Calls `on_overdue(seconds)` once when one answer has been owed for `limit_s` seconds; None: never.

    Belongs to the event loop's thread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_s: float | None, on_overdue: Callable[[float], None]
    ) -> None:
        self._loop = loop
        self._limit_s = limit_s
        self._on_overdue = on_overdue
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer is to fire."""

    def owed(self) -> None:
        """From now on the host owes an answer; a former one no longer counts."""
        self._since = self._loop.time()
        if self._limit_s is not None and self._timer is None:
            self._look_in(min(self._limit_s, LOOK_S), self._look)

    def answered(self) -> None:
        """The answer is there. The timer stays, for whatever is owed next."""
        self._since = None

    @property
    def owed_s(self) -> float:
        """For how long the host has owed its answer; 0 when it owes none."""
        return 0.0 if self._since is None else self._loop.time() - self._since

    def close(self) -> None:
        """The link has ended: nothing is owed any more. Idempotent."""
        self._since, self._limit_s = None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float, look: Callable[[], None]) -> None:
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._due, look)

    def _forgive(self) -> None:
        """Take the time in which we stood still, and the host perhaps with us, off what it owes."""
        self._timer = None
        late = self._loop.time() - self._due
        if self._since is not None and late > LATE_S:
            self._since = min(self._since + late, self._loop.time())

    def _look(self) -> None:
        self._forgive()
        if self._since is None or self._limit_s is None:
            return
        left = self._since + self._limit_s - self._loop.time()
        if left > 0:
            self._look_in(min(left, LOOK_S), self._look)
        else:
            self._look_in(CONFIRM_S, functools.partial(self._confirm, self._since))

    def _confirm(self, since: float) -> None:
        self._forgive()
        if self._since == since:
            owed_s = self.owed_s
            self.close()
            self._on_overdue(owed_s)
        elif self._since is not None:
            self._look()
