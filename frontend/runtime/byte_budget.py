"""One byte budget of a device: what stays there between requests, of all models and conversations together.

    reserve ─▶ the request is executed ─▶ end, with what the host says that it holds ─▶ idle ─▶ evicted, given back
       │
       └── refused: nothing has changed

A holder reserves before the work, under its own name, for what it may come to hold at most; the host says what it has
become. Room is made of what no request uses: prefixes first, then conversations, the least recently used of each first;
a prefix takes nothing from a conversation. A refusal changes nothing. It is used from the event loop's thread only and
knows no clock: the order of calls is the order of use.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from frontend.errors import Misuse


class Kind(enum.IntEnum):
    """What is held. The order is that of eviction."""

    PREFIX = 0
    CONVERSATION = 1


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds bytes: the kind, the host they lie in, and an id within both."""

    kind: Kind
    host: str
    id: str


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes are reserved. `evicted` is in the order in which the hosts must drop."""

    evicted: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class BytesRefused:
    """A falsy verdict in bytes. Nothing was reserved and nothing evicted."""

    budget: str
    requested: int
    used: int
    limit: int
    shortfall: int
    """How much would have to come free for this very request: used + requested - limit."""

    @property
    def permanent(self) -> bool:
        """Whether waiting does not help: it is more than the whole budget."""
        return self.requested > self.limit

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class Overage:
    """After a new limit: `overage` bytes are above it and in use; nothing is reserved until they are given back."""

    overage: int
    evicted: tuple[Holder, ...]


@dataclass(slots=True)
class _Holding:
    settled: int = 0
    """What the host has said."""
    reserved: int = 0
    """For units on their way, beside that."""
    users: int = 0

    @property
    def bytes(self) -> int:
        return self.settled + self.reserved


class ByteBudget:
    """Bytes of one device. `limit` is in bytes, 0 or more."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self._limit = _natural(limit)
        self._used = 0
        self._holdings: dict[Holder, _Holding] = {}  # the least recently used first

    def __repr__(self) -> str:
        return f"<ByteBudget {self.name!r} {self._used} of {self._limit}>"

    @property
    def used(self) -> int:
        return self._used

    @property
    def limit(self) -> int:
        return self._limit

    def held(self, holder: Holder) -> int:
        """Bytes that this holder has now, reserved ones among them; 0 for one that has none."""
        holding = self._holdings.get(holder)
        return 0 if holding is None else holding.bytes

    def settled(self, holder: Holder) -> int:
        """Bytes of it that lie in its host, as that says."""
        holding = self._holdings.get(holder)
        return 0 if holding is None else holding.settled

    def reserve(self, holder: Holder, more: int) -> Held | BytesRefused:
        """Adds `more` bytes to what `holder` has and pins it for one user, or refuses and changes nothing."""
        used = self._used
        excess = used + _natural(more) - self._limit
        evicted = self._idle(excess, holder) if more else ()
        if more and sum(self._holdings[each].settled for each in evicted) < excess:
            return BytesRefused(self.name, more, used, self._limit, excess)
        self._drop(evicted)
        holding = self._holdings.pop(holder, None) or _Holding()
        holding.reserved += more
        holding.users += 1
        self._holdings[holder] = holding
        self._used += more
        return Held(evicted)

    def end(self, holder: Holder, more: int, now: int | None = None) -> None:
        """One user has ended, and with it what it had reserved. `now`: what the host says that it holds since; what it
        says beyond what it was given is not believed. None: it has said nothing new. What is held may be evicted when
        it was the last user."""
        holding = self._holdings.get(holder)
        if holding is None or not holding.users or _natural(more) > holding.reserved:
            raise Misuse(f"{self.name}: {holder} has not reserved {more} bytes")
        before = holding.bytes
        settled = holding.settled if now is None else min(_natural(now), holding.settled + more)
        holding.users -= 1
        holding.reserved -= more
        holding.settled = settled
        self._used += holding.bytes - before
        self._tidy(holder)

    def give_back(self, holder: Holder) -> int:
        """What lies in the host of a holding, used or not; says how many bytes came free. 0: there was nothing."""
        holding = self._holdings.get(holder)
        if holding is None:
            return 0
        freed, holding.settled = holding.settled, 0
        self._used -= freed
        self._tidy(holder)
        return freed

    def host_ended(self, host: str) -> tuple[Holder, ...]:
        """Everything in a host that died, was unloaded or was swapped is given back; whose it was."""
        lost = tuple(each for each, holding in self._holdings.items() if each.host == host and holding.settled)
        for each in lost:
            self.give_back(each)
        return lost

    def adopt(self, holder: Holder, size: int) -> None:
        """A host holds so many bytes for an earlier front: they are used, whatever the limit is."""
        holding = self._holdings.setdefault(holder, _Holding())
        self._used += _natural(size) - holding.settled
        holding.settled = size
        self._tidy(holder)

    def reconfigure(self, limit: int) -> Overage:
        """The new limit holds at once; what no request uses is evicted down to it."""
        self._limit = _natural(limit)
        evicted = self._idle(self._used - limit, None)
        self._drop(evicted)
        return Overage(max(0, self._used - limit), evicted)

    def _idle(self, excess: int, besides: Holder | None) -> tuple[Holder, ...]:
        """Whom to evict for `excess` bytes, in order; all that is idle where that is not enough."""
        chosen: list[Holder] = []
        idle = [
            each
            for each, holding in self._holdings.items()
            if not holding.users and each != besides and (besides is None or each.kind <= besides.kind)
        ]
        for each in sorted(idle, key=lambda holder: holder.kind):
            if excess <= 0:
                break
            chosen.append(each)
            excess -= self._holdings[each].settled
        return tuple(chosen)

    def _drop(self, holders: Iterable[Holder]) -> None:
        for each in holders:
            self._used -= self._holdings.pop(each).settled

    def _tidy(self, holder: Holder) -> None:
        holding = self._holdings[holder]
        if not holding.users and not holding.settled:
            del self._holdings[holder]


def _natural(value: int) -> int:
    if value < 0:
        raise Misuse(f"{value} is not a number of bytes")
    return value
