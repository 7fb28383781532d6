"""How the meaning of a name is changed under load: which steps, in which order, and what a failing one leaves behind.

    start-first    start the new ─▶ warm ─▶ the name means it ─▶ the old finishes ─▶ the old is gone
    stop-first     newcomers wait ─▶ the old finishes ─▶ the old is gone ─▶ start the new ─▶ warm ─▶ newcomers go on

Start-first needs room for both. When the new one cannot be started, the old has not been touched; under
stop-first it is started again and takes those who waited. Either way a request runs on the deployment that it
was prepared for, and the swap has succeeded when the old processes are reaped and their memory is back.

Pure: events in, effects out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.states import Machine, RoleEvent


class Mode(enum.Enum):
    """Whether the new hosts are started before the old ones stop."""

    START_FIRST = "start-first"
    STOP_FIRST = "stop-first"


class SwapFailed(Exception):
    """The name still means what it meant. The text says why, and what the attempt has cost."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What a stop has freed, in bytes."""

    bytes: int
    """Resident when the stop began."""
    held: int
    """Still resident although every process has ended; 0 unless something is wrong with the machine."""


@dataclass(frozen=True, slots=True)
class SwapReport:
    """What a swap has done. Times in seconds, memory in bytes."""

    model: str
    old: str
    new: str
    mode: str
    total_s: float
    gap_s: float
    """How long newcomers waited at the name; 0 when they did not have to."""
    freed_bytes: int
    """What the old processes had resident when they were asked to go."""
    held_bytes: int
    """What of it is resident still: the swap has succeeded when it is 0."""


class Step(enum.Enum):
    """What a swap waits for."""

    STARTING = "starting"
    """The new hosts."""
    DRAINING = "draining"
    """The last request of the old ones."""
    STOPPING = "stopping"
    """The end of the old processes."""
    UNDOING = "undoing"
    """The end of the new processes, which cannot be used."""
    RESTORING = "restoring"
    """The old hosts, started again."""
    DONE = "done"
    FAILED = "failed"


class Event(enum.Enum):
    """What moves a swap."""

    READY = "ready"
    FAIL = "fail"
    DRAINED = "drained"
    GONE = "gone"


START_FIRST: Final[Mapping[tuple[Step, Event], Step]] = {
    (Step.STARTING, Event.READY): Step.DRAINING,
    (Step.DRAINING, Event.DRAINED): Step.STOPPING,
    (Step.STOPPING, Event.GONE): Step.DONE,
    (Step.STARTING, Event.FAIL): Step.UNDOING,
    (Step.UNDOING, Event.GONE): Step.FAILED,
}

STOP_FIRST: Final[Mapping[tuple[Step, Event], Step]] = {
    (Step.DRAINING, Event.DRAINED): Step.STOPPING,
    (Step.STOPPING, Event.GONE): Step.STARTING,
    (Step.STARTING, Event.READY): Step.DONE,
    (Step.STARTING, Event.FAIL): Step.UNDOING,
    (Step.UNDOING, Event.GONE): Step.RESTORING,
    (Step.RESTORING, Event.READY): Step.FAILED,
    (Step.RESTORING, Event.FAIL): Step.FAILED,
}


class Effects(Protocol):
    """What a swap does to the world. Deployments by id. None of these calls the swap back before it returns."""

    def create(self) -> None:
        """Make the new deployment, coming, and known to the front."""

    def become(self, deployment: str, event: RoleEvent) -> None:
        """Change what a deployment is to its name; the front is told by `publish`."""

    def publish(self) -> None:
        """Tell the front what every name means, in one message."""

    def begin(self, deployment: str, room_of: str | None) -> None:
        """Start its hosts as soon as there is room, before anybody else who waits for room. `room_of`: a deployment
        whose processes are gone, and whose room is for this one alone. `ready` or `failed` follows."""

    def await_drained(self, deployment: str) -> None:
        """`drained` follows when no request needs its hosts any more."""

    def stop(self, deployment: str, *, at_once: bool) -> None:
        """Let its hosts finish what they have, or end them `at_once`; `gone` follows."""

    def drop(self, deployment: str) -> None:
        """Forget a deployment whose processes are gone, here and in the front."""

    def say(self, text: str) -> None:
        """Tell a step to the operator who ordered the swap."""

    def succeed(self, report: SwapReport) -> None:
        """It is done."""

    def fail(self, why: str) -> None:
        """The name means what it meant."""


class Swap:
    """One change of one name. `begin` once; then the events that its effects announce."""

    def __init__(self, name: str, old: str, new: str, mode: Mode, effects: Effects, clock: Callable[[], float]) -> None:
        """`old`, `new`: ids of deployments. `clock`: in seconds."""
        self.name, self.old, self.new, self.mode = name, old, new, mode
        self._effects, self._clock = effects, clock
        first = mode is Mode.START_FIRST
        self.step = Machine(START_FIRST if first else STOP_FIRST, Step.STARTING if first else Step.DRAINING)
        self._began = clock()
        self._freed = Freed(0, 0)
        self._why = ""

    # Events

    def begin(self) -> None:
        """Take the first step."""
        effects = self._effects
        if self.mode is Mode.START_FIRST:
            effects.say(f"starting {self.new} beside {self.old}")
            effects.create()
            effects.begin(self.new, None)
        else:
            effects.become(self.old, RoleEvent.HOLD)
            effects.publish()
            effects.say(f"newcomers wait; {self.old} finishes what it has")
            effects.await_drained(self.old)

    def ready(self) -> None:
        """The hosts that were begun can take work, all of them."""
        step = self.step.advance(Event.READY)
        if step is Step.FAILED:
            self._restored("serves again")
            return
        effects = self._effects
        effects.become(self.new, RoleEvent.SWITCH)
        effects.become(self.old, RoleEvent.REPLACE)
        if step is Step.DRAINING:
            effects.publish()
            effects.say(f"{self.name} means {self.new} now; {self.old} finishes what it has")
            effects.await_drained(self.old)
        else:
            effects.drop(self.old)
            self._succeed(gap_s=self._clock() - self._began)

    def failed(self, why: str) -> None:
        """The hosts that were begun cannot be used."""
        if self.step.advance(Event.FAIL) is Step.FAILED:
            self._restored(f"could not be started again either: {why}")
        else:
            self._why = why
            self._effects.stop(self.new, at_once=True)

    def drained(self) -> None:
        """No request needs the old hosts any more."""
        self.step.advance(Event.DRAINED)
        self._effects.stop(self.old, at_once=False)

    def gone(self, freed: Freed) -> None:
        """The processes that were stopped are reaped."""
        step = self.step.advance(Event.GONE)
        effects = self._effects
        if step is Step.DONE:
            self._freed = freed
            effects.drop(self.old)
            self._succeed(gap_s=0.0)
        elif step is Step.STARTING:
            self._freed = freed
            effects.say(f"{self.old} is gone; starting {self.new}")
            effects.create()
            effects.begin(self.new, self.old)
        elif step is Step.RESTORING:
            effects.become(self.new, RoleEvent.REPLACE)
            effects.say(f"{self.new} could not be started: {self._why}; starting {self.old} again")
            effects.begin(self.old, self.new)
        else:
            effects.become(self.new, RoleEvent.REPLACE)
            effects.drop(self.new)
            effects.fail(f"{self.new} could not be started: {self._why}. {self.old} has not been touched and serves on")

    # Ends

    def _restored(self, how: str) -> None:
        self._effects.become(self.old, RoleEvent.RESTORE)
        self._effects.drop(self.new)
        gap = self._clock() - self._began
        self._effects.fail(
            f"{self.new} could not be started: {self._why}. {self.old} {how}; newcomers waited {gap:.2f} s"
        )

    def _succeed(self, *, gap_s: float) -> None:
        total_s = self._clock() - self._began
        freed = self._freed
        self._effects.succeed(
            SwapReport(self.name, self.old, self.new, self.mode.value, total_s, gap_s, freed.bytes, freed.held)
        )

    def __repr__(self) -> str:
        return f"<Swap {self.old} -> {self.new} {self.mode.value} {self.step.state.value}>"
