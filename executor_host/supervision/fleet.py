"""All deployments and their hosts: what every name means, who has room, and what operators do to both.

    Residency   says which deployments have hosts; the fleet starts and evicts them     (residency.py, pure)
    swap        says in which order a name is moved; the fleet carries each step out    (swap.py)
    Hosts       one deployment's slots                                                  (hosts.py)

Owned by the supervisor, whose loop everything runs in. The front is told by whole tables (`publish`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from executor_host.launch.memory import checkpoint_bytes
from executor_host.supervision import swap as swapping
from executor_host.supervision.host_slot import HostSlot
from executor_host.supervision.host_slot import Owner as SlotOwner
from executor_host.supervision.hosts import Hosts
from executor_host.supervision.residency import Bounds, Place, Residency
from protocol.models import DeploymentSpec
from protocol.states import Role

ROOM_WAIT_S = 30.0
"""How long a swap or a load waits until something that is loaded becomes idle and can make room."""

_LOADED, _SWAPPED = "loaded", "swapped"
"""What is being done to a name, in the words of a refusal."""

Say = Callable[[str], None]


class Conflict(Exception):
    """The order is right and cannot be carried out now. The text says why."""


class OrderFailed(Exception):
    """The order was tried. The text says what came of it."""


class Owner(SlotOwner, Protocol):
    """What the fleet needs of the supervisor."""

    drain_s: float

    def publish(self) -> None: ...


class Fleet:
    """The deployments of one supervisor, by id."""

    def __init__(self, owner: Owner, bounds: Bounds) -> None:
        self.drain_s = owner.drain_s
        self.clock = time.monotonic
        self._owner = owner
        self._residency = Residency(bounds, self)
        self._deployments: dict[str, Hosts] = {}
        self._orders: dict[str, str] = {}
        """What is being done to each name by an operator."""
        self._evictions: dict[str, asyncio.Task[None]] = {}
        """By id, those that make room for others."""

    # What there is

    def __iter__(self) -> Iterator[Hosts]:
        return iter(list(self._deployments.values()))

    @property
    def slots(self) -> list[HostSlot]:
        """Every place of a host."""
        return [slot for hosts in self for slot in hosts.slots]

    @property
    def names(self) -> list[str]:
        """What can be asked for."""
        return [hosts.spec.name for hosts in self if hosts.role.state.named]

    def find(self, deployment: str) -> Hosts | None:
        """By id."""
        return self._deployments.get(deployment)

    def meant(self, name: str) -> Hosts:
        """The deployment that a configured name means."""
        return next(hosts for hosts in self if hosts.spec.name == name and hosts.role.state.named)

    @property
    def busy(self) -> bool:
        """Whether an operator's order is being carried out."""
        return bool(self._orders)

    # The start and the end

    def add(
        self, spec: DeploymentSpec, role: Role = Role.CURRENT, *, present: bool = True, beside: str | None = None
    ) -> Hosts:
        """A deployment that has no hosts yet. Not `present`: a request that needs them has them started. `beside` as
        for `Residency.add`."""
        hosts = self._deployments[spec.id] = Hosts(self._owner, spec, role)
        hosts.present = present
        self._residency.add(
            spec.id,
            size=checkpoint_bytes(spec.path) * spec.replicas,
            pinned=spec.pinned,
            keep_alive_s=spec.keep_alive_s,
            beside=beside,
        )
        return hosts

    def start_residents(self) -> list[Hosts]:
        """Start what is to be there from the beginning, and say what that is."""
        residents = [hosts for hosts in self if hosts.present]
        for hosts in residents:
            self._residency.want(hosts.spec.id)
        return residents

    def give_up(self) -> None:
        """The server stops: nothing makes room any more."""
        for task in self._evictions.values():
            task.cancel()

    def ask_to_stop(self, budget_s: float) -> list[asyncio.Task[None]]:
        """Have every host finish and go; the tasks are done when nothing runs."""
        for hosts in self:
            hosts.ask_to_stop(budget_s)
        return [task for hosts in self for task in hosts.tasks]

    def kill(self) -> None:
        """End every host now."""
        for hosts in self:
            hosts.kill()

    # What slots and the front say

    def host_ready(self, slot: HostSlot) -> None:
        """A host is warm, and the front has been told."""
        hosts = self._deployments[slot.deployment.id]
        self._residency.ready(hosts.spec.id, hosts.resident_bytes)
        hosts.notice()

    def host_ended(self, slot: HostSlot) -> None:
        """A host ended; perhaps the last of its deployment that will."""
        hosts = self._deployments[slot.deployment.id]
        # One that a swap cannot start keeps its room until the swap has said who gets it.
        if hosts.failed is not None and hosts.role.state is not Role.COMING and not self._owner.is_stopping():
            self._residency.broken(hosts.spec.id)
        hosts.notice()

    def drained(self, deployment: str) -> None:
        """The front has no request that needs its hosts."""
        if (hosts := self._deployments.get(deployment)) is not None:
            hosts.drained.set()

    def usage(self, wanted: list[str], idle: Mapping[str, float]) -> None:
        """The front's whole picture; times in seconds until now."""
        if self._owner.is_stopping():
            return
        now = self.clock()
        self._residency.usage(wanted, {name: now - seconds for name, seconds in idle.items()})
        self._residency.expire(now)

    def front_lost(self) -> None:
        """Nobody knows who is idle, and nobody waits, until the next front says so."""
        self._residency.usage((), {})

    # Effects of the residency

    def start(self, deployment: str) -> None:
        hosts = self._deployments[deployment]
        hosts.start(trial=hosts.role.state is Role.COMING)
        self._owner.publish()

    def evict(self, deployment: str) -> None:
        hosts = self._deployments[deployment]
        hosts.leave()
        self._owner.publish()
        task = asyncio.get_running_loop().create_task(self._evict(hosts))
        self._evictions[deployment] = task
        task.add_done_callback(self._owner.slot_done)

    def refuse(self, deployment: str, why: str) -> None:
        self._owner.console.say("framehost", f"{deployment} cannot be loaded: {why}")
        self._deployments[deployment].refuse(why)
        self._owner.publish()

    async def _evict(self, hosts: Hosts) -> None:
        await hosts.drained.wait()
        freed = await hosts.stop(self.drain_s)
        held = f", {freed.held >> 20} MiB of it held still" if freed.held else ""
        self._owner.console.say("framehost", f"{hosts.spec.id} was unloaded: {freed.bytes >> 20} MiB{held}")
        del self._evictions[hosts.spec.id]
        self._residency.left(hosts.spec.id)

    # Effects of a swap

    def create(self, spec: DeploymentSpec) -> Hosts:
        hosts = self.add(spec, Role.COMING, beside=self.meant(spec.name).spec.id)
        self._owner.publish()
        return hosts

    def publish(self) -> None:
        self._owner.publish()

    async def begin(self, hosts: Hosts, *, room_of: Hosts | None = None) -> str:
        hosts.settled.clear()
        if not hosts.running:
            hosts.begun.clear()
        hosts.notice()
        self._residency.want(hosts.spec.id, first=True, room_of=None if room_of is None else room_of.spec.id)
        self._owner.publish()  # the front answers with who is idle
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                await hosts.begun.wait()
        except TimeoutError:
            self._stop_waiting(hosts)
            return f"no room for it became free within {ROOM_WAIT_S:g} s: what is loaded is in use or pinned"
        await hosts.settled.wait()
        if hosts.ready:
            return ""
        if not hosts.present and not hosts.refusal:
            return "an operator has unloaded it"
        return hosts.refusal or hosts.failed or "its host ended as soon as it was ready"

    def _stop_waiting(self, hosts: Hosts) -> None:
        """Nobody insists on it any more; whoever asks for it has it started as soon as there is room."""
        self._residency.withdraw(hosts.spec.id)
        hosts.leave()
        hosts.begun.set()
        hosts.settled.set()
        self._owner.publish()

    def drop(self, hosts: Hosts) -> None:
        del self._deployments[hosts.spec.id]
        self._residency.remove(hosts.spec.id)
        self._owner.publish()

    # What operators order

    async def swap(self, name: str, spec: DeploymentSpec, mode: swapping.Mode, say: Say) -> swapping.SwapReport:
        """Make `name` mean `spec`, as `swap.swap` does. Raises `Conflict`, `swap.SwapFailed`."""
        hosts = self._claim(name, _SWAPPED)
        # It must not make room for its own successor, which may yet fail.
        self._residency.keep(hosts.spec.id, True)
        try:
            return await swapping.swap(hosts, spec, mode, self, say)
        finally:
            del self._orders[name]
            if hosts.spec.id in self._deployments:
                self._residency.keep(hosts.spec.id, False)

    async def load(self, name: str) -> str:
        """Have the hosts of `name` started, and again if they had failed for good. Raises `Conflict`, `OrderFailed`."""
        hosts = self._claim(name, _LOADED)
        try:
            if hosts.ready:
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
        loading = self._orders.get(name) == _LOADED
        hosts = self.meant(name) if loading else self._claim(name, "unloaded")
        try:
            place = self._residency.place(hosts.spec.id)
            if place in (Place.ABSENT, Place.BROKEN):
                if loading:
                    self._stop_waiting(hosts)
                return f"{hosts.spec.id} has no hosts"
            if not self._residency.unload(hosts.spec.id, loading=not hosts.ready):
                raise Conflict(f"{hosts.spec.id} is {'pinned' if hosts.spec.pinned else place.value}")
            await asyncio.wait([self._evictions[hosts.spec.id]])
            return f"{hosts.spec.id} is unloaded"
        finally:
            if not loading:
                del self._orders[name]

    def cancel(self, name: str) -> str:
        """Give up what a swap of `name` is loading, which then fails and leaves what a failing one leaves. Raises
        `Conflict` when it loads nothing new."""
        for hosts in self:
            if hosts.spec.name == name and hosts.role.state is Role.COMING and hosts.running and not hosts.ready:
                hosts.give_up("an operator has cancelled the swap")
                return f"the start of {hosts.spec.id} is given up"
        raise Conflict(f"no swap of {name!r} is loading a new model now{self._what_loads(name)}")

    def _what_loads(self, name: str) -> str:
        """Which processes of `name` are being loaded, and how that may be ended; nothing when none is."""
        for hosts in self:
            pids = [str(slot.pid) for slot in hosts.slots if slot.pid and slot.up is None]
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
        hosts = self.meant(name)
        if name in self._orders:
            raise Conflict(f"{name!r} is being {self._orders[name]} already{self._what_loads(name)}")
        if hosts.spec.id in self._evictions:
            raise Conflict(f"{hosts.spec.id} is just being unloaded")
        self._orders[name] = what
        return hosts
