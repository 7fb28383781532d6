"""The hosts of one deployment, together: started, counted, stopped; and what the deployment is to its name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from executor_host.launch.memory import freed, group_resident_bytes
from executor_host.supervision.host_slot import HostSlot, Owner
from protocol.models import DeploymentSpec, Standing
from protocol.states import ROLES, HostState, Machine, Role, RoleEvent

STOP_MARGIN_S = 2.0
"""After the drain budget, what a process gets to end by itself before it is killed."""

FREED_LIMIT_S = 10.0
"""How long the memory of a process that has ended may still be accounted to its group: a child of its own that
was killed with it gives its pages back when the kernel gets to it."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What a stop has given back, in bytes."""

    bytes: int
    """Resident when the stop began."""
    held: int
    """Still resident although every process has ended; 0 unless something is wrong with the machine."""


class Hosts:
    """One deployment: a slot per replica. Everything is the supervisor's, in its loop."""

    def __init__(self, owner: Owner, spec: DeploymentSpec, role: Role) -> None:
        self.spec = spec
        self.role = Machine(ROLES, role)
        self.slots = [HostSlot(owner, spec, replica) for replica in range(spec.replicas)]
        self.present = True
        """Whether its hosts are there or being started, and are not about to be stopped for room."""
        self.refusal = ""
        """Why there cannot be room for it, once somebody has tried."""
        self.drained = asyncio.Event()
        """The front has said that no request needs its hosts, since it was held, retired or to leave."""
        self.begun = asyncio.Event()
        """Since somebody wanted it: it is being started, or cannot be."""
        self.settled = asyncio.Event()
        """Since somebody wanted it: one host has been ready, or none will be."""
        self._owner = owner
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, trial: bool = False) -> None:
        """Start every host. Only when none runs. `trial` as `HostSlot.start`."""
        assert not self.running, f"{self.spec.id} is running already"
        self.settled.clear()
        self.begun.set()
        self.present, self.refusal = True, ""
        self._tasks = [slot.start(trial=trial) for slot in self.slots]
        for task in self._tasks:
            task.add_done_callback(self._owner.slot_done)

    @property
    def running(self) -> bool:
        """Whether a process of it is there, or will be again by itself."""
        return any(not task.done() for task in self._tasks)

    @property
    def ready(self) -> bool:
        """Whether a host can take work."""
        return any(slot.up is not None for slot in self.slots)

    @property
    def failed(self) -> str | None:
        """Why no host will be started any more, when that is so for all of them."""
        reasons = [slot.failed for slot in self.slots]
        return reasons[0] if all(reason is not None for reason in reasons) else None

    @property
    def state(self) -> str:
        """For people and probes: "ready" when a host is, "failed" when none will be, "absent" when there is none and
        a request would have it started, else where the first one is."""
        if self.ready:
            return HostState.READY.value
        if not self.running and self.failed is None:
            return "absent"
        return next((slot.state for slot in self.slots if slot.failed is None), "failed")

    def notice(self) -> None:
        """A slot has changed: tell whoever waits for it."""
        if self.ready or self.failed is not None:
            self.settled.set()

    def become(self, event: RoleEvent) -> None:
        """Change its role; the front is told by the next table. Raises `BadTransition`."""
        self.role.advance(event)
        self.drained.clear()

    def leave(self) -> None:
        """It has to make room: no request may count on its hosts any more. The front is told by the next table."""
        self.present = False
        self.drained.clear()

    def refuse(self, why: str) -> None:
        """There cannot be room for it."""
        self.present, self.refusal = False, why
        self.begun.set()
        self.settled.set()

    @property
    def resident_bytes(self) -> int:
        """What its processes on this machine, and whatever they have started, have in memory now."""
        return sum(map(group_resident_bytes, self._groups))

    @property
    def _groups(self) -> list[int]:
        return [] if self.spec.remote else [slot.pid for slot in self.slots if slot.pid]

    def ask_to_stop(self, budget_s: float) -> None:
        """Have every host finish what it executes and go; no new ones are started."""
        for slot in self.slots:
            slot.stop(budget_s)
        self.settled.set()

    async def stop(self, budget_s: float) -> Freed:
        """Ask, wait, kill what is left after `budget_s` seconds; until every process is reaped and its memory is back.

        Cancelled, the processes have been asked to go and nobody waits for them.
        """
        groups = self._groups
        before = self.resident_bytes
        self.ask_to_stop(budget_s)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=budget_s + STOP_MARGIN_S)
            self.kill()
            await asyncio.wait(self._tasks)
        held = await freed(lambda: sum(map(group_resident_bytes, groups)), limit_s=FREED_LIMIT_S)
        return Freed(before, held)

    def give_up(self, cause: str) -> None:
        """End every process that is not ready. Only of a trial, which is not started again."""
        for slot in self.slots:
            slot.give_up(cause)

    def kill(self) -> None:
        """End every process now."""
        for slot in self.slots:
            slot.kill()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Done when nothing of it runs."""
        return self._tasks

    def row(self) -> dict[str, Any]:
        """What the front is told of it."""
        standing = Standing(role=self.role.state.value, present=self.present, refusal=self.refusal)
        row: dict[str, Any] = msgspec.to_builtins(self.spec) | msgspec.to_builtins(standing)
        return row

    def __repr__(self) -> str:
        return f"<Hosts {self.spec.id!r} {self.role.state.value} {'ready' if self.ready else 'not ready'}>"
