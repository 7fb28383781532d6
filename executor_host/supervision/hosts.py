"""The hosts of one deployment, together: started, counted, stopped; and what the deployment is to its name."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from executor_host.launch.aside import aside
from executor_host.launch.memory import freed, group_resident_bytes
from executor_host.supervision.host_slot import HostSlot, Listener, Surroundings
from executor_host.supervision.swap import Freed
from protocol.models import DeploymentSpec, Standing
from protocol.states import ROLES, HostState, Machine, Role, RoleEvent, SlotState

STOP_MARGIN_S = 2.0
"""After the drain budget, what a process gets to end by itself before it is killed."""

FREED_LIMIT_S = 10.0
"""How long the memory of a process that has ended may still be accounted to its group: a child of its own that
was killed with it gives its pages back when the kernel gets to it."""

MEASURE_LIMIT_S = 10.0
"""How long a look at the memory of processes may take. It takes milliseconds."""


class Hosts:
    """One deployment: a slot per replica. Everything is the supervisor's, in its loop."""

    def __init__(self, around: Surroundings, spec: DeploymentSpec, role: Role, listener: Listener) -> None:
        self.spec = spec
        self.role = Machine(ROLES, role)
        self.slots = [HostSlot(around, spec, replica, listener) for replica in range(spec.replicas)]
        self.spare = HostSlot(around, spec, None, listener) if spec.spare else None
        """The host that takes over when one of the others dies; None: there is to be none."""
        self.present = True
        """Whether its hosts are there or being started, and are not about to be stopped for room."""
        self.refusal = ""
        """Why there cannot be room for it, once it was tried."""
        self.drained = asyncio.Event()
        """The front has said that no request needs its hosts, since it was held, retired or to leave."""
        self.begun = asyncio.Event()
        """Since it was wanted: it is being started, or cannot be."""
        self.resolved = asyncio.Event()
        """Since it was wanted: every host has been ready, or one will not be."""

    def start(self, *, trial: bool = False) -> None:
        """Start every host. Only when none runs. `trial` as `HostSlot.start`."""
        assert not self.running, f"{self.spec.id} is running already"
        self.resolved.clear()
        self.begun.set()
        self.present, self.refusal = True, ""
        for slot in self.slots:
            slot.start(trial=trial)

    @property
    def everywhere(self) -> list[HostSlot]:
        """All slots: of the replicas, and of the spare."""
        return self.slots if self.spare is None else [*self.slots, self.spare]

    def insist(self) -> None:
        """A request waits for it: what has failed is tried again, and what waits for its next start is started now."""
        self.resolved.clear()
        for slot in self.slots:
            if slot.life.slot.state is SlotState.FAILED:
                slot.start()
            slot.life.hasten()
        self.notice()

    @property
    def running(self) -> bool:
        """Whether a process of it is there, or will be again by itself."""
        return any(slot.running for slot in self.everywhere)

    @property
    def ready(self) -> bool:
        """Whether a host can take work."""
        return any(slot.life.ready for slot in self.slots)

    @property
    def complete(self) -> bool:
        """Whether every host can take work."""
        return all(slot.life.ready for slot in self.slots)

    @property
    def failed(self) -> str | None:
        """Why no host will be started any more, when that is so for all of them."""
        reasons = [slot.life.failed for slot in self.slots]
        return reasons[0] if all(reason is not None for reason in reasons) else None

    @property
    def trouble(self) -> str:
        """Why a host is not ready that is waited for; "" while nothing speaks against it."""
        for slot in self.slots:
            if slot.life.failed is not None:
                return slot.life.failed
            if slot.life.slot.state is SlotState.WAITING and slot.life.policy.proven:
                # It is tried for ever; the caller that waits for it wants to know how this try has gone.
                return slot.life.last_death
        return ""

    @property
    def state(self) -> str:
        """For people and probes: "ready" when a host is, "failed" when none will be, "absent" when there is none and
        a request would have it started, else where the first one is."""
        if self.ready:
            return HostState.READY.value
        if not self.running and self.failed is None:
            return "absent"
        return next((slot.life.state for slot in self.slots if slot.life.failed is None), "failed")

    def notice(self) -> None:
        """A slot has changed: tell those that wait for it. The spare comes after those that are needed."""
        if self.complete or self.trouble:
            self.resolved.set()
        spare = self.spare
        at_work = self.complete and all(slot.life.slot.state is SlotState.RUNNING for slot in self.slots)
        if at_work and spare is not None and spare.life.slot.state is SlotState.EMPTY:
            spare.start()

    def relieve(self) -> None:
        """Let a warm spare take over from a replica's host that is gone, whose slot is the spare's from now on."""
        spare = self.spare
        if spare is None or not spare.life.warm:
            return
        for replica, slot in enumerate(self.slots):
            if slot.life.up is None and (slot.life.slot.state.expected or slot.life.failed is not None):
                self.slots[replica], self.spare = spare, slot
                slot.life.policy.exchange_counts(spare.life.policy)
                slot.life.stand_by()
                spare.life.take(replica)
                return

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
        self.resolved.set()

    async def resident_bytes(self) -> int:
        """What its processes on this machine, and whatever they have started, have in memory now."""
        return await _measured(self._groups)

    @property
    def _groups(self) -> list[int]:
        return [] if self.spec.remote else [slot.life.pid for slot in self.everywhere if slot.life.pid]

    def begin_stop(self) -> None:
        """No process is started any more; those that are there go on."""
        for slot in self.everywhere:
            slot.life.begin_stop()

    def ask_to_stop(self, budget_s: float) -> None:
        """Have every host finish what it executes and go; no new ones are started."""
        for slot in self.everywhere:
            slot.life.stop(budget_s)
        self.resolved.set()

    async def stop(self, budget_s: float) -> Freed:
        """Ask, wait, kill what is left after `budget_s` seconds; until every process is reaped and its memory is back.

        Cancelled, the processes have been asked to go and are not waited for.
        """
        groups = self._groups
        before = await _measured(groups)
        self.ask_to_stop(budget_s)
        if ends := self.ends:
            await asyncio.wait(ends, timeout=budget_s + STOP_MARGIN_S)
            self.kill()
            await asyncio.wait(ends)
        held = await freed(lambda: _measured(groups), limit_s=FREED_LIMIT_S)
        return Freed(before, held)

    def give_up(self, cause: str) -> None:
        """End every process that is not ready. Only of a trial, which is not started again."""
        for slot in self.everywhere:
            slot.life.give_up(cause)

    def kill(self) -> None:
        """End every process now."""
        for slot in self.everywhere:
            slot.kill()

    @property
    def ends(self) -> list[asyncio.Future[None]]:
        """Done when nothing of it runs."""
        return [slot.end for slot in self.everywhere if slot.end is not None]

    def row(self) -> dict[str, Any]:
        """What the front is told of it."""
        standing = Standing(
            role=self.role.state.value,
            present=self.present,
            refusal=self.refusal,
            hosts=tuple(slot.life.standing() for slot in self.slots),
        )
        row: dict[str, Any] = msgspec.to_builtins(self.spec) | msgspec.to_builtins(standing)
        return row

    def __repr__(self) -> str:
        return f"<Hosts {self.spec.id!r} {self.role.state.value} {'ready' if self.ready else 'not ready'}>"


async def _measured(groups: list[int]) -> int:
    """Resident memory of process groups, in bytes. It is looked for in the whole table of processes."""
    try:
        return await aside(lambda: sum(map(group_resident_bytes, groups)), limit_s=MEASURE_LIMIT_S) if groups else 0
    except TimeoutError:
        return 0  # it is not known
