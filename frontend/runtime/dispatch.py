"""One unit of work, from the queue to its one end.

    WAITING ──grant──▶ DISPATCHED ──complete / fail──▶ ENDED
     │   ▲                  │
     │   └─────requeue──────┤
     │                      └── requeue, and the caller has left ────▶ GONE
     └── caller left, context dead, queue failed ─────────────────────▶ GONE

A unit that is GONE was never executed. A unit that is DISPATCHED keeps the scheduler's
permit, its clone of the context and everything its start callable captured until it has
ENDED, whether or not its caller is still there.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from frontend.errors import Misuse
from frontend.runtime._mint import KEY, require
from frontend.runtime.context import ExecutionContext
from frontend.runtime.signals import Granted

T = TypeVar("T")


class Phase(enum.Enum):
    WAITING = "waiting"
    DISPATCHED = "dispatched"
    ENDED = "ended"
    GONE = "gone"


# As names of the module: see `admission`.
WAITING: Final = Phase.WAITING
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
        """The host that `unit` was granted to is dead and had not taken it: `unit` waits again, before all others.

        Raises Misuse where it would be granted to the dead host again.
        """


class Dispatch(Generic[T]):
    """What a start callable is given: the proof of its grant, the two ways to end the unit, and one to have it granted
    anew.

    Per grant, exactly one of `complete`, `fail` and `requeue` is called exactly once, on the
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
        "number",
        "phase",
        "requeued",
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
        """An owner of the request, lent to whoever runs the unit and closed by the scheduler; None in `run`."""
        self.requeued = 0
        """How often it was granted to a host that died before it had taken it."""
        self.phase = WAITING
        self._scheduler = scheduler
        self._start: Callable[[Dispatch[T]], None] | None = start
        self._loop = loop
        self._future: asyncio.Future[T] | None = future
        self._callbacks: list[Callable[[], None]] | None = None
        self._abandoned = False
        self._granted: Granted | None = None

    @property
    def granted(self) -> Granted:
        """The token that says this unit holds the permit. Minted when first asked for: most units have no observer."""
        if self._granted is None:
            if self.phase is not DISPATCHED and self.phase is not ENDED:
                raise Misuse(f"{self!r} has not been granted")
            self._granted = Granted(self._scheduler.name, self.number, KEY)
        return self._granted

    @property
    def abandoned(self) -> bool:
        """Whether the caller left before the unit ended. The permit stays with the unit all the same."""
        future = self._future
        return self._abandoned or (future is not None and future.cancelled())

    def complete(self, result: T) -> None:
        """End the unit with its result and pass the permit on. A second end is Misuse.

        The result goes to the caller, or is dropped and counted if the caller has left.
        """
        self._end()
        self._scheduler.unit_completed(self, result)

    def fail(self, error: BaseException) -> None:
        """End the unit with an error and pass the permit on. A second end is Misuse.

        The caller gets this very instance, or it is dropped and counted if the caller has left.
        """
        if not isinstance(error, BaseException):
            raise Misuse(f"a unit fails with an exception instance, not {error!r}")
        self._end()
        self._scheduler.unit_failed(self, error)

    def requeue(self) -> None:
        """The unit's host is dead and is known not to have taken it: it waits again, before all others.

        The scheduler must be suspended. If the caller has left, the unit is withdrawn instead. Else it is a
        waiting unit like any other, and its start callable is called again at its next grant. Misuse after the
        unit's end, inside its start callable, and in a scheduler that would grant it to the dead host.
        """
        if self.phase is not DISPATCHED:
            raise Misuse(f"{self!r} cannot be requeued from here")
        self._scheduler.unit_requeued(self)

    def on_abandoned(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the caller leaves, in that same step; at once if it has left.

        Several may be registered and are called in order. After the unit's end none is
        called, because nothing is left to withdraw; requeueing the unit forgets them. What a
        callback raises is reported to the event loop's exception handler; it reaches neither
        the caller nor the accounting.
        """
        if self.phase is not DISPATCHED:
            return
        if self._abandoned:
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

    def wait_again(self) -> None:
        """Undo the grant. What the start callable captured is kept for the next one."""
        self.phase = WAITING
        self.requeued += 1
        self._callbacks = self._granted = None

    def abandon(self) -> None:
        """The caller left after the dispatch."""
        self._abandoned = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            # A callback may end the unit (the link knows the host is dead): then the others have nothing to do.
            if self.phase is DISPATCHED:
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
        if self.phase is not DISPATCHED:
            raise Misuse(f"{self!r} cannot end from here")
        self.phase = ENDED

    def __repr__(self) -> str:
        left = " abandoned" if self.abandoned else ""
        return f"<Dispatch {self._scheduler.name!r} #{self.number} {self.phase.value}{left}>"
