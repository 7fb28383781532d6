"""Whether a process answers: it is asked now and then, and how long it has owed the answer is known.

That informs people and readiness. It kills a process only where a limit was given, and then only one that has been
silent for all of it: a heartbeat that is missed under load must not end a process that works. Pure; the clock is
passed in.
"""

from __future__ import annotations

ASK_EVERY_S = 2.0
"""Between an answer and the next question."""

SILENT_S = 5.0
"""A process that has owed an answer for this long, or for half of its limit, is not relied upon."""


class Watchdog:
    """The questions to one process. It owes an answer from the start: to our HELLO."""

    def __init__(self, now: float, limit_s: float | None = None) -> None:
        """`limit_s`: how long it may be silent; None: for ever."""
        self.limit_s = limit_s
        self._asked_at: float | None = now
        self._next_at = now
        self._suspected = False

    def due(self, now: float) -> bool:
        """Whether to ask now. If so, the answer is owed from now on."""
        if self._asked_at is not None or now < self._next_at:
            return False
        self._asked_at = now
        return True

    def answered(self, now: float) -> None:
        """It has answered, whatever it was asked."""
        self._asked_at, self._suspected = None, False
        self._next_at = now + ASK_EVERY_S

    def silent_s(self, now: float) -> float:
        """For how long it has owed an answer; 0 when it owes none."""
        return 0.0 if self._asked_at is None else now - self._asked_at

    def answers(self, now: float) -> bool:
        """Whether it can be relied upon to answer, as far as is known."""
        return self.silent_s(now) < min(SILENT_S, SILENT_S if self.limit_s is None else self.limit_s / 2)

    def stalled(self, now: float) -> bool:
        """Whether it has been silent for longer than its limit, at two looks in a row: if it was us who stood still,
        the answer is read between the two."""
        over = self.limit_s is not None and self.silent_s(now) >= self.limit_s
        before, self._suspected = self._suspected, over
        return over and before
