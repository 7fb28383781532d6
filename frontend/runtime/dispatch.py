"""One unit of work, from the queue to its one end.

    WAITING ──grant──▶ DISPATCHED ──complete / fail──▶ ENDED
     │   ▲ ╲            ▲   │
     │   │  ╲ sent      │   │
     │   │   ╲ ahead    │ the batch before it has ended
     │   │    ▼         │   │
     │   │   STAGED ────┘   │
     │   │    │ │           │
     │   └────┴─│─requeue───┤
     │          ▼           └── requeue, and the caller has left ────▶ GONE
     │       withdrawn in the host ──────────────────────────────────▶ GONE
     └── caller left, context dead, queue failed ────────────────────▶ GONE

    JOINED ── as the equal unit that it waits for; its own caller left, or its context is dead ──▶ GONE

A unit that is GONE was never executed. A unit that is DISPATCHED keeps the scheduler's
permit, its clone of the context and everything its start callable captured until it has
ENDED, whether or not its caller is still there. One that is STAGED was sent while others are
executed: it keeps the same, and the host begins with it, or says that it was withdrawn in time.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from frontend.errors import Misuse
from frontend.runtime._mint import KEY, require
from frontend.runtime.context import ExecutionContext
from frontend.runtime.shape import Shape
from frontend.runtime.signals import Granted, Signal

T = TypeVar("T")


class Phase(enum.Enum):
    WAITING = "waiting"
    JOINED = "joined"
    STAGED = "staged"
    DISPATCHED = "dispatched"
    ENDED = "ended"
    GONE = "gone"


# As names of the module: see `admission`.
WAITING: Final = Phase.WAITING
JOINED: Final = Phase.JOINED
STAGED: Final = Phase.STAGED
DISPATCHED: Final = Phase.DISPATCHED
ENDED: Final = Phase.ENDED
GONE: Final = Phase.GONE


class Scheduler(Protocol):
    """What a Dispatch asks of the scheduler that made it."""

    @property
    def name(self) -> str:
        """For signals and messages."""

    def unit_completed(self, unit: Dispatch[T], result: T) -> None:
        """`unit` has ended with `result`: deliver it, and pass the permit on before returning."""

    def unit_failed(self, unit: Dispatch[Any], error: BaseException) -> None:
        """`unit` has ended with `error`: deliver it, and pass the permit on before returning."""

    def unit_requeued(self, unit: Dispatch[Any]) -> None:
        """The host that `unit` was granted to is dead and had not taken it: `unit` waits again, in its place.

        Raises Misuse where it would be granted to the dead host again.
        """

    def unit_withdrawn(self, unit: Dispatch[Any]) -> None:
        """The host will not begin with `unit`, which was STAGED: it is GONE."""


class Dispatch(Generic[T]):
    """What a start callable is given: the proof of its grant, the ways to end the unit, and one to have it granted
    anew.

    Per grant, exactly one of `complete`, `fail`, `withdraw` and `requeue` is called exactly once, on the
    event loop's thread; the first two from inside the start callable or any time later. They
    pass the permit on in the same step: when they return, the next unit's start callable has
    been called. Only the scheduler makes one.
    """

    __slots__ = (
        "_abandoned",
        "_callbacks",
        "_future",
        "_granted",
        "_loop",
        "_scheduler",
        "_start",
        "context",
        "digest",
        "joined",
        "leader",
        "number",
        "passed",
        "phase",
        "place",
        "requeued",
        "shape",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        number: int,
        context: ExecutionContext | None,
        start: Callable[[Dispatch[T]], None],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[T],
        *,
        key: object = None,
    ) -> None:
        if key is not KEY:
            require(key, "Dispatch")
        self.number: Final = number
        """The scheduler's own number for the unit."""
        self.context: Final = context
        """An owner of the request, lent to the caller that runs the unit and closed by the scheduler; None in `run`."""
        self.requeued = 0
        """How often it was granted to a host that died before it had taken it."""
        self.phase = WAITING
        self.place = number
        """Where it stands in the queue: by its own number, or by that of the unit whose place it has taken over."""
        self.shape: Shape | None = None
        """What it is to a batch; None: it is sent alone."""
        self.passed = 0
        """How many units that came later were sent before it."""
        self.digest: bytes | None = None
        """By which equal units find it; None: none may wait for it, or none any more."""
        self.joined: dict[Dispatch[T], None] | None = None
        """The equal units that wait for its end, in order of arrival."""
        self.leader: Dispatch[T] | None = None
        """The equal unit that it waits for, while it is JOINED."""
        self._scheduler = scheduler
        self._start: Callable[[Dispatch[T]], None] | None = start
        self._loop = loop
        self._future: asyncio.Future[T] | None = future
        self._callbacks: list[Callable[[], None]] | None = None
        self._abandoned = False
        self._granted: Granted | None = None

    @property
    def granted(self) -> Granted:
        """The token that says this unit holds the permit, or has joined one that does. Minted when first asked for:
        most units have no observer."""
        if self._granted is None:
            if self.phase is WAITING or self.phase is GONE or (self.leader is not None and not self.leader.sent):
                raise Misuse(f"{self!r} has not been granted")
            self._granted = Granted(self._scheduler.name, self.number, KEY, joined=self.leader is not None)
        return self._granted

    @property
    def abandoned(self) -> bool:
        """Whether the caller left before the unit ended. The permit stays with the unit all the same."""
        future = self._future
        return self._abandoned or (future is not None and future.cancelled())

    @property
    def sent(self) -> bool:
        """Whether it is in the host's hands, begun or not."""
        return self.phase is DISPATCHED or self.phase is STAGED

    def complete(self, result: T) -> None:
        """End the unit with its result and pass the permit on. A second end is Misuse.

        The result goes to the caller, or is dropped and counted if the caller has left; and to those that have joined.
        """
        self._end()
        self._scheduler.unit_completed(self, result)

    def fail(self, error: BaseException) -> None:
        """End the unit with an error and pass the permit on. A second end is Misuse.

        The caller gets this very instance, or it is dropped and counted if the caller has left. Those that have joined
        get an equal one each.
        """
        if not isinstance(error, BaseException):
            raise Misuse(f"a unit fails with an exception instance, not {error!r}")
        self._end()
        self._scheduler.unit_failed(self, error)

    def withdraw(self) -> None:
        """The host had not begun with the unit, no caller waits for it any more, and so it never will: it is GONE.

        Misuse unless it is in the host's hands and was abandoned by everybody.
        """
        if not self.sent or not self.deserted:
            raise Misuse(f"{self!r} cannot be withdrawn from here")
        self._scheduler.unit_withdrawn(self)

    def requeue(self) -> None:
        """The unit's host is dead and is known not to have taken it: it waits again, in its place of the queue.

        The scheduler must be suspended. If the caller has left, the unit is withdrawn instead. Else it is a
        waiting unit like any other, and its start callable is called again at its next grant. Misuse after the
        unit's end, inside its start callable, and in a scheduler that would grant it to the dead host.
        """
        if not self.sent:
            raise Misuse(f"{self!r} cannot be requeued from here")
        self._scheduler.unit_requeued(self)

    def on_abandoned(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the caller, and all that have joined, have left, in that same step; at once
        if they have left.

        Several may be registered and are called in order. After the unit's end none is
        called, because nothing is left to withdraw; requeueing the unit forgets them. What a
        callback raises is reported to the event loop's exception handler; it reaches neither
        the caller nor the accounting.
        """
        if not self.sent:
            return
        if self._abandoned and not self.joined:
            self.call(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    # For the scheduler

    def begin(self) -> None:
        """Call the start callable. It stays referenced: what it captured lives until the unit's end."""
        start = self._start
        assert start is not None
        start(self)

    def stopped(self) -> Exception | None:
        """What its context says about going on, or what asking it raised; None to go on."""
        try:
            return None if self.context is None else self.context.stopped()
        except Exception as failure:  # the clock is foreign code
            return failure

    def observer(self) -> Callable[[Signal], None] | None:
        """Who hears its signals."""
        return None if self.context is None else self.context.observer

    def wait_again(self) -> None:
        """Undo the grant. What the start callable captured is kept for the next one."""
        self.phase = WAITING
        self.requeued += 1
        self._callbacks = self._granted = None

    def join(self, leader: Dispatch[T]) -> None:
        """Wait for the end of `leader`, which is equal, and be executed never, or in its place."""
        self.phase = JOINED
        self.leader = leader
        if leader.joined is None:
            leader.joined = {}
        leader.joined[self] = None

    def succeed(self, leader: Dispatch[T]) -> None:
        """Take over the place of `leader`, which is out of the queue and gone, and everybody that has joined it."""
        self.phase, self.leader = WAITING, None
        self.digest, leader.digest = leader.digest, None
        self.joined, leader.joined = leader.joined, None
        self.place, self.passed, self.requeued = leader.place, leader.passed, leader.requeued
        for other in self.joined or ():
            other.leader = self

    @property
    def deserted(self) -> bool:
        """Whether no caller waits for its end: neither its caller, nor that of an equal unit."""
        return self.abandoned and not self.joined

    def abandon(self) -> None:
        """The caller left after the unit was sent, and no other caller waits for it."""
        self._abandoned = True
        if self.joined:
            return
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            # A callback may end the unit (the link knows the host is dead): then the others have nothing to do.
            if self.sent:
                self.call(callback)

    def let_go(self, phase: Phase) -> asyncio.Future[T] | None:
        """Enter the last phase and drop what was captured; the future to resolve, or None if the caller has left."""
        self._abandoned = self.abandoned
        future = None if self._abandoned else self._future
        self.phase = phase
        # The future is let go as well: an error whose traceback leads here would otherwise keep itself alive.
        self._start = self._future = self._callbacks = None
        return future

    def deliver(self, phase: Phase, result: T | None, error: BaseException | None) -> bool:
        """Enter the last phase and hand the outcome to the caller; False if it has left."""
        future = self.let_go(phase)
        if future is None:
            return False
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        elif isinstance(error, StopIteration):
            # A future refuses StopIteration, it would end the caller's coroutine as if it had returned.
            wrapped = RuntimeError("a unit failed with StopIteration")
            wrapped.__cause__ = error
            future.set_exception(wrapped)
        else:
            future.set_exception(error)
        return True

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call foreign code from the middle of the accounting: whatever it raises must not get out."""
        try:
            function(*arguments)
        except BaseException as error:
            self.report("a callback of the request runtime raised", error)

    def report(self, message: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"{message}: {self!r}", "exception": error})

    def _end(self) -> None:
        if self.phase is not DISPATCHED and self.phase is not STAGED:
            raise Misuse(f"{self!r} cannot end from here")
        self.phase = ENDED

    def __repr__(self) -> str:
        left = " abandoned" if self.abandoned else ""
        return f"<Dispatch {self._scheduler.name!r} #{self.number} {self.phase.value}{left}>"
