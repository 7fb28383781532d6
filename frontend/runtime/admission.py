"""Bounded admission: a counter that refuses and never waits.

It bounds how many requests are outstanding and, if asked to, a cost the caller defines
(tokens, bytes). The verdict and the reservation are one synchronous step, so no second
caller can come between them. Counters are never clamped: one that heals itself hides a
leak in the other direction, so giving back what is not held raises instead.

What it is not: it runs nothing, owns no queue, and knows neither deadlines nor models.
It is used from the event loop's thread only.
"""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, NoReturn, Self, SupportsIndex

from frontend.errors import Misuse
from frontend.runtime._mint import KEY, require


class _Keep(enum.Enum):
    KEEP = enum.auto()


KEEP: Final = _Keep.KEEP
"""`resize`: leave this limit as it is. None cannot say so, because for a cost it means "no ceiling"."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A falsy verdict that says what refused and by how much. Nothing was reserved."""

    admission: str
    limit: Literal["requests", "cost"]
    requested: int
    used: int
    bound: int
    shortfall: int
    """How much would have to come free for this very request: used + requested - bound."""

    permanent: bool
    """The cost is above the whole budget: waiting does not help, and it is never clamped to fit."""

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """One consistent reading of a BoundedAdmission."""

    name: str
    outstanding: int
    requests: int
    held: int
    cost: int | None
    admitted: int
    rejected: int
    overage_requests: int
    """How many more are outstanding than the limit allows; above zero only after a `resize` downwards."""

    overage_cost: int


class PermitState(enum.Enum):
    """Who gives the permit back: its holder, a context's reservation, or no owner any more."""

    HELD = "held"
    RETAINED = "retained"
    RELEASED = "released"


# Python 3.11 looks a member up in its enum five times as slowly as a name of the module (0.4 us), and every request
# would do that some fifty times. So here, and wherever every request passes.
_HELD: Final = PermitState.HELD
_RETAINED: Final = PermitState.RETAINED
_RELEASED: Final = PermitState.RELEASED


class Permit:
    """One reservation, owned by the holder of this object, released exactly once.

    `release()` gives it back; `ExecutionContext.retain` takes it over, after which only the
    context's last owner gives it back. Leaving a `with` block gives back what the block
    still owns: nothing, if the permit was released or retained inside it. It is not
    copied and not pickled. A permit that is dropped while held is a bug: it warns with a
    ResourceWarning, and its reservation goes back, since permits in use are live holders.
    """

    __slots__ = ("_counted", "_state", "admission", "cost")

    def __init__(self, admission: BoundedAdmission, cost: int, *, counted: bool = True, key: object = None) -> None:
        if key is not KEY:
            # __del__ also runs for an object whose constructor raised.
            self._state = PermitState.RELEASED
            require(key, "Permit")
        self.admission: Final = admission
        self.cost = cost
        """What it has reserved; only `try_grow` changes it."""
        self._counted = counted
        self._state = _HELD

    @property
    def state(self) -> PermitState:
        return self._state

    def try_grow(self, more: int) -> Refusal | None:
        """Reserve `more` cost on top of what this permit has, or refuse and reserve nothing; decided in one step.

        None: it was reserved, and goes back with the rest. Misuse for a permit that is not held any more.
        """
        if self._state is not PermitState.HELD:
            raise Misuse(f"cannot grow {self!r}")
        refusal = self.admission._reserve_more(self.cost, more)
        if refusal is None:
            self.cost += more
        return refusal

    def count(self) -> None:
        """Count it as admitted, once: what it was reserved for has turned out to be a request."""
        if not self._counted:
            self._counted = True
            self.admission._admitted += 1

    def release(self) -> None:
        """Give the reservation back. Misuse if it was released before, or belongs to a context."""
        self._leave(PermitState.HELD)

    def retained(self) -> None:
        """For ExecutionContext.retain: from here on only `release_retained` gives it back."""
        if self._state is not _HELD:
            raise Misuse(f"cannot retain {self!r}")
        self._state = _RETAINED

    def release_retained(self) -> None:
        """For the context's reservation, when its last owner is gone."""
        self._leave(_RETAINED)

    def _leave(self, owner: PermitState) -> None:
        if self._state is not owner:
            raise Misuse(f"{self!r} is not {owner.value}, so it cannot be released from there")
        self._state = _RELEASED
        self.admission._give_back(self.cost)

    def __enter__(self) -> Self:
        if self._state is not _HELD:
            raise Misuse(f"cannot enter {self!r}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._state is _HELD:
            self._leave(_HELD)

    def __del__(self) -> None:
        if self._state is _HELD:
            try:
                warnings.warn(f"dropped without release: {self!r}", ResourceWarning, stacklevel=2, source=self)
            finally:
                self.release()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise Misuse("a Permit is owned: it is not copied and not pickled")

    def __repr__(self) -> str:
        if not hasattr(self, "cost"):
            return "<Permit forged>"
        return f"<Permit of {self.admission.name!r} cost={self.cost} {self._state.value}>"


class BoundedAdmission:
    """At most `requests` outstanding permits and, unless `cost` is None, at most `cost` held in total.

    A bound below one raises ValueError: it admits nothing, which is never what was meant.
    """

    __slots__ = ("_admitted", "_cost", "_held", "_outstanding", "_rejected", "_requests", "name")

    def __init__(self, name: str, *, requests: int, cost: int | None = None) -> None:
        self.name: Final = name
        self._requests = _bound("requests", requests)
        self._cost = None if cost is None else _bound("cost", cost)
        self._outstanding = 0
        self._held = 0
        self._admitted = 0
        self._rejected = 0

    def try_admit(self, cost: int = 0, *, counted: bool = True) -> Permit | Refusal:
        """Reserve one request and its cost, or refuse and reserve nothing; decided in one step.

        The permit belongs to the caller, who releases it or hands it to a context. A cost
        that is negative or not an int is Misuse and is not counted as a refusal. `counted`: as
        admitted at once; else by the permit's `count`, for what is reserved before it is known to be valid.
        """
        if type(cost) is not int or cost < 0:
            raise Misuse(f"a cost is a non-negative int, not {cost!r}")
        ceiling = self._cost
        # What can never fit is named before what is only full now: the client is told not to come back.
        if ceiling is not None and cost > ceiling:
            return self._refuse("cost", cost, self._held, ceiling, permanent=True)
        if self._outstanding >= self._requests:
            return self._refuse("requests", 1, self._outstanding, self._requests, permanent=False)
        if ceiling is not None and self._held + cost > ceiling:
            return self._refuse("cost", cost, self._held, ceiling, permanent=False)
        self._outstanding += 1
        self._held += cost
        self._admitted += counted
        return Permit(self, cost, counted=counted, key=KEY)

    def _reserve_more(self, has: int, more: int) -> Refusal | None:
        """For `Permit.try_grow`."""
        if type(more) is not int or more < 0:
            raise Misuse(f"a cost is a non-negative int, not {more!r}")
        ceiling = self._cost
        if ceiling is not None and self._held + more > ceiling:
            return self._refuse("cost", more, self._held, ceiling, permanent=has + more > ceiling)
        self._held += more
        return None

    def resize(self, *, requests: int | _Keep = KEEP, cost: int | _Keep | None = KEEP) -> None:
        """Change the limits live; what is not named stays, `cost=None` lifts the ceiling.

        Permits already out are not revoked. Below what is in use, nothing is admitted until
        enough came back, and `statistics()` reports the overage. A bad bound changes nothing.
        """
        new_requests = self._requests if requests is KEEP else _bound("requests", requests)
        new_cost = self._cost if cost is KEEP else None if cost is None else _bound("cost", cost)
        self._requests, self._cost = new_requests, new_cost

    @property
    def outstanding(self) -> int:
        """Permits that are out."""
        return self._outstanding

    @property
    def free(self) -> int:
        """How many more requests could be admitted now, by their number alone."""
        return max(0, self._requests - self._outstanding)

    def statistics(self) -> AdmissionStatistics:
        return AdmissionStatistics(
            name=self.name,
            outstanding=self._outstanding,
            requests=self._requests,
            held=self._held,
            cost=self._cost,
            admitted=self._admitted,
            rejected=self._rejected,
            overage_requests=max(0, self._outstanding - self._requests),
            overage_cost=0 if self._cost is None else max(0, self._held - self._cost),
        )

    def _refuse(
        self, limit: Literal["requests", "cost"], requested: int, used: int, bound: int, *, permanent: bool
    ) -> Refusal:
        self._rejected += 1
        return Refusal(
            admission=self.name,
            limit=limit,
            requested=requested,
            used=used,
            bound=bound,
            shortfall=used + requested - bound,
            permanent=permanent,
        )

    def _give_back(self, cost: int) -> None:
        if self._outstanding < 1 or self._held < cost:
            raise Misuse(f"{self!r} is given back cost {cost} that it does not hold")
        self._outstanding -= 1
        self._held -= cost

    def __repr__(self) -> str:
        ceiling = "" if self._cost is None else f"/{self._cost}"
        return (
            f"<BoundedAdmission {self.name!r} outstanding={self._outstanding}/{self._requests} "
            f"held={self._held}{ceiling} admitted={self._admitted} rejected={self._rejected}>"
        )


def _bound(what: str, value: int) -> int:
    if type(value) is not int:
        raise TypeError(f"the {what} bound is an int, not {value!r}")
    if value < 1:
        raise ValueError(f"a {what} bound of {value} admits nothing")
    return value
