"""The places of a queue, who stands there, and how a unit ends: without equal units, and with them.

    digest ─▶ the first unit ◀── joined ── the equal ones that came later

Equal work is done once, where callers say what their units are equal to: a unit whose equal waits or is executed joins
it. It keeps its own admission, context, deadline and signals, and has its own end. What the first one ends with is
the end of all, an error as well. If the caller of the first one leaves the queue, or its context is dead at the grant,
its place belongs to the next one; if it leaves afterwards, the host is told when the last of them has left.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from frontend.runtime._mint import KEY
from frontend.runtime.dispatch import DISPATCHED, ENDED, GONE, JOINED, WAITING, Dispatch
from frontend.runtime.signals import Started

T = TypeVar("T")


class Places:
    """The queue, and the units of equal work. Base of `UnitQueue`, which says when anything of this happens."""

    __slots__ = (
        "_completed",
        "_dropped",
        "_equal",
        "_failed",
        "_joined",
        "_joins",
        "_queue",
        "_undigested",
        "_vacant",
        "_withdrawn",
        "name",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._queue: OrderedDict[Dispatch[Any], None] = OrderedDict()
        self._vacant = 0
        """Places in the queue that only keep the turn of those who have joined: their own caller has left."""
        self._equal: dict[bytes, Dispatch[Any]] = {}
        """By digest, the unit that an equal one waits for instead of being executed."""
        self._undigested: tuple[Dispatch[Any], Callable[[], bytes | None]] | None = None
        """The unit that came when there was none to be equal to, whose digest is made when another one comes: a lone
        client pays for none (a fiftieth of its request, measured)."""
        self._completed = self._failed = self._withdrawn = self._dropped = self._joined = self._joins = 0

    def has_equal(self, digest: bytes) -> bool:
        """Whether a unit of this digest would join another one."""
        self._digest_the_lone_one()
        return digest in self._equal

    def _queue_or_join(self, unit: Dispatch[Any], digested: Callable[[], bytes | None]) -> None:
        if not self._equal and self._undigested is None:
            self._undigested = unit, digested
            self._queue[unit] = None
            return
        self._digest_the_lone_one()
        digest = digested()
        leader = None if digest is None else self._equal.get(digest)
        if leader is None:
            self._find_by(digest, unit)
            self._queue[unit] = None
        else:
            unit.join(leader)
            self._joined += 1
            self._joins += 1

    def _digest_the_lone_one(self) -> None:
        if self._undigested is not None:
            (unit, digested), self._undigested = self._undigested, None
            self._find_by(digested(), unit)

    def _find_by(self, digest: bytes | None, unit: Dispatch[Any]) -> None:
        if digest is not None:
            unit.digest = digest
            self._equal[digest] = unit

    def _catch_up(self, unit: Dispatch[Any]) -> None:
        """Tell the observer of `unit`, which has just joined, what its leader has been told already."""
        leader, observer = unit.leader, unit.observer()
        if leader is None or observer is None or not leader.sent:
            return
        unit.call(observer, unit.granted)
        if leader.phase is DISPATCHED and unit.phase is JOINED:
            unit.call(observer, Started(self.name, unit.number, KEY))

    def _forget(self, unit: Dispatch[Any]) -> None:
        """No unit may join `unit` any more."""
        if self._undigested is not None and self._undigested[0] is unit:
            self._undigested = None
        if unit.digest is not None:
            del self._equal[unit.digest]
            unit.digest = None

    # Who stands at a place

    def _living(self, unit: Dispatch[Any]) -> Dispatch[Any] | None:
        """Whom the place of `unit`, which was taken out of the queue, belongs to now: the first whose caller still
        waits, itself or one that has joined. Those before it are withdrawn. None when there is none. Never raises."""
        if unit.phase is GONE:
            self._vacant -= 1
        elif unit.abandoned:
            # The caller's task was cancelled in this tick and has not run since.
            self._withdraw(unit, None)
        else:
            stopped = unit.stopped()
            if stopped is None:
                return unit
            self._withdraw(unit, stopped)
        return self._heir(unit)

    def _heir(self, unit: Dispatch[Any]) -> Dispatch[Any] | None:
        """Who takes the place of `unit`, which is gone, over."""
        joined = unit.joined
        while joined:
            first = next(iter(joined))
            del joined[first]
            self._joined -= 1
            stopped = None if first.abandoned else first.stopped()
            if not first.abandoned and stopped is None:
                first.succeed(unit)
                if first.digest is not None:
                    self._equal[first.digest] = first
                return first
            self._withdraw(first, stopped, counted=False)
        self._forget(unit)
        return None

    def _joined_ended(self, joined: dict[Dispatch[T], None], result: T | None, error: BaseException | None) -> None:
        """What one unit has ended with is the end of all that have joined it."""
        for each in joined:
            self._joined -= 1
            if error is None:
                self._completed += 1
            else:
                self._failed += 1
            if not each.deliver(ENDED, result, None if error is None else twin(error)):
                self._dropped += 1
            assert each.context is not None
            each.context.close()

    def _withdraw(self, unit: Dispatch[Any], error: BaseException | None, *, counted: bool = True) -> bool:
        """End a unit that is out of the queue and was never executed; whether its caller gets the error.

        `counted`: whether one that has joined is still counted as such.
        """
        self._withdrawn += 1
        if unit.phase is JOINED and counted:
            self._joined -= 1
        if error is None:
            unit.let_go(GONE)
            told = False
        else:
            told = unit.deliver(GONE, None, error)
        if unit.context is not None:
            unit.context.close()
        return told

    def _caller_left(self, unit: Dispatch[T], future: asyncio.Future[T], error: BaseException | None) -> None:
        """The caller is leaving with `error`: its own cancellation, or the unit's error on the way out."""
        if unit.phase is WAITING:
            if unit.joined:
                self._vacant += 1
            else:
                del self._queue[unit]
                self._forget(unit)
            self._withdraw(unit, None)
        elif unit.phase is JOINED:
            self._joined_left(unit)
        elif unit.sent:
            if not unit.joined:
                # The host is told to stop: a unit that comes now must not wait for what it had no reason to finish.
                self._forget(unit)
            unit.abandon()
        elif future.done() and not future.cancelled():
            # Either the outcome is `error`, or both came in the same tick and asyncio prefers the
            # cancellation. Asking for the exception also keeps it from being reported as never seen.
            unseen = future.exception() is not error
            if unseen and unit.phase is ENDED:
                self._dropped += 1

    def _joined_left(self, unit: Dispatch[Any]) -> None:
        leader = unit.leader
        assert leader is not None
        assert leader.joined is not None
        del leader.joined[unit]
        self._withdraw(unit, None)
        if leader.joined:
            return
        if leader.phase is GONE:
            del self._queue[leader]
            self._vacant -= 1
            self._forget(leader)
        elif leader.sent and leader.abandoned:
            self._forget(leader)
            leader.abandon()

    def _enqueue_again(self, unit: Dispatch[Any]) -> None:
        """Put `unit` where it stood. Those who came before it are few: at most what a batch may pass over."""
        before = []
        for other in self._queue:
            if other.place > unit.place:
                break
            before.append(other)
        self._queue[unit] = None
        self._queue.move_to_end(unit, last=False)
        for other in reversed(before):
            self._queue.move_to_end(other, last=False)


def twin(error: BaseException) -> BaseException:
    """An error that says the same: raising one instance in several tasks would grow one traceback through all of them.

    The same instance where its type cannot be made again.
    """
    kind = type(error)
    try:
        made = kind.__new__(kind, *error.args)
        made.__dict__.update(error.__dict__)
    except Exception:
        return error
    made.args, made.__cause__ = error.args, error.__cause__
    return made
