"""What the runtime announces about a request, and no other part can.

    Admitted   once per request: every refusing layer said yes, the first unit is queued
    Granted    per unit: it holds the scheduler's permit
    Started    per unit: its start callable returned, that is, its frame was sent
    Requeued   per unit: its host died and had not taken it; it waits again, before all others

For each unit the order is admitted <= granted < started; one that was requeued is granted
and started anew. A request that is refused, or that dies in the queue, never gets further than
the last one that is true. "Admitted" does not mean "you may stream" and neither implies the
other: they are separate types so that no route can take one for the other.
"""

from __future__ import annotations

from frontend.runtime._mint import KEY, require


class Signal:
    """Base of the four. Frozen, compared by identity; constructing one outside the runtime is Misuse."""

    # Not a frozen dataclass: three are made for every unit, and that one is filled by the slow way.
    __slots__ = ("_scheduler", "_unit")

    def __init__(self, scheduler: str, unit: int, key: object = None) -> None:
        if key is not KEY:
            require(key, type(self).__name__)
        self._scheduler = scheduler
        self._unit = unit

    @property
    def scheduler(self) -> str:
        """The name of the scheduler that speaks."""
        return self._scheduler

    @property
    def unit(self) -> int:
        """The scheduler's own number for the unit, in order of arrival; never a client's id."""
        return self._unit

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scheduler={self._scheduler!r}, unit={self._unit})"


class Admitted(Signal):
    """Every refusing layer said yes and the request's first unit is in the queue."""

    __slots__ = ()


class Granted(Signal):
    """The unit holds the permit; its start callable is called next, in the same step. One that is `joined` does not: it
    has joined an equal one, which does."""

    __slots__ = ("joined",)

    def __init__(self, scheduler: str, unit: int, key: object = None, *, joined: bool = False) -> None:
        super().__init__(scheduler, unit, key)
        self.joined = joined


class Started(Signal):
    """The unit's start callable returned: its frame is on the way and cannot be called back."""

    __slots__ = ()


class Requeued(Signal):
    """The unit's host died and is known not to have taken it: nothing was executed, and it is the next in the queue."""

    __slots__ = ()
