"""How the meaning of a name is changed under load: which steps, in which order, and what a failing one leaves behind.

    start-first    start the new ─▶ warm ─▶ the name means it ─▶ the old finishes ─▶ the old is gone
    stop-first     newcomers wait ─▶ the old finishes ─▶ the old is gone ─▶ start the new ─▶ warm ─▶ newcomers go on

Start-first needs room for both. When the new one cannot be started, the old has not been touched; under
stop-first it is started again and takes those who waited. Either way a request runs on the deployment that it
was prepared for, and the swap has succeeded when the old processes are reaped and their memory is back.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from executor_host.supervision.hosts import Freed, Hosts
from protocol.models import DeploymentSpec
from protocol.states import RoleEvent


class Mode(enum.Enum):
    """Whether the new hosts are started before the old ones stop."""

    START_FIRST = "start-first"
    STOP_FIRST = "stop-first"


class SwapFailed(Exception):
    """The name still means what it meant. The text says why, and what the attempt has cost."""


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


class Effects(Protocol):
    """What a swap does to the world."""

    drain_s: float
    clock: Callable[[], float]

    def create(self, spec: DeploymentSpec) -> Hosts:
        """A coming deployment, known to the front."""
        ...

    def publish(self) -> None:
        """Tell the front what every name means, in one message."""
        ...

    async def begin(self, hosts: Hosts, *, room_of: Hosts | None = None) -> str:
        """Start it as soon as there is room, before anybody else who waits for room, and wait until it is settled;
        why there is no ready host, or nothing when there is one. `room_of`: a deployment whose processes are gone, and
        whose room is for this one alone."""
        ...

    def drop(self, hosts: Hosts) -> None:
        """Forget a deployment whose processes are gone, here and in the front."""
        ...


async def swap(
    old: Hosts, spec: DeploymentSpec, mode: Mode, effects: Effects, say: Callable[[str], None]
) -> SwapReport:
    """Make the name of `old` mean `spec`. `say` hears of each step.

    Raises `SwapFailed`. Cancelled only when the whole server stops, which ends every host anyway.
    """
    steps = _start_first if mode is Mode.START_FIRST else _stop_first
    return await steps(old, spec, effects, say)


async def _start_first(old: Hosts, spec: DeploymentSpec, effects: Effects, say: Callable[[str], None]) -> SwapReport:
    began = effects.clock()
    say(f"starting {spec.id} beside {old.spec.id}")
    new = effects.create(spec)
    why = await effects.begin(new)
    if why:
        await new.stop(0.0)
        new.become(RoleEvent.REPLACE)
        effects.drop(new)
        raise SwapFailed(f"{spec.id} could not be started: {why}. {old.spec.id} has not been touched and serves on")
    new.become(RoleEvent.SWITCH)
    old.become(RoleEvent.REPLACE)
    effects.publish()
    say(f"{spec.name} means {spec.id} now; {old.spec.id} finishes what it has")
    await old.drained.wait()
    freed = await old.stop(effects.drain_s)
    effects.drop(old)
    return _report(old, new, Mode.START_FIRST, effects.clock() - began, 0.0, freed)


async def _stop_first(old: Hosts, spec: DeploymentSpec, effects: Effects, say: Callable[[str], None]) -> SwapReport:
    began = effects.clock()
    old.become(RoleEvent.HOLD)
    effects.publish()
    say(f"newcomers wait; {old.spec.id} finishes what it has")
    await old.drained.wait()
    freed = await old.stop(effects.drain_s)
    say(f"{old.spec.id} is gone; starting {spec.id}")
    new = effects.create(spec)
    why = await effects.begin(new, room_of=old)
    if why:
        await new.stop(0.0)
        new.become(RoleEvent.REPLACE)
        say(f"{spec.id} could not be started: {why}; starting {old.spec.id} again")
        other = await effects.begin(old, room_of=new)
        old.become(RoleEvent.RESTORE)
        effects.drop(new)
        gap = effects.clock() - began
        restored = f"could not be started again either: {other}" if other else "serves again"
        raise SwapFailed(
            f"{spec.id} could not be started: {why}. {old.spec.id} {restored}; newcomers waited {gap:.2f} s"
        )
    new.become(RoleEvent.SWITCH)
    old.become(RoleEvent.REPLACE)
    effects.drop(old)
    total = effects.clock() - began
    return _report(old, new, Mode.STOP_FIRST, total, total, freed)


def _report(old: Hosts, new: Hosts, mode: Mode, total_s: float, gap_s: float, freed: Freed) -> SwapReport:
    return SwapReport(new.spec.name, old.spec.id, new.spec.id, mode.value, total_s, gap_s, freed.bytes, freed.held)
