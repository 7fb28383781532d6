"""Several units at a time per loaded executor: those that wait when it becomes free and may be read in one pass.

            queue (FIFO)                                   window of the host
    [ 9 | 8 | 7 | 6 | 5 ] ──grant──▶ ( 3 4 ) staged ──▶ ( 1 2 ) executed ──complete / fail──┐
                               ▲                                                            │
                               └──── when the last one has ended, in the same step ─────────┘

A batch is the head of the queue and, in queue order, each further unit that is compatible with it and fits. *Greedy*:
no unit waits for company, unless `wait_s` says so, and then only while the executor is idle. The head is never passed
over, and a unit that does not fit is passed by `overtakes` later ones at most; then the batch closes before it. The
permit belongs to the batch: the next one is granted when its last unit has ended.

With look-ahead, one further batch may be sent while one is executed: it is *staged*, which is not started. A caller
that leaves it in time has the host told, and a unit that the host has not begun with then is withdrawn. Started is
announced when the batch before has ended, because the host begins with the next frame at once. At most one frame is
sent ahead for each that is executed, whatever became of the units in it: what waits in a socket stays bounded.

With one unit to a batch and no look-ahead it does what SerialScheduler does, in the same order (a property test).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.dispatch import DISPATCHED, STAGED, Dispatch, Phase
from frontend.runtime.joining import twin
from frontend.runtime.queueing import Told, UnitQueue
from frontend.runtime.shape import BatchLimits, Room

T = TypeVar("T")

LOOK: Final = 256
"""Waiting units that a grant looks at beyond the limit of units: what does not fit must not make a grant cost as much
as the queue is long."""


def _nothing() -> None:
    """Every start callable has sent its own unit."""


class BatchScheduler(UnitQueue):
    """At most one batch dispatched and, with `look_ahead`, one staged.

    `flush()` is called when all start callables of a batch have been called, if one of its units is still to be
    executed: what they have collected is sent then. It must not wait. What it raises is the end of those units, which
    count as not dispatched.
    """

    __slots__ = ("_ahead", "_flush", "_look_ahead", "_patience", "_running", "_staged", "limits")

    def __init__(
        self,
        name: str = "",
        *,
        layers: Sequence[BoundedAdmission] = (),
        limits: BatchLimits | None = None,
        look_ahead: bool = False,
        flush: Callable[[], None] = _nothing,
    ) -> None:
        super().__init__(name, layers=layers)
        self.limits: Final = limits or BatchLimits()
        self._look_ahead = look_ahead
        self._flush = flush
        # Dictionaries for their order.
        self._running: dict[Dispatch[Any], None] = {}
        self._staged: dict[Dispatch[Any], None] = {}
        self._ahead = False
        """Whether a frame was sent ahead since the running batch began."""
        self._patience: asyncio.TimerHandle | None = None
        """Until when an idle executor waits for company of the first unit."""

    def _release(self, unit: Dispatch[Any]) -> None:
        if unit in self._running:
            del self._running[unit]
        else:
            del self._staged[unit]

    def _in_hand(self) -> Sequence[Dispatch[Any]]:
        return (*self._running, *self._staged)

    def _arrived(self) -> None:
        """A unit has come. An idle executor may wait for more, once, if it is told to."""
        limits = self.limits
        if limits.wait_s and not self._running and self._queue and len(self._queue) < limits.units:
            if self._patience is None:
                self._patience = asyncio.get_running_loop().call_later(limits.wait_s, self._pump)
            return
        self._pump()

    def _pump(self) -> None:
        """Grant while the window has room and a unit waits; see `SerialScheduler._pump`."""
        if self._pumping:
            return
        self._pumping = True
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        try:
            while not self._suspended and self._earlier is None:
                if not self._running:
                    self._ahead = False
                    if self._staged:
                        self._promote()
                        continue
                if not self._queue:
                    break
                if not self._running:
                    self._grant(self._running, DISPATCHED)
                elif self._look_ahead and not self._ahead:
                    self._grant(self._staged, STAGED)
                    self._ahead = bool(self._staged)
                else:
                    break
        finally:
            self._pumping = False

    def unit_completed(self, unit: Dispatch[T], result: T) -> None:
        """`unit` ended with a result. One that is staged has been started after all, or there would be none."""
        if unit in self._staged:
            self._announce(unit)
        super().unit_completed(unit, result)

    def _promote(self) -> None:
        """The host begins with what was staged."""
        self._running, self._staged = self._staged, {}
        for unit in tuple(self._running):
            unit.phase = DISPATCHED
            self._announce(unit)

    def _announce(self, unit: Dispatch[Any]) -> None:
        """Started, for a unit that was sent ahead."""
        self._dispatched += 1
        callers = (unit, *(unit.joined or ()))
        # Of who has left, the host may have been told in time: it may not begin with that.
        self._started([(each, each.observer()) for each in callers if not each.abandoned])

    def _grant(self, batch: dict[Dispatch[Any], None], phase: Phase) -> None:
        """Fill `batch` from the head of the queue on, and send it. Never raises."""
        limits, room = self.limits, Room(self.limits)
        passed: list[Dispatch[Any]] = []
        begun: list[tuple[Dispatch[Any], Told]] = []
        # A list of its own: what is called here may take units out of the queue, and may suspend it.
        for place in list(islice(self._queue, limits.units + LOOK)):
            if room.full or self._suspended or any(other.passed >= limits.overtakes for other in passed):
                break
            if place not in self._queue:
                continue
            if not room.fits(place.shape):
                passed.append(place)
                continue
            del self._queue[place]
            unit = self._living(place)
            if unit is None:
                continue
            room.add(unit.shape)
            for other in passed:
                other.passed += 1
            batch[unit] = None
            told = self._granted(unit, phase)
            if self._begin(unit):
                begun.append((unit, told))
        if batch:
            self._batches += 1
            self._send(batch, begun)
        if phase is DISPATCHED:
            for _, told in begun:
                self._dispatched += 1
                self._started(told)

    def _send(self, batch: dict[Dispatch[Any], None], begun: list[tuple[Dispatch[Any], Told]]) -> None:
        """Flush what the start callables have collected. If that fails, the units end that are still in it. Those that
        were not sent leave `begun`."""
        ended = {unit for unit, _ in begun if unit not in batch}
        try:
            self._flush()
        except BaseException as error:
            for unit in tuple(batch):
                unit.fail(twin(error))
        begun[:] = [(unit, told) for unit, told in begun if unit in batch or unit in ended]

    def __repr__(self) -> str:
        running = " ".join(f"#{unit.number}" for unit in self._running) or "nothing"
        staged = "".join(f" +#{unit.number}" for unit in self._staged)
        return f"<BatchScheduler {self.name!r} {self._state()} running={running}{staged} waiting={len(self._queue)}>"
