"""All deployments and their hosts: what every name means, who has room, and what becomes of both when hosts end.

    Residency   says which deployments have hosts; the fleet starts and evicts them     (residency.py, pure)
    Hosts       one deployment's slots                                                  (hosts.py)

What operators do to it is in `changes.py`. The front is told by whole tables (`publish`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from executor_host.launch.aside import aside
from executor_host.launch.memory import checkpoint_bytes
from executor_host.supervision.host_slot import HostSlot, Surroundings
from executor_host.supervision.hosts import Hosts
from executor_host.supervision.residency import Bounds, Residency
from protocol.exits import ServeExit
from protocol.messages import Deployment
from protocol.models import DeploymentSpec
from protocol.states import Role

SIZE_LIMIT_S = 10.0
"""How long the size of a checkpoint is looked for. It is a first guess at what a model takes, until it is loaded."""


class Fleet:
    """The deployments of one supervisor, by id."""

    def __init__(
        self,
        around: Surroundings,
        bounds: Bounds,
        *,
        drain_s: float,
        default: str,
        limits: dict[str, Any],
        died: Callable[[str, str], None],
        kept_bytes: Mapping[str, int],
        session_idle_s: float,
    ) -> None:
        """`default` and `limits`: of the server, as the front is told them. `died(who, how)`: a death to remember.
        `kept_bytes`: by device, what may stay on it between requests; `session_idle_s`: how long conversations do."""
        self.drain_s = drain_s
        self.residency = Residency(bounds, self)
        self.evictions: dict[str, asyncio.Task[None]] = {}
        """By id, those that make room for others."""
        self.progressed = asyncio.Event()
        """Whenever a host has become ready; cleared by who waits for it."""
        self._around = around
        self._weighs = bounds.bytes is not None
        self._default = default
        self._limits = limits
        self._kept_bytes, self._session_idle_s = dict(kept_bytes), session_idle_s
        self._died = died
        self._deployments: dict[str, Hosts] = {}
        self._changing: Callable[[], bool] = lambda: False
        self._tasks: set[asyncio.Task[None]] = set()

    # What there is

    def __iter__(self) -> Iterator[Hosts]:
        return iter(list(self._deployments.values()))

    @property
    def slots(self) -> list[HostSlot]:
        """Every slot of a host."""
        return [slot for hosts in self for slot in hosts.everywhere]

    @property
    def named(self) -> list[Hosts]:
        """What can be asked for."""
        return [hosts for hosts in self if hosts.role.state.named]

    def find(self, deployment: str) -> Hosts | None:
        """By id."""
        return self._deployments.get(deployment)

    def meant(self, name: str) -> Hosts:
        """The deployment that a configured name means."""
        return next(hosts for hosts in self.named if hosts.spec.name == name)

    def keep(self, device: str, size: int | None) -> None:
        """From now on so many bytes may stay on a device between requests; None: what its models' own options say."""
        self._kept_bytes.pop(device, None)
        if size is not None:
            self._kept_bytes[device] = size
        self.publish()

    def keep_as(self, kept_bytes: Mapping[str, int] | None, session_idle_s: float | None) -> None:
        """The same for all devices, and for how long conversations are kept; None: as it is."""
        if kept_bytes is not None:
            self._kept_bytes = dict(kept_bytes)
        if session_idle_s is not None:
            self._session_idle_s = session_idle_s
        self.publish()

    def publish(self, *, is_open: bool | None = None) -> None:
        """Tell the front what every name means, in one message. `is_open`: what it is told of the ports, if not how it
        is."""
        self._around.tell_front(
            Deployment(
                models=[hosts.row() for hosts in self],
                default=self._default,
                server={**self._limits, "kept_bytes": dict(self._kept_bytes), "session_idle_s": self._session_idle_s},
                open=self._around.life.open if is_open is None else is_open,
            )
        )

    # The start and the end

    async def size_of(self, spec: DeploymentSpec) -> int:
        """The bytes of a deployment's checkpoint, once for each host; 0 when it is not needed, or cannot be known."""
        if not self._weighs:
            return 0
        try:
            return (spec.replicas + spec.spare) * await aside(lambda: checkpoint_bytes(spec.path), limit_s=SIZE_LIMIT_S)
        except TimeoutError:
            self._around.console.say("framehost", f"{spec.path} could not be measured within {SIZE_LIMIT_S:g} s")
            return 0

    def add(
        self,
        spec: DeploymentSpec,
        role: Role = Role.CURRENT,
        *,
        size: int = 0,
        present: bool = True,
        beside: str | None = None,
    ) -> Hosts:
        """A deployment that has no hosts yet. Not `present`: a request that needs them has them started. `size` and
        `beside` as for `Residency.add`."""
        hosts = self._deployments[spec.id] = Hosts(self._around, spec, role, self)
        hosts.present = present
        self.residency.add(
            spec.id,
            size=size,
            pinned=spec.pinned,
            keep_alive_s=spec.keep_alive_s,
            beside=beside,
        )
        return hosts

    def remove(self, hosts: Hosts) -> None:
        """Forget a deployment whose processes are gone."""
        del self._deployments[hosts.spec.id]
        self.residency.remove(hosts.spec.id)

    def start_residents(self) -> list[Hosts]:
        """Start what is to be there from the beginning, and say what that is."""
        residents = [hosts for hosts in self if hosts.present]
        for hosts in residents:
            self.residency.want(hosts.spec.id)
        return residents

    def while_changing(self, changing: Callable[[], bool]) -> None:
        """`changing()`: whether an operator's order is being carried out, which may bring a model back."""
        self._changing = changing

    def begin_stop(self) -> None:
        """The server stops: nothing makes room any more, and no host is started."""
        for task in self.evictions.values():
            task.cancel()
        for hosts in self:
            hosts.begin_stop()

    def ask_to_stop(self, budget_s: float) -> list[asyncio.Future[None]]:
        """Have every host finish and go; the futures are done when nothing runs."""
        for hosts in self:
            hosts.ask_to_stop(budget_s)
        return [end for hosts in self for end in hosts.ends]

    def kill(self) -> None:
        """End every host now."""
        for hosts in self:
            hosts.kill()

    def look(self) -> None:
        """See from outside how every process is, and whether it is another one's turn to have room."""
        for slot in self.slots:
            slot.look()
        if not self._around.life.stopping:
            self.residency.look(self._around.clock())

    # What slots and the front say

    def host_ready(self, slot: HostSlot) -> None:
        hosts = self._deployments[slot.life.spec.id]
        self.residency.ready(hosts.spec.id)
        hosts.notice()
        self.progressed.set()
        if self._weighs:
            self._spawn(self._measure(hosts))

    def host_warm(self, slot: HostSlot) -> None:
        hosts = self._deployments[slot.life.spec.id]
        hosts.relieve()
        if self._weighs:
            self._spawn(self._measure(hosts))

    def host_died(self, slot: HostSlot, how: str) -> None:
        self._died(slot.life.spec.name, how)

    def host_changed(self, slot: HostSlot) -> None:
        hosts = self._deployments[slot.life.spec.id]
        hosts.relieve()
        life = self._around.life
        # One that a swap cannot start keeps its room until the swap has said who gets it.
        if hosts.failed is not None and hosts.role.state is not Role.COMING and not life.stopping:
            self.residency.broken(hosts.spec.id)
        hosts.notice()
        if slot.life.failed is None or slot.life.replica is None or life.stopping:
            return
        if life.open:
            self.give_up_when_none_is_left()
        else:
            status = ServeExit.CONFIGURATION if slot.life.unusable else ServeExit.MODEL_FAILED
            life.fail(status, f"model {hosts.spec.name!r} could not be started: {slot.life.failed}")

    def give_up_when_none_is_left(self) -> None:
        """End the server when no model of it will ever answer, and no operator's order is about to change that."""
        failures = {hosts.spec.name: hosts.failed for hosts in self.named}
        if not self._changing() and None not in failures.values():
            told = "; ".join(f"{name!r}: {why}" for name, why in failures.items())
            self._around.life.fail(ServeExit.MODEL_FAILED, f"no model is left: {told}")

    def judged(self, deployment: str, replica: int, incarnation: str, refusal: str) -> None:
        """The front has looked at what a host brings: "", or why it cannot be served."""
        hosts = self.find(deployment)
        for slot in [] if hosts is None else hosts.slots[replica : replica + 1]:
            if slot.life.current.name == incarnation:
                slot.life.judged(refusal)

    def overdue(self, deployment: str, incarnation: str, seconds: float) -> None:
        """The front says that a host has owed it an answer for longer than it may."""
        hosts = self.find(deployment)
        for slot in [] if hosts is None else hosts.slots:
            if slot.life.current.name == incarnation:
                limit = slot.life.spec.execution_limit_s or 0.0
                slot.life.overdue(f"no answer for {seconds:.1f} s, its execution limit is {limit:g} s")

    def drained(self, deployment: str) -> None:
        """The front has no request that needs its hosts."""
        if (hosts := self.find(deployment)) is not None:
            hosts.drained.set()

    def usage(self, wanted: list[str], idle: Mapping[str, float]) -> None:
        """The front's whole picture; times in seconds until now."""
        if self._around.life.stopping:
            return
        now = self._around.clock()
        self.residency.usage(wanted, {name: now - seconds for name, seconds in idle.items()})
        self.residency.expire(now)

    def front_lost(self) -> None:
        """It is not known which are idle, and no request waits, until the next front says so."""
        self.residency.usage((), {})

    # Effects of the residency

    def start(self, deployment: str) -> None:
        if self._around.life.stopping:
            return
        hosts = self._deployments[deployment]
        hosts.start(trial=hosts.role.state is Role.COMING)
        self.publish()

    def evict(self, deployment: str) -> None:
        if self._around.life.stopping:
            return
        hosts = self._deployments[deployment]
        hosts.leave()
        self.publish()
        task = asyncio.get_running_loop().create_task(self._evict(hosts))
        self.evictions[deployment] = task
        self._around.life.watch(task)

    def refuse(self, deployment: str, why: str) -> None:
        self._around.console.say("framehost", f"{deployment} cannot be loaded: {why}")
        self._deployments[deployment].refuse(why)
        self.publish()

    async def _evict(self, hosts: Hosts) -> None:
        await hosts.drained.wait()
        freed = await hosts.stop(self.drain_s)
        held = f", {freed.held >> 20} MiB of it held still" if freed.held else ""
        self._around.console.say("framehost", f"{hosts.spec.id} was unloaded: {freed.bytes >> 20} MiB{held}")
        del self.evictions[hosts.spec.id]
        self.residency.left(hosts.spec.id)

    async def _measure(self, hosts: Hosts) -> None:
        size = await hosts.resident_bytes()
        if self.find(hosts.spec.id) is hosts and hosts.ready:
            self.residency.measured(hosts.spec.id, size)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._around.life.watch(task)
