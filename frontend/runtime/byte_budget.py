"""One byte budget of a device: what stays there between requests, of all models and conversations together.

A holder reserves before the work, grows under its own name, and gives back what it held in one step. Room is made of
what no request uses: prefixes first, then conversations, the least recently used of each first. A refusal changes
nothing. It is used from the event loop's thread only and knows no clock: the order of calls is the order of use.
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
    """Who holds bytes: the kind, the incarnation of the host they lie in, and an id within both."""

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

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class Overage:
    """After a new limit: `overage` bytes are above it and in use; nothing is reserved until they are given back."""

    overage: int
    evicted: tuple[Holder, ...]


@dataclass(slots=True)
class _Holding:
    bytes: int
    users: int


class ByteBudget:
    """Bytes of one device. `limit` is in bytes, 0 or more."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = _natural(limit)
        self._used = 0
        self._holdings: dict[Holder, _Holding] = {}  # the least recently used first

    @property
    def used(self) -> int:
        return self._used

    @property
    def limit(self) -> int:
        return self._limit

    def held(self, holder: Holder) -> int:
        """Bytes that this holder has now; 0 for one that has none."""
        holding = self._holdings.get(holder)
        return 0 if holding is None else holding.bytes

    def reserve(self, holder: Holder, more: int) -> Held | BytesRefused:
        """Adds `more` bytes to what `holder` has and pins it for one user, or refuses and changes nothing."""
        used = self._used
        excess = used + _natural(more) - self._limit
        evicted = self._idle(excess, holder)
        if sum(self._holdings[each].bytes for each in evicted) < excess:
            return BytesRefused(self._name, more, used, self._limit, excess)
        self._drop(evicted)
        holding = self._holdings.pop(holder, None) or _Holding(0, 0)
        holding.bytes += more
        holding.users += 1
        self._holdings[holder] = holding
        self._used += more
        return Held(evicted)

    def unpin(self, holder: Holder) -> None:
        """One user of the holder's bytes has ended: they stay, and may be evicted when it was the last one."""
        holding = self._holdings.get(holder)
        if holding is None or holding.users == 0:
            raise Misuse(f"{self._name}: {holder} is not pinned")
        holding.users -= 1

    def give_back(self, holder: Holder) -> int:
        """Ends a holding, pinned or not, and says how many bytes came free."""
        if holder not in self._holdings:
            raise Misuse(f"{self._name}: {holder} holds nothing")
        before = self._used
        self._drop((holder,))
        return before - self._used

    def host_ended(self, host: str) -> tuple[Holder, ...]:
        """Everything in a host that died, was unloaded or was swapped is given back."""
        lost = tuple(each for each in self._holdings if each.host == host)
        self._drop(lost)
        return lost

    def reconfigure(self, limit: int) -> Overage:
        """The new limit holds at once; what no request uses is evicted down to it."""
        self._limit = _natural(limit)
        evicted = self._idle(self._used - limit, None)
        self._drop(evicted)
        return Overage(max(0, self._used - limit), evicted)

    def _idle(self, excess: int, besides: Holder | None) -> tuple[Holder, ...]:
        """Whom to evict for `excess` bytes, in order; all that is idle where that is not enough."""
        chosen: list[Holder] = []
        idle = [each for each, holding in self._holdings.items() if not holding.users and each != besides]
        for each in sorted(idle, key=lambda holder: holder.kind):
            if excess <= 0:
                break
            if self._holdings[each].bytes:
                chosen.append(each)
                excess -= self._holdings[each].bytes
        return tuple(chosen)

    def _drop(self, holders: Iterable[Holder]) -> None:
        for each in holders:
            self._used -= self._holdings.pop(each).bytes


def _natural(value: int) -> int:
    if value < 0:
        raise Misuse(f"{value} is not a number of bytes")
    return value
