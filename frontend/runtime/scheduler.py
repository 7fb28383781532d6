"""One unit at a time per loaded executor, first come first served.

The question this answers: who may send the next frame to the host, and when?

                 queue (FIFO, O(1) removal)            the one permit
    caller ──▶ [ unit 4 | unit 3 | unit 2 ] ──grant──▶ ( unit 1 ) ──complete / fail──┐
                                              ▲                                      │
                                              └────────── in the same step ──────────┘

The single rule that keeps it correct: **the permit belongs to the unit, not to its
caller**, and moves only inside `_pump`. A caller that leaves while waiting takes its unit
out of the queue. A caller that leaves afterwards leaves its unit behind: the permit and
the unit's clone of the context stay taken until the host has answered or is known dead.
A dead host's unit that it is known not to have taken is requeued: it waits again, at the head.

The hand-over is synchronous. `complete()` of unit k calls the start callable of unit k+1
before it returns, so a free permit is never visible to a newcomer and no turn of the event
loop passes between one reply and the next frame. Each unit costs one future, no task.

It knows nothing of models, frames or hosts, sets no timer and bounds no queue; waiting is
async and unbounded. Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from frontend.errors import Misuse
from frontend.runtime._mint import KEY, require
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import DISPATCHED, ENDED, GONE, WAITING, Dispatch
from frontend.runtime.signals import Requeued, Signal, Started

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """One consistent reading of a SerialScheduler. The first five describe now, the rest only grow.

    Every unit that entered the queue is in exactly one of waiting, running, completed,
    failed and withdrawn.
    """

    name: str
    waiting: int
    running: int
    abandoned: int
    """Of the running, those whose caller has left."""

    held_for_earlier_front: bool
    suspended: bool
    dispatched: int
    """How often a start callable returned: once per unit, and once more for each time it was requeued."""

    requeued: int
    """How often a unit went back to the head of the queue, because its host died and had not taken it."""

    completed: int
    failed: int
    """Units that ended in an error after their grant; a start callable that raised counts here."""

    withdrawn: int
    """Units that ended unexecuted: caller left, context dead, or queue failed."""

    dropped_results: int
    """Of completed and failed, those whose caller had left."""

    @classmethod
    def sum(cls, parts: Sequence[SchedulerStatistics]) -> SchedulerStatistics:
        """Of several queues of one name as if they were one: counts added, `held_for_earlier_front` if one is,
        `suspended` if all are. At least one part."""
        counts = {
            name: sum(getattr(part, name) for part in parts)
            for name in (
                "waiting", "running", "abandoned", "dispatched", "requeued",
                "completed", "failed", "withdrawn", "dropped_results",
            )
        }  # fmt: skip
        return cls(
            name=parts[0].name,
            held_for_earlier_front=any(part.held_for_earlier_front for part in parts),
            suspended=all(part.suspended for part in parts),
            **counts,
        )


class EarlierWork:
    """The permit, held by the in-flight work of an earlier front, which the host has not finished yet.

    `release()` once, when the host is idle or dead; a second release is Misuse. Whoever
    called `hold_for_earlier_front()` owns it. Only the scheduler makes one.
    """

    __slots__ = ("_scheduler",)

    def __init__(self, scheduler: SerialScheduler, *, key: object = None) -> None:
        require(key, "EarlierWork")
        self._scheduler = scheduler

    def release(self) -> None:
        """Pass the permit on to the first waiting unit, in the same step."""
        self._scheduler.earlier_work_ended(self)

    def __repr__(self) -> str:
        return f"<EarlierWork of {self._scheduler!r}>"


class SerialScheduler:
    """FIFO, at most one unit dispatched. All holders of this object share one queue.

    `layers` are the bounded admissions that a request must have passed: without a retained
    permit of every one of them, `run_with_context` refuses to queue. That makes skipping
    admission impossible for a route rather than forbidden.
    """

    __slots__ = (
        "_completed",
        "_dispatched",
        "_dropped",
        "_earlier",
        "_failed",
        "_numbers",
        "_pumping",
        "_queue",
        "_requeued",
        "_running",
        "_suspended",
        "_withdrawn",
        "layers",
        "name",
    )

    def __init__(self, name: str = "", *, layers: Sequence[BoundedAdmission] = ()) -> None:
        self.name: Final = name
        self.layers: Final = tuple(layers)
        self._queue: OrderedDict[Dispatch[Any], None] = OrderedDict()
        self._running: Dispatch[Any] | None = None
        self._earlier: EarlierWork | None = None
        self._suspended = False
        self._pumping = False
        self._numbers = 0
        self._dispatched = 0
        self._requeued = 0
        self._completed = 0
        self._failed = 0
        self._withdrawn = 0
        self._dropped = 0

    # What callers await

    async def run_with_context(self, context: ExecutionContext, start: Callable[[Dispatch[T]], None]) -> T:
        """Wait for the permit, have `start` send the unit, and return what ends it.

        `context` stays the caller's; the scheduler keeps a clone of it from queueing to the
        unit's end. It is checked before queueing and again immediately before `start`: a
        dead one raises Cancelled or DeadlineExceeded and is not dispatched. `start` is
        called once per grant, of which there is a second one only after `Dispatch.requeue`,
        and kept until the unit's end; what it raises goes to the caller and the unit counts as
        not dispatched.

        Cancelled while waiting: the unit is removed and never dispatched. Cancelled after
        dispatch: CancelledError at once, `on_abandoned` callbacks called, permit and clone
        kept until the unit ends, its result dropped. Misuse if the context is closed or
        lacks a permit of one of `layers`. May be called again with the same context, once
        per unit of the request.
        """
        for layer in self.layers:
            if not context.holds(layer):
                raise Misuse(f"{context!r} reached {self!r} without asking {layer!r}")
        context.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._numbers += 1
        unit = Dispatch(self, self._numbers, context.clone(), start, loop, future, key=KEY)
        # Two references to what was captured would be one too many: it lives as long as the unit does.
        del start
        self._queue[unit] = None
        try:
            admitted = context.admit(self.name, unit.number, key=KEY)
            if admitted is not None and (observer := context.observer) is not None:
                unit.call(observer, admitted)
            self._pump()
            return await future
        except BaseException as error:
            self._caller_left(unit, future, error)
            raise
        finally:
            # The traceback of an error holds this frame, and the future holds the error.
            del future

    async def run(self, start: Callable[[Dispatch[T]], None]) -> T:
        """The same without request control: no context, no layers, no signals (warm-up, internal predict).

        It waits in the same queue, in its turn. Cancellation, errors and ownership of
        `start` as in `run_with_context`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._numbers += 1
        unit = Dispatch(self, self._numbers, None, start, loop, future, key=KEY)
        del start
        self._queue[unit] = None
        try:
            self._pump()
            return await future
        except BaseException as error:
            self._caller_left(unit, future, error)
            raise
        finally:
            del future

    # What the deployment does to the queue

    def suspend(self) -> None:
        """Grant nothing until `resume()`: the host is down. The queue keeps its order and its callers.

        Call it before failing the running unit of a dead host, or the next one is granted to
        nobody. Suspending twice is Misuse: one host transition was lost or told twice.
        """
        if self._suspended:
            raise Misuse(f"{self!r} is suspended already")
        self._suspended = True

    def resume(self) -> None:
        """Grant again, to the first waiting unit in this same step. Misuse unless suspended."""
        if not self._suspended:
            raise Misuse(f"{self!r} is not suspended")
        self._suspended = False
        self._pump()

    def fail_waiting(self, error_factory: Callable[[], BaseException]) -> int:
        """End every waiting unit now, each with an error instance of its own; return how many callers get one.

        The running unit is not touched and the scheduler stays usable. If the factory
        raises, the unit it was asked for ends with what it raised.
        """
        ended = 0
        waiting, self._queue = self._queue, OrderedDict()
        for unit in waiting:
            try:
                error = error_factory()
            except BaseException as failure:  # the units behind it must end too
                error = failure
            ended += self._withdraw(unit, error)
        return ended

    def hold_for_earlier_front(self) -> EarlierWork:
        """Take the permit for the in-flight work of an earlier front; see EarlierWork.

        Legal only while nothing is dispatched and no other earlier work holds the permit;
        otherwise Misuse. Units may wait already (in a suspended scheduler): they go on waiting.
        """
        if self._running is not None or self._earlier is not None:
            raise Misuse(f"{self!r} is not idle, so no earlier front can be using its host")
        self._earlier = EarlierWork(self, key=KEY)
        return self._earlier

    @property
    def load(self) -> int:
        """Units that wait or run."""
        return len(self._queue) + (self._running is not None)

    def statistics(self) -> SchedulerStatistics:
        running = self._running
        return SchedulerStatistics(
            name=self.name,
            waiting=len(self._queue),
            running=int(running is not None),
            abandoned=int(running is not None and running.abandoned),
            held_for_earlier_front=self._earlier is not None,
            suspended=self._suspended,
            dispatched=self._dispatched,
            requeued=self._requeued,
            completed=self._completed,
            failed=self._failed,
            withdrawn=self._withdrawn,
            dropped_results=self._dropped,
        )

    # For Dispatch and EarlierWork

    def unit_completed(self, unit: Dispatch[T], result: T) -> None:
        """`unit` ended with a result."""
        self._completed += 1
        self._unit_ended(unit, result, None)

    def unit_failed(self, unit: Dispatch[Any], error: BaseException) -> None:
        """`unit` ended with an error."""
        self._failed += 1
        self._unit_ended(unit, None, error)

    def unit_requeued(self, unit: Dispatch[Any]) -> None:
        """`unit` was granted to a host that died before it had taken it."""
        if self._pumping or not self._suspended:
            raise Misuse(f"{unit!r} would be granted to its dead host again")
        self._running = None
        self._requeued += 1
        if unit.abandoned:
            self._withdraw(unit, None)
            return
        unit.wait_again()
        self._queue[unit] = None
        self._queue.move_to_end(unit, last=False)
        if unit.context is not None and unit.context.observer is not None:
            unit.call(unit.context.observer, Requeued(self.name, unit.number, KEY))

    def earlier_work_ended(self, earlier: EarlierWork) -> None:
        if self._earlier is not earlier:
            raise Misuse(f"{earlier!r} was released before")
        self._earlier = None
        self._pump()

    # The one permit

    def _pump(self) -> None:
        """Grant while the permit is free and somebody waits.

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

    def _grant(self, unit: Dispatch[Any]) -> None:
        """Decide on the head of the queue: drop cancelled, drop expired, else dispatch. Never raises."""
        if unit.abandoned:
            # The caller's task was cancelled in this tick and has not run since.
            self._withdraw(unit, None)
            return
        context = unit.context
        observer: Callable[[Signal], None] | None = None
        if context is not None:
            try:
                stopped: Exception | None = context.stopped()
            except Exception as failure:  # the clock is foreign code
                stopped = failure
            if stopped is not None:
                self._withdraw(unit, stopped)
                return
            # Taken now: the unit may end, and its clone close, inside the start callable.
            observer = context.observer
        self._running = unit
        unit.phase = DISPATCHED
        if observer is not None:
            unit.call(observer, unit.granted)
        try:
            unit.begin()
        except BaseException as error:
            if unit.phase is DISPATCHED:
                self.unit_failed(unit, error)
            else:
                # It had ended the unit before it raised, so its caller has an outcome already.
                unit.report("a start callable ended its unit and then raised", error)
            return
        self._dispatched += 1
        if observer is not None:
            unit.call(observer, Started(self.name, unit.number, KEY))

    def _unit_ended(self, unit: Dispatch[T], result: T | None, error: BaseException | None) -> None:
        """Deliver, then let the clone go, then pass the permit on: the next unit finds everything given back."""
        self._running = None
        try:
            if not unit.deliver(ENDED, result, error):
                self._dropped += 1
        finally:
            try:
                if unit.context is not None:
                    unit.context.close()
            finally:
                self._pump()

    def _withdraw(self, unit: Dispatch[Any], error: BaseException | None) -> bool:
        """End a unit that is out of the queue and was never executed; whether its caller gets the error."""
        self._withdrawn += 1
        if error is None:
            unit.let_go(GONE)
            told = False
        else:
            told = unit.deliver(GONE, None, error)
        if unit.context is not None:
            unit.context.close()
        return told

    def _caller_left(self, unit: Dispatch[T], future: asyncio.Future[T], error: BaseException) -> None:
        """The caller is leaving with `error`: its own cancellation, or the unit's error on the way out."""
        if unit.phase is WAITING:
            del self._queue[unit]
            self._withdraw(unit, None)
        elif unit.phase is DISPATCHED:
            unit.abandon()
        elif future.done() and not future.cancelled():
            # Either the outcome is `error`, or both came in the same tick and asyncio prefers the
            # cancellation. Asking for the exception also keeps it from being reported as never seen.
            unseen = future.exception() is not error
            if unseen and unit.phase is ENDED:
                self._dropped += 1

    def __repr__(self) -> str:
        running = self._running
        state = "suspended" if self._suspended else "held for an earlier front" if self._earlier is not None else "open"
        if running is not None:
            state += f" running=#{running.number}" + (" abandoned" if running.abandoned else "")
        return f"<SerialScheduler {self.name!r} {state} waiting={len(self._queue)} dispatched={self._dispatched}>"
