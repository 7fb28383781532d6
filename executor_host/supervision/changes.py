"""What operators do to the fleet: swap, load, unload, cancel; one at a time for each name.

`swap.py` says in which order a name is moved; each of its effects is carried out here, and what it waits for is told
to it as an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from executor_host.supervision.fleet import Fleet
from executor_host.supervision.hosts import Hosts
from executor_host.supervision.residency import Place
from executor_host.supervision.swap import Freed, Mode, Swap, SwapFailed, SwapReport
from protocol.models import DeploymentSpec
from protocol.states import Role, RoleEvent

ROOM_WAIT_S = 30.0
"""How long a swap or a load waits until something that is loaded becomes idle and can make room."""

_LOADED, _SWAPPED = "loaded", "swapped"
"""What is being done to a name, in the words of a refusal."""

Say = Callable[[str], None]


class Conflict(Exception):
    """The order is right and cannot be carried out now. The text says why."""


class OrderFailed(Exception):
    """The order was tried. The text says what came of it."""


class Changes:
    """The orders that are being carried out on one fleet."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._orders: dict[str, str] = {}
        """What is being done to each name."""
        fleet.while_changing(lambda: bool(self._orders))

    async def swap(self, name: str, spec: DeploymentSpec, mode: Mode, say: Say) -> SwapReport:
        """Make `name` mean `spec`. `say` hears of each step. Raises `Conflict`, `SwapFailed`."""
        hosts = self._claim(name, _SWAPPED)
        residency = self._fleet.residency
        # It must not make room for its own successor, which may yet fail.
        residency.keep(hosts.spec.id, True)
        try:
            size = await self._fleet.size_of(spec)
            return await _CarriedOut(self, self._fleet, hosts, spec, size, mode, say, self._clock).outcome()
        finally:
            del self._orders[name]
            for deployment in (hosts.spec.id, spec.id):
                if self._fleet.find(deployment) is not None:
                    residency.keep(deployment, False)

    async def load(self, name: str) -> str:
        """Have the hosts of `name` started, and again if they had failed. Raises `Conflict`, `OrderFailed`."""
        hosts = self._claim(name, _LOADED)
        try:
            if hosts.complete:
                return f"{hosts.spec.id} is loaded already"
            why = await self.begin(hosts)
            if why:
                raise OrderFailed(f"{hosts.spec.id} could not be loaded: {why}")
            return f"{hosts.spec.id} is loaded"
        finally:
            del self._orders[name]

    async def unload(self, name: str) -> str:
        """Let the hosts of `name` finish what they have, and end them. A load that is not done is given up, and the
        order to load it has failed. Raises `Conflict`."""
        fleet = self._fleet
        loading = self._orders.get(name) == _LOADED
        hosts = fleet.meant(name) if loading else self._claim(name, "unloaded")
        try:
            place = fleet.residency.place(hosts.spec.id)
            if place in (Place.ABSENT, Place.BROKEN):
                if loading:
                    self._stop_waiting(hosts)
                return f"{hosts.spec.id} has no hosts"
            if not fleet.residency.unload(hosts.spec.id, loading=not hosts.ready):
                raise Conflict(f"{hosts.spec.id} is {'pinned' if hosts.spec.pinned else place.value}")
            await asyncio.wait([fleet.evictions[hosts.spec.id]])
            return f"{hosts.spec.id} is unloaded"
        finally:
            if not loading:
                del self._orders[name]

    def cancel(self, name: str) -> str:
        """Give up what a swap of `name` is loading, which then fails and leaves what a failing one leaves. Raises
        `Conflict` when it loads nothing new."""
        for hosts in self._fleet:
            if hosts.spec.name == name and hosts.role.state is Role.COMING and hosts.running and not hosts.complete:
                hosts.give_up("an operator has cancelled the swap")
                return f"the start of {hosts.spec.id} is given up"
        raise Conflict(f"no swap of {name!r} is loading a new model now{self._what_loads(name)}")

    async def begin(self, hosts: Hosts, *, room_of: str | None = None) -> str:
        """Start it as soon as there is room, before anybody else who waits for room, and wait until every host of it
        is ready; why one is not, or nothing when all are. `room_of`: a deployment whose processes are gone, and whose
        room is for this one alone."""
        if hosts.running:
            hosts.insist()
        else:
            hosts.resolved.clear()
            hosts.begun.clear()
        self._fleet.residency.want(hosts.spec.id, first=True, room_of=room_of)
        self._fleet.publish()  # the front answers with who is idle
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                await hosts.begun.wait()
        except TimeoutError:
            self._stop_waiting(hosts)
            return f"no room for it became free within {ROOM_WAIT_S:g} s: what is loaded is in use or pinned"
        await hosts.resolved.wait()
        if hosts.complete:
            return ""
        if not hosts.present and not hosts.refusal:
            return "an operator has unloaded it"
        return hosts.refusal or hosts.trouble or "its host ended as soon as it was ready"

    def _stop_waiting(self, hosts: Hosts) -> None:
        """It is not insisted on any more; the next request for it has it started as soon as there is room."""
        self._fleet.residency.withdraw(hosts.spec.id)
        hosts.leave()
        hosts.begun.set()
        hosts.resolved.set()
        self._fleet.publish()

    def _what_loads(self, name: str) -> str:
        """Which processes of `name` are being loaded, and how that may be ended; nothing when none is."""
        for hosts in self._fleet:
            pids = [str(slot.life.pid) for slot in hosts.slots if slot.life.pid and not slot.life.ready]
            if hosts.spec.name != name or hosts.ready or not pids:
                continue
            end = f"framehost unload {name} ends it"
            if self._orders.get(name) == _SWAPPED:
                end = "load_limit bounds a load"
            if hosts.role.state is Role.COMING:
                end = f"framehost swap --cancel {name} gives it up"
            return f": {hosts.spec.id} is loading in pid {', '.join(pids)}; {end}"
        return ""

    def _claim(self, name: str, what: str) -> Hosts:
        """What `name` means, for one order at a time."""
        hosts = self._fleet.meant(name)
        if name in self._orders:
            raise Conflict(f"{name!r} is being {self._orders[name]} already{self._what_loads(name)}")
        if hosts.spec.id in self._fleet.evictions:
            raise Conflict(f"{hosts.spec.id} is just being unloaded")
        self._orders[name] = what
        return hosts


class _CarriedOut:
    """The effects of one swap."""

    def __init__(
        self,
        changes: Changes,
        fleet: Fleet,
        old: Hosts,
        spec: DeploymentSpec,
        size: int,
        mode: Mode,
        say: Say,
        clock: Callable[[], float],
    ) -> None:
        self._changes, self._fleet, self._old, self._spec, self._size = changes, fleet, old, spec, size
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[SwapReport] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        """What is waited for."""
        self._swap = Swap(spec.name, old.spec.id, spec.id, mode, self, clock)

    async def outcome(self) -> SwapReport:
        """Carry it out. Raises `SwapFailed`. Cancelled only when the whole server stops, which ends every host
        anyway."""
        try:
            self._swap.begin()
            return await self._outcome
        finally:
            if self._task is not None:
                self._task.cancel()

    def create(self) -> None:
        self._fleet.add(self._spec, Role.COMING, size=self._size, beside=self._old.spec.id)
        self._fleet.publish()

    def become(self, deployment: str, event: RoleEvent) -> None:
        hosts = self._of(deployment)
        hosts.become(event)
        self._fleet.residency.bar(deployment, hosts.role.state in (Role.HELD, Role.RETIRED))

    def publish(self) -> None:
        self._fleet.publish()

    def begin(self, deployment: str, room_of: str | None) -> None:
        self._wait(self._begin(self._of(deployment), room_of))

    def await_drained(self, deployment: str) -> None:
        self._wait(self._drained(self._of(deployment)))

    def stop(self, deployment: str, *, at_once: bool) -> None:
        self._wait(self._stop(self._of(deployment), 0.0 if at_once else self._fleet.drain_s))

    def drop(self, deployment: str) -> None:
        self._fleet.remove(self._of(deployment))
        self._fleet.publish()

    def say(self, text: str) -> None:
        self._say(text)

    def succeed(self, report: SwapReport) -> None:
        self._outcome.set_result(report)

    def fail(self, why: str) -> None:
        self._outcome.set_exception(SwapFailed(why))

    def _of(self, deployment: str) -> Hosts:
        hosts = self._fleet.find(deployment)
        assert hosts is not None, f"{deployment} is dropped only at the end"
        return hosts

    async def _begin(self, hosts: Hosts, room_of: str | None) -> None:
        why = await self._changes.begin(hosts, room_of=room_of)
        if why:
            self._swap.failed(why)
        else:
            self._swap.ready()

    async def _drained(self, hosts: Hosts) -> None:
        await hosts.drained.wait()
        self._swap.drained()

    async def _stop(self, hosts: Hosts, budget_s: float) -> None:
        freed: Freed = await hosts.stop(budget_s)
        self._swap.gone(freed)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[None]) -> None:
        if not self._outcome.done() and not task.cancelled() and (error := task.exception()) is not None:
            self._outcome.set_exception(error)
