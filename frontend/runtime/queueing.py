"""What every scheduler is: callers that wait in one queue, and what may happen to them there.

    caller ──▶ [ unit 4 | unit 3 | unit 2 ] ──grant──▶ those that a scheduler lets at the executor

The single rule that keeps it correct: **the permit belongs to the unit, not to its caller**. A caller that leaves
while waiting takes its unit out of the queue. A caller that leaves afterwards leaves its unit behind: the permit and
the unit's clone of the context stay taken until the host has answered or is known dead. A dead host's unit that it is
known not to have taken is requeued: it waits again, in its place.

It knows nothing of models, frames or hosts and bounds no queue; waiting is async and unbounded. Used from the event
loop's thread only.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from frontend.errors import ExecutionStopped, Misuse, RequestError
from frontend.runtime._mint import KEY, require
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import DISPATCHED, ENDED, GONE, JOINED, Dispatch, Phase
from frontend.runtime.joining import Places
from frontend.runtime.shape import Shape
from frontend.runtime.signals import Requeued, Signal, Started
from frontend.runtime.statistics import SchedulerStatistics

T = TypeVar("T")

Told: TypeAlias = "list[tuple[Dispatch[Any], Callable[[Signal], None] | None]]"
"""Who heard that a unit was granted, and hears that it has started: its own observer and those of the joined."""


class EarlierWork:
    """The permit, held by the in-flight work of an earlier front, which the host has not finished yet.

    `release()` once, when the host is idle or dead; a second release is Misuse. The
    caller of `hold_for_earlier_front()` owns it. Only the scheduler makes one.
    """

    __slots__ = ("_scheduler",)

    def __init__(self, scheduler: UnitQueue, *, key: object = None) -> None:
        require(key, "EarlierWork")
        self._scheduler = scheduler

    def release(self) -> None:
        """Pass the permit on to the first waiting unit, in the same step."""
        self._scheduler.earlier_work_ended(self)

    def __repr__(self) -> str:
        return f"<EarlierWork of {self._scheduler!r}>"


class UnitQueue(Places, ABC):
    """Base of the schedulers. All holders of this object share one queue.

    `layers` are the bounded admissions that a request must have passed: without a retained
    permit of every one of them, `run_with_context` refuses to queue. That makes skipping
    admission impossible for a route rather than forbidden.
    """

    __slots__ = (
        "_answers_kept",
        "_batches",
        "_dispatched",
        "_earlier",
        "_numbers",
        "_pumping",
        "_refused",
        "_requeued",
        "_suspended",
        "layers",
    )

    def __init__(self, name: str = "", *, layers: Sequence[BoundedAdmission] = ()) -> None:
        super().__init__(name)
        self.layers: Final = tuple(layers)
        self._earlier: EarlierWork | None = None
        self._suspended = False
        self._pumping = False
        self._numbers = 0
        self._refused = 0
        self._dispatched = self._requeued = self._batches = self._answers_kept = 0

    # What callers await

    async def run_with_context(
        self,
        context: ExecutionContext,
        start: Callable[[Dispatch[T]], None],
        *,
        shape: Shape | None = None,
        digest: Callable[[], bytes | None] | None = None,
    ) -> T:
        """Wait for the permit, have `start` send the unit, and return what ends it.

        `context` stays the caller's; the scheduler keeps a clone of it from queueing to the
        unit's end. It is checked before queueing and again immediately before `start`: a
        dead one raises Cancelled or DeadlineExceeded and is not dispatched. `start` is
        called once per grant, of which there is a second one only after `Dispatch.requeue`,
        and kept until the unit's end; what it raises goes to the caller and the unit counts as
        not dispatched.

        `shape`: what it is to a batch. `digest` makes what two units of the same work have in common, and the later
        one waits for what the earlier one is answered, unless no caller waits for that one any more; None, or what
        makes None: nothing equals it. It is called at most once, now or when another unit comes.

        Cancelled while waiting: the unit is removed and never dispatched. Cancelled after
        dispatch: CancelledError at once, `on_abandoned` callbacks called, permit and clone
        kept until the unit ends, its result dropped. Misuse if the context is closed or
        lacks a permit of one of `layers`. May be called again with the same context, once
        per unit of the request.
        """
        self._demand(context)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._numbers += 1
        unit = Dispatch(self, self._numbers, context.clone(), start, loop, future, key=KEY)
        # Two references to what was captured would be one too many: it lives as long as the unit does.
        del start
        unit.shape = shape
        if digest is None:
            self._queue[unit] = None
        else:
            self._queue_or_join(unit, digest)
        try:
            admitted = context.admit(self.name, unit.number, key=KEY)
            if admitted is not None and (observer := context.observer) is not None:
                unit.call(observer, admitted)
            if unit.phase is JOINED:
                self._catch_up(unit)
            else:
                self._arrived()
            return await future
        except BaseException as error:
            self._caller_left(unit, future, error)
            raise
        finally:
            # The traceback of an error holds this frame, and the future holds the error.
            del future

    async def run(self, start: Callable[[Dispatch[T]], None]) -> T:
        """The same without request control: no context, no layers, no signals (warm-up, internal predict).

        It waits in the same queue, in its turn, and is sent alone. Cancellation, errors and ownership of
        `start` as in `run_with_context`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._numbers += 1
        unit = Dispatch(self, self._numbers, None, start, loop, future, key=KEY)
        del start
        self._queue[unit] = None
        try:
            self._arrived()
            return await future
        except BaseException as error:
            self._caller_left(unit, future, error)
            raise
        finally:
            del future

    def admit_answered(self, context: ExecutionContext) -> None:
        """Admit the request of `context` for a unit whose answer is known already: nothing is queued.

        Demands what `run_with_context` does, and announces Admitted as it does.
        """
        self._demand(context)
        self._numbers += 1
        self._answers_kept += 1
        admitted = context.admit(self.name, self._numbers, key=KEY)
        if admitted is not None and (observer := context.observer) is not None:
            observer(admitted)

    def _demand(self, context: ExecutionContext) -> None:
        for layer in self.layers:
            if not context.holds(layer):
                raise Misuse(f"{context!r} reached {self!r} without asking {layer!r}")
        context.check()

    # What the deployment does to the queue

    def suspend(self) -> None:
        """Grant nothing until `resume()`: the host is down. The queue keeps its order and its callers.

        Call it before failing the running unit of a dead host, or the next one is granted to
        no host. Suspending twice is Misuse: one host transition was lost or told twice.
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

        What is in the host's hands is not touched and the scheduler stays usable. If the factory
        raises, the unit it was asked for ends with what it raised.
        """
        ended = 0
        waiting, self._queue = self._queue, OrderedDict()
        self._vacant = 0
        for unit in waiting:
            joined, unit.joined = unit.joined, None
            self._forget(unit)
            for each in (unit, *(joined or ())):
                if each.phase is GONE:
                    continue
                try:
                    error = error_factory()
                except BaseException as failure:  # the units behind it must end too
                    error = failure
                ended += self._withdraw(each, error)
        return ended

    def hold_for_earlier_front(self) -> EarlierWork:
        """Take the permit for the in-flight work of an earlier front; see EarlierWork.

        Legal only while nothing is dispatched and no other earlier work holds the permit;
        otherwise Misuse. Units may wait already (in a suspended scheduler): they go on waiting.
        """
        if self._in_hand() or self._earlier is not None:
            raise Misuse(f"{self!r} is not idle, so no earlier front can be using its host")
        self._earlier = EarlierWork(self, key=KEY)
        return self._earlier

    @property
    def load(self) -> int:
        """Units that wait or run. What has joined another one costs nothing."""
        return len(self._queue) - self._vacant + len(self._in_hand())

    def statistics(self) -> SchedulerStatistics:
        """Counts and states, for status, metrics and tests."""
        hand = self._in_hand()
        staged = sum(unit.phase is not DISPATCHED for unit in hand)
        return SchedulerStatistics(
            name=self.name,
            waiting=len(self._queue) - self._vacant,
            running=len(hand) - staged,
            abandoned=sum(unit.abandoned for unit in hand),
            held_for_earlier_front=self._earlier is not None,
            suspended=self._suspended,
            dispatched=self._dispatched,
            requeued=self._requeued,
            completed=self._completed,
            failed=self._failed,
            refused=self._refused,
            withdrawn=self._withdrawn,
            dropped_results=self._dropped,
            joined=self._joined,
            staged=staged,
            batches=self._batches,
            joins=self._joins,
            answers_kept=self._answers_kept,
        )

    # For Dispatch and EarlierWork

    def unit_completed(self, unit: Dispatch[T], result: T) -> None:
        """`unit` ended with a result."""
        self._completed += 1
        self._unit_ended(unit, result, None)

    def unit_failed(self, unit: Dispatch[Any], error: BaseException) -> None:
        """`unit` ended with an error."""
        self._failed += 1
        self._refused += isinstance(error, RequestError) and error.status < 500
        if unit.joined and isinstance(error, ExecutionStopped):
            self._outlived(unit, error)
        else:
            self._unit_ended(unit, None, error)

    def unit_requeued(self, unit: Dispatch[Any]) -> None:
        """`unit` was granted to a host that died before it had taken it."""
        if self._pumping or not self._suspended:
            raise Misuse(f"{unit!r} would be granted to its dead host again")
        self._release(unit)
        self._requeued += 1
        if unit.abandoned:
            self._withdraw(unit, None)
            heir = self._heir(unit)
            if heir is None:
                return
            unit = heir
        self._wait_again(unit)

    def unit_withdrawn(self, unit: Dispatch[Any]) -> None:
        """`unit` was sent ahead, and the host will not begin with it."""
        self._release(unit)
        self._withdraw(unit, None)
        self._pump()

    def earlier_work_ended(self, earlier: EarlierWork) -> None:
        """The permit is free again."""
        if self._earlier is not earlier:
            raise Misuse(f"{earlier!r} was released before")
        self._earlier = None
        self._pump()

    # What a scheduler decides

    @abstractmethod
    def _pump(self) -> None:
        """Grant while a unit waits and may be granted. Called again from inside a start callable, it does nothing:
        the call that is under way goes on afterwards."""

    @abstractmethod
    def _release(self, unit: Dispatch[Any]) -> None:
        """`unit` is not in the host's hands any more."""

    @abstractmethod
    def _in_hand(self) -> Sequence[Dispatch[Any]]:
        """The units that are in the host's hands."""

    def _arrived(self) -> None:
        """A unit has come to the queue."""
        self._pump()

    # For a scheduler, at a grant

    def _granted(self, unit: Dispatch[Any], phase: Phase) -> Told:
        """Put `unit` into `phase` and tell its observer, and those of the joined, that it holds the permit."""
        unit.phase = phase
        told: Told = []
        # Asked for now: the unit may end, and its clone close, inside the start callable.
        if (observer := unit.observer()) is not None:
            unit.call(observer, unit.granted)
            told.append((unit, observer))
        if unit.joined:
            for each in tuple(unit.joined):
                if (stopped := each.stopped()) is not None and not each.abandoned:
                    del unit.joined[each]
                    self._withdraw(each, stopped)
                elif (observer := each.observer()) is not None and not each.abandoned:
                    each.call(observer, each.granted)
                    told.append((each, observer))
        return told

    def _begin(self, unit: Dispatch[Any]) -> bool:
        """Have it sent; whether its start callable returned. Never raises."""
        try:
            unit.begin()
        except BaseException as error:
            if unit.sent:
                self.unit_failed(unit, error)
            else:
                # It had ended the unit before it raised, so its caller has an outcome already.
                unit.report("a start callable ended its unit and then raised", error)
            return False
        return True

    def _started(self, told: Told) -> None:
        """Its frame was sent, and the host begins with it as soon as it is there."""
        for unit, observer in told:
            if observer is not None:
                unit.call(observer, Started(self.name, unit.number, KEY))

    # Ends

    def _wait_again(self, unit: Dispatch[Any]) -> None:
        """Put `unit`, and with it those that have joined it, back into its place of the queue."""
        unit.wait_again()
        self._enqueue_again(unit)
        for each in (unit, *(unit.joined or ())):
            if (observer := each.observer()) is not None:
                each.call(observer, Requeued(self.name, each.number, KEY))

    def _outlived(self, unit: Dispatch[Any], error: BaseException) -> None:
        """The host has stopped because the time of `unit` was over: that is its end, and not of those that have joined
        it and have time left."""
        self._release(unit)
        try:
            if not unit.deliver(ENDED, None, error):
                self._dropped += 1
            heir = self._heir(unit)
            if heir is not None:
                self._wait_again(heir)
        finally:
            try:
                if unit.context is not None:
                    unit.context.close()
            finally:
                self._pump()

    def _unit_ended(self, unit: Dispatch[T], result: T | None, error: BaseException | None) -> None:
        """Deliver, then let the clone go, then pass the permit on: the next unit finds everything released."""
        self._release(unit)
        self._forget(unit)
        joined, unit.joined = unit.joined, None
        try:
            if not unit.deliver(ENDED, result, error):
                self._dropped += 1
            if joined:
                self._joined_ended(joined, result, error)
        finally:
            try:
                if unit.context is not None:
                    unit.context.close()
            finally:
                self._pump()

    def _state(self) -> str:
        """For `repr`."""
        if self._suspended:
            return "suspended"
        return "held for an earlier front" if self._earlier is not None else "open"
