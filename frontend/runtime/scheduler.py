"""One unit at a time per loaded executor, first come first served.

The question this answers: who may send the next frame to the host, and when?

                 queue (FIFO, O(1) removal)            the one permit
    caller ──▶ [ unit 4 | unit 3 | unit 2 ] ──grant──▶ ( unit 1 ) ──complete / fail──┐
                                              ▲                                      │
                                              └────────── in the same step ──────────┘

The permit moves only inside `_pump`. The hand-over is synchronous: `complete()` of unit k calls the start callable of
unit k+1 before it returns, so a free permit is never visible to a newcomer and no turn of the event loop passes
between one reply and the next frame. Each unit costs one future, no task. No timer is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.dispatch import DISPATCHED, Dispatch
from frontend.runtime.queueing import EarlierWork, UnitQueue

__all__ = ["EarlierWork", "SerialScheduler"]


class SerialScheduler(UnitQueue):
    """FIFO, at most one unit dispatched."""

    __slots__ = ("_running",)

    def __init__(self, name: str = "", *, layers: Sequence[BoundedAdmission] = ()) -> None:
        super().__init__(name, layers=layers)
        self._running: Dispatch[Any] | None = None

    def _release(self, unit: Dispatch[Any]) -> None:
        self._running = None

    def _in_hand(self) -> Sequence[Dispatch[Any]]:
        return () if self._running is None else (self._running,)

    def _pump(self) -> None:
        """Grant while the permit is free and a unit waits.

        A unit that ends inside its own start callable comes back here from below: the guard
        turns that recursion into another round of the loop.
        """
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._queue and self._running is None and self._earlier is None and not self._suspended:
                self._grant(self._queue.popitem(last=False)[0])
        finally:
            self._pumping = False

    def _grant(self, head: Dispatch[Any]) -> None:
        """Decide on the head of the queue: drop cancelled, drop expired, else dispatch. Never raises."""
        unit = self._living(head)
        if unit is None:
            return
        self._running = unit
        told = self._granted(unit, DISPATCHED)
        if self._begin(unit):
            self._dispatched += 1
            self._started(told)

    def __repr__(self) -> str:
        running = self._running
        state = self._state()
        if running is not None:
            state += f" running=#{running.number}" + (" abandoned" if running.abandoned else "")
        return f"<SerialScheduler {self.name!r} {state} waiting={len(self._queue)} dispatched={self._dispatched}>"
