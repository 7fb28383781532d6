"""One request's absolute deadline, shared cancellation and retained permits.

A context has owners. `ExecutionContext(...)` is the first, `clone()` makes another, and
each one ends with its own `close()`. They share everything else: a cancellation seen by
one is seen by all, and the permits that any of them retained go back when the LAST owner
closes, once. That is what keeps capacity taken while a host still computes for a client
that left: the scheduler's clone is an owner too, and it closes when the host has answered.

Nothing here interrupts anything. `check()` tells the truth at the moment it is asked, and
no timer is installed: the awaiting handler enforces the response deadline.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from frontend.errors import Cancelled, DeadlineExceeded, ExecutionStopped, Misuse
from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.runtime.signals import Admitted, Signal

_new: Final = object.__new__


class Reservation(Protocol):
    """What a request holds until its last owner is gone: a permit, or something else that is given back like one."""

    @property
    def admission(self) -> BoundedAdmission | None:
        """Of which admission it is a permit; None: of none."""
        ...

    def retained(self) -> None:
        """It belongs to a request from now on. Misuse when it does already, or was given back."""
        ...

    def release_retained(self) -> None:
        """The request's last owner is gone."""
        ...


class _Shared:
    """What all owners of one request have in common."""

    __slots__ = ("admitted", "cancelled", "clock", "deadline", "observer", "owners", "permits")

    def __init__(
        self, clock: Callable[[], float], deadline: float | None, observer: Callable[[Signal], None] | None
    ) -> None:
        self.clock = clock
        self.deadline = deadline
        self.observer = observer
        self.owners = 1
        self.cancelled = False
        self.admitted: Admitted | None = None
        self.permits: list[Reservation] = []


class CancellationGuard:
    """Held by the awaiting caller: leaving the block without `disarm()` cancels the request.

    However the block is left: return, exception, task cancellation. It acts on the request
    and not on one owner, so it works whether or not the context it came from is closed by then.
    """

    __slots__ = ("_armed", "_shared")

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._armed = True

    def disarm(self) -> None:
        """The caller has what it came for: leaving no longer cancels. May be called twice."""
        self._armed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._armed:
            self._shared.cancelled = True

    def __repr__(self) -> str:
        return f"<CancellationGuard {'armed' if self._armed else 'disarmed'}>"


class ExecutionContext:
    """One owner of a request's reservation. Everything but `repr` is Misuse after `close()`.

    `clock` is monotonic and `deadline` an instant on it (None: no deadline); the deadline
    has passed as soon as the clock shows it. `observer` hears the signals of this request;
    it is called synchronously by the scheduler, must not block, and what it raises is
    reported to the event loop's exception handler and changes nothing else.

    An owner that is garbage-collected while open is a bug: it warns with a ResourceWarning
    that carries its repr, and then ends as if closed.
    """

    __slots__ = ("_open", "_shared")

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        deadline: float | None = None,
        observer: Callable[[Signal], None] | None = None,
    ) -> None:
        self._open = False
        if deadline is not None and math.isnan(deadline):
            raise Misuse("a deadline that is not a number never passes")
        self._shared = _Shared(clock, deadline, observer)
        self._open = True

    # Ownership

    def clone(self) -> ExecutionContext:
        """Make another owner of the same request; it has to be closed on its own."""
        if not self._open:
            raise self._closed()
        shared = self._shared
        twin = _new(ExecutionContext)
        twin._shared = shared
        shared.owners += 1
        twin._open = True
        return twin

    def close(self) -> None:
        """End this owner; the last one gives every retained permit back. A second close is Misuse."""
        if not self._open:
            raise self._closed()
        self._open = False
        shared = self._shared
        shared.owners -= 1
        if shared.owners == 0:
            permits, shared.permits = shared.permits, []
            for permit in permits:
                permit.release_retained()

    @property
    def closed(self) -> bool:
        """Whether this owner has ended. The one question a closed context answers."""
        return not self._open

    def __enter__(self) -> Self:
        if not self._open:
            raise self._closed()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # Reservations

    def retain(self, permit: Reservation) -> None:
        """Take the permit over: from here on it belongs to the request and goes back with its last owner.

        Misuse if the permit was released or is retained already; the permit is untouched then.
        """
        if not self._open:
            raise self._closed()
        shared = self._shared
        permit.retained()
        shared.permits.append(permit)

    def count(self) -> None:
        """Count what is retained as admitted: every layer that may refuse the request has let it in."""
        for permit in self._use().permits:
            if isinstance(permit, Permit):
                permit.count()

    def holds(self, admission: BoundedAdmission) -> bool:
        """Whether a permit of exactly this admission was retained, by any owner."""
        if not self._open:
            raise self._closed()
        for permit in self._shared.permits:  # noqa: SIM110 - any() costs a generator per unit
            if permit.admission is admission:
                return True
        return False

    # Cancellation and deadline

    def cancel(self) -> None:
        """Say that no client waits any more, to all owners. May be called twice; interrupts nothing."""
        self._use().cancelled = True

    def cancel_on_exit(self) -> CancellationGuard:
        """A guard for the awaiting caller; see CancellationGuard."""
        if not self._open:
            raise self._closed()
        return CancellationGuard(self._shared)

    @property
    def cancelled(self) -> bool:
        return self._use().cancelled

    @property
    def deadline(self) -> float | None:
        return self._use().deadline

    def remaining(self) -> float | None:
        """Seconds until the deadline, 0.0 when it has passed, None without one."""
        if not self._open:
            raise self._closed()
        shared = self._shared
        if shared.deadline is None:
            return None
        left = shared.deadline - shared.clock()
        return left if left > 0.0 else 0.0  # noqa: FURB136 - a call less

    def stopped(self) -> ExecutionStopped | None:
        """What `check()` would raise now, or None. Cancellation is reported before the deadline."""
        if not self._open:
            raise self._closed()
        shared = self._shared
        if shared.cancelled:
            return Cancelled("the request was cancelled")
        if shared.deadline is not None and shared.clock() >= shared.deadline:
            return DeadlineExceeded("the request ran out of time")
        return None

    def check(self) -> None:
        """Raise Cancelled or DeadlineExceeded if the request is over. It never interrupts running work."""
        stopped = self.stopped()
        if stopped is not None:
            raise stopped

    # Signals

    @property
    def admitted(self) -> Admitted | None:
        """The token of this request's admission, once a scheduler has queued its first unit."""
        return self._use().admitted

    @property
    def observer(self) -> Callable[[Signal], None] | None:
        if not self._open:
            raise self._closed()
        return self._shared.observer

    def admit(self, scheduler: str, unit: int, *, key: object = None) -> Admitted | None:
        """For the scheduler: mint the request's one Admitted, or None if it has been minted before."""
        if not self._open:
            raise self._closed()
        shared = self._shared
        if shared.admitted is not None:
            return None
        shared.admitted = Admitted(scheduler, unit, key)
        return shared.admitted

    def _use(self) -> _Shared:
        # What runs for every unit repeats this by hand: a call costs as much as what it is for.
        if not self._open:
            raise self._closed()
        return self._shared

    def _closed(self) -> Misuse:
        return Misuse(f"use after close: {self!r}")

    def __del__(self) -> None:
        if self._open:
            try:
                warnings.warn(f"never closed: {self!r}", ResourceWarning, stacklevel=2, source=self)
            finally:
                self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_shared"):
            return "<ExecutionContext invalid>"
        shared = self._shared
        state = "closed" if not self._open else "cancelled" if shared.cancelled else "open"
        names = ", ".join(permit.admission.name for permit in shared.permits if permit.admission is not None)
        return f"<ExecutionContext {state} owners={shared.owners} deadline={shared.deadline} permits=[{names}]>"
