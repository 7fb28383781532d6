"""Which deployments have hosts: more may be configured than fit, and one that is asked for takes the room of the idle.

Pure: events in, effects out; no process, no clock. The supervisor calls the events and is the effects.

    events      add, want, usage, measured, ready, broken, left, remove, look   (each ends with what can be done now)
    effects     start a deployment's hosts · evict them · refuse, with a reason

An evicted deployment keeps its room until its processes are gone and their memory is back (`left`): nothing is
started on the promise of room. Only the idle are evicted, the least recently used first; never a pinned one,
never one that is asked for itself, never in vain: when all the idle together would not make the room, none goes.
Who waits is served in the order of coming, and none overtakes the first in the line.

Steady clients of one deployment could keep another waiting for ever. So when the first in the line has waited for a
*turn*, those that have been there for a turn themselves make room although they are busy: they finish what they have,
and a request for them waits, in the line, for their own next turn.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.states import Machine


class Place(enum.Enum):
    """Where a deployment is, as far as room goes."""

    ABSENT = "absent"
    STARTING = "starting"
    RESIDENT = "resident"
    LEAVING = "leaving"
    BROKEN = "broken"


class Move(enum.Enum):
    """What moves it."""

    START = "start"
    READY = "ready"
    EVICT = "evict"
    LEFT = "left"
    BREAK = "break"


PLACES: Final[Mapping[tuple[Place, Move], Place]] = {
    (Place.ABSENT, Move.START): Place.STARTING,
    (Place.STARTING, Move.READY): Place.RESIDENT,
    (Place.STARTING, Move.EVICT): Place.LEAVING,
    (Place.RESIDENT, Move.EVICT): Place.LEAVING,
    (Place.LEAVING, Move.LEFT): Place.ABSENT,
    # Its hosts ended and will not be started again: it has no room, and gets some only when it is insisted on.
    (Place.STARTING, Move.BREAK): Place.BROKEN,
    (Place.RESIDENT, Move.BREAK): Place.BROKEN,
    (Place.LEAVING, Move.BREAK): Place.LEAVING,
    (Place.BROKEN, Move.START): Place.STARTING,
    # Stopped by a swap, which is no eviction.
    (Place.STARTING, Move.LEFT): Place.ABSENT,
    (Place.RESIDENT, Move.LEFT): Place.ABSENT,
    (Place.BROKEN, Move.LEFT): Place.ABSENT,
    (Place.ABSENT, Move.LEFT): Place.ABSENT,
}

TAKES_ROOM: Final = frozenset((Place.STARTING, Place.RESIDENT, Place.LEAVING))


class Effects(Protocol):
    """What the planner does to the world. None of these calls the planner back before it returns."""

    def start(self, deployment: str) -> None:
        """Start its hosts; `ready` or `broken` follows."""

    def evict(self, deployment: str) -> None:
        """Let it finish what it has, then end its hosts; `left` follows."""

    def refuse(self, deployment: str, why: str) -> None:
        """It need not be waited for: there cannot be room, whatever becomes idle."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be there at once, None for no bound."""

    count: int | None = None
    bytes: int | None = None
    turn_s: float | None = None
    """How long the first in the line waits before the busy make room for it; None: for ever."""


@dataclass(slots=True)
class _Entry:
    place: Machine[Place, Move]
    size: int
    pinned: bool
    keep_alive_s: float | None
    beside: str | None
    """What it is to replace, and has to be started beside."""
    kept: bool = False
    """A swap is at it: it stays until the swap has ended."""
    barred: bool = False
    """Its name is about to mean another one: no request has it started any more."""
    idle_since: float | None = None
    """When it became idle, on the caller's clock; None while it is busy, or that is not known."""
    there_since: float | None = None
    """When it was first seen resident; None while it is not."""
    waits_since: float | None = None
    """When it was first seen in the line; None while it is not there."""
    turns: int = 0
    """How often it has made room although it was busy."""


class Residency:
    """The planner of one supervisor. Ids are unknown until `add`; an event for an unknown one is a bug and raises."""

    def __init__(self, bounds: Bounds, effects: Effects) -> None:
        self._bounds, self._effects = bounds, effects
        self._entries: dict[str, _Entry] = {}
        self._asked: set[str] = set()
        """By an operator, a swap or the configuration: they are told by `ready` or `broken`, and do not leave."""
        self._line: list[str] = []
        """Who is wanted and has no host, in the order of coming."""

    # Events

    def add(
        self,
        deployment: str,
        *,
        size: int = 0,
        pinned: bool = False,
        keep_alive_s: float | None = None,
        beside: str | None = None,
    ) -> None:
        """A deployment that has no hosts yet. `size`: the bytes that it will take, as far as is known. `beside`: the
        one that it is to replace, which does not make room for it; until `keep` says otherwise it makes none itself."""
        if deployment in self._entries:
            raise KeyError(f"{deployment!r} is known already")
        place = Machine(PLACES, Place.ABSENT)
        self._entries[deployment] = _Entry(place, size, pinned, keep_alive_s, beside, kept=beside is not None)

    def remove(self, deployment: str) -> None:
        """It is gone for good, and so are its processes."""
        del self._entries[deployment]
        self._asked.discard(deployment)
        if deployment in self._line:
            self._line.remove(deployment)
        self._plan()

    def want(self, deployment: str, *, first: bool = False, room_of: str | None = None) -> None:
        """It is insisted on by an operator, a swap (`first` in the line), or the configuration at the start.
        `room_of`: the one whose processes are gone for it, so that no other takes the room in between."""
        entry = self._entries[deployment]
        if room_of is not None:
            self._entries[room_of].place.advance(Move.LEFT)
        self._asked.add(deployment)
        # What the front said last is old: none is known to be idle until it says so again.
        for other in self._entries.values():
            other.idle_since = None
        if deployment not in self._line and entry.place.state not in (Place.STARTING, Place.RESIDENT):
            self._line.insert(0 if first else len(self._line), deployment)
        self._plan()

    def withdraw(self, deployment: str) -> None:
        """It is not insisted on any more. One that is being started goes on."""
        self._asked.discard(deployment)
        if deployment in self._line:
            self._line.remove(deployment)
        self._plan()

    def usage(self, wanted: Collection[str], idle: Mapping[str, float]) -> None:
        """The whole picture of the front: which absent deployments requests wait for, in the order of coming, and
        since when which deployments have been idle. What is not in it is not wanted and not idle. Unknown ids are
        of yesterday and ignored."""
        for name, entry in self._entries.items():
            entry.idle_since = idle.get(name)
        self._line = [name for name in self._line if name in self._asked or name in wanted]
        for name in wanted:
            if (
                name not in self._line
                and name in self._entries
                and not self._entries[name].barred
                and self._entries[name].place.state
                in (
                    Place.ABSENT,
                    Place.LEAVING,
                )
            ):
                self._line.append(name)
        self._plan()

    def measured(self, deployment: str, size: int) -> None:
        """It takes `size` bytes, or will take as many."""
        self._entries[deployment].size = size
        self._plan()

    def ready(self, deployment: str) -> None:
        """Its hosts are warm."""
        entry = self._entries[deployment]
        if entry.place.state is Place.STARTING:
            entry.place.advance(Move.READY)
        self._asked.discard(deployment)
        self._plan()

    def broken(self, deployment: str) -> None:
        """Its hosts have ended and will not be started again."""
        entry = self._entries[deployment]
        if entry.place.allows(Move.BREAK):
            entry.place.advance(Move.BREAK)
        self._asked.discard(deployment)
        self._plan()

    def left(self, deployment: str) -> None:
        """Its processes are gone and their memory is back."""
        self._entries[deployment].place.advance(Move.LEFT)
        self._plan()

    def bar(self, deployment: str, barred: bool) -> None:
        """Requests must not, or may again, have it started: a swap has taken its name from it. A front that does not
        know that yet may still want it."""
        self._entries[deployment].barred = barred
        if barred:
            self.withdraw(deployment)

    def keep(self, deployment: str, kept: bool) -> None:
        """It may not, or may again, be evicted; for a while, so that those that wait for room go on waiting."""
        self._entries[deployment].kept = kept
        self._plan()

    def unload(self, deployment: str, *, loading: bool = False) -> bool:
        """An operator wants its room back, idle or not. False when it has none to give, or is pinned; one that is
        `loading`, again or for the first time, serves no request, so that its pin is no reason."""
        entry = self._entries[deployment]
        if (entry.pinned and not loading) or not entry.place.allows(Move.EVICT):
            return False
        self._asked.discard(deployment)
        self._evict(deployment)
        return True

    def expire(self, now: float) -> None:
        """Let those go that have been idle for as long as they are kept."""
        for name, entry in self._entries.items():
            since, kept = entry.idle_since, entry.keep_alive_s
            if self._evictable(name) and since is not None and kept is not None and now - since >= kept:
                self._evict(name)

    def look(self, now: float) -> None:
        """Time has passed: perhaps it is another one's turn."""
        for name, entry in self._entries.items():
            there, waits = entry.place.state is Place.RESIDENT, name in self._line
            entry.there_since = (now if entry.there_since is None else entry.there_since) if there else None
            entry.waits_since = (now if entry.waits_since is None else entry.waits_since) if waits else None
        if not self._line or self._bounds.turn_s is None:
            return
        name, since = self._line[0], now - self._bounds.turn_s
        waits_since = self._entries[name].waits_since
        if self._entries[name].place.state is Place.LEAVING or waits_since is None or waits_since > since:
            return
        busy = [
            other
            for other, entry in self._entries.items()
            if self._may_leave(other) and entry.there_since is not None and entry.there_since <= since
        ]
        longest_first = sorted(busy, key=lambda other: self._entries[other].there_since or 0.0)
        for victim in self._fewest(name, [*self._idle(), *longest_first]):
            self._entries[victim].turns += 1
            self._evict(victim)

    # What there is

    def turns(self, deployment: str) -> int:
        """How often it has made room although it was busy."""
        return self._entries[deployment].turns

    def place(self, deployment: str) -> Place:
        """Where it is."""
        return self._entries[deployment].place.state

    # The plan

    def _plan(self) -> None:
        """Serve the line from its head, as far as there is room or room can be made."""
        while self._line:
            name = self._line[0]
            entry = self._entries[name]
            if entry.place.state is Place.LEAVING:
                return  # its room will be its own again
            never = self._never(name)
            if never is not None:
                self._line.pop(0)
                self._asked.discard(name)
                self._effects.refuse(name, never)
            elif self._fits(name, ()):
                self._line.pop(0)
                entry.place.advance(Move.START)
                entry.idle_since = None
                self._effects.start(name)
            else:
                for victim in self._victims(name):
                    self._evict(victim)
                return

    def _fits(self, name: str, gone: Collection[str]) -> bool:
        """Whether there is room for it beside all that take room, those in `gone` left out."""
        there = [
            entry
            for other, entry in self._entries.items()
            if other != name and other not in gone and entry.place.state in TAKES_ROOM
        ]
        count, size = self._bounds.count, self._bounds.bytes
        return (count is None or len(there) < count) and (
            size is None or sum(entry.size for entry in there) + self._entries[name].size <= size
        )

    def _victims(self, name: str) -> list[str]:
        """The fewest of the idle, least recently used first, that make room beside those who leave already; none
        when all of them would not."""
        return self._fewest(name, self._idle())

    def _idle(self) -> list[str]:
        idle = [other for other in self._entries if self._evictable(other)]
        return sorted(idle, key=lambda other: self._entries[other].idle_since or 0.0)

    def _fewest(self, name: str, candidates: list[str]) -> list[str]:
        gone = [other for other, entry in self._entries.items() if entry.place.state is Place.LEAVING]
        victims: list[str] = []
        for victim in dict.fromkeys(candidates):
            if self._fits(name, (*gone, *victims)):
                break
            victims.append(victim)
        return victims if self._fits(name, (*gone, *victims)) else []

    def _evictable(self, name: str) -> bool:
        return self._may_leave(name) and self._entries[name].idle_since is not None

    def _may_leave(self, name: str) -> bool:
        entry = self._entries[name]
        return entry.place.state is Place.RESIDENT and not entry.pinned and not entry.kept

    def _evict(self, name: str) -> None:
        entry = self._entries[name]
        entry.place.advance(Move.EVICT)
        entry.idle_since = None
        self._effects.evict(name)

    def _never(self, name: str) -> str | None:
        """Why there cannot be room for it even beside the pinned, and what it is to replace, alone; None when there
        can."""
        beside = self._entries[name].beside
        others = [other for other, entry in self._entries.items() if not entry.pinned and other != beside]
        if self._fits(name, others):
            return None
        count, size = self._bounds.count, self._bounds.bytes
        if size is not None and self._entries[name].size > size:
            return f"it takes {self._entries[name].size} bytes, max_resident_bytes is {size}"
        bounds = {"max_resident": count, "max_resident_bytes": size}
        told = ", ".join(f"{bound} {value}" for bound, value in bounds.items() if value is not None)
        if beside is not None and self._fits(name, (*others, beside)):
            return f"there is no room for it beside {beside} ({told}); --mode stop-first stops that one first"
        return f"pinned models take all the room ({told})"

    def __repr__(self) -> str:
        places = ", ".join(f"{name} {entry.place.state.value}" for name, entry in self._entries.items())
        return f"<Residency {places}; line {self._line}>"
