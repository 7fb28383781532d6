"""One running server, from its first process to its last: the start, the looks, the stop.

The parts are made by supervisor.py and know nothing of this; what happens in between is theirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from executor_host.launch import orphans
from executor_host.launch.local import STARTED
from executor_host.supervision import stop_signals
from executor_host.supervision.clock import AwakeClock
from executor_host.supervision.console import Console
from executor_host.supervision.directory_renewal import DirectoryRenewal
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_lane import FrontLane
from executor_host.supervision.front_slot import FrontSlot
from executor_host.supervision.hosts import STOP_MARGIN_S, Hosts
from executor_host.supervision.life import ServerLife
from executor_host.supervision.listeners import Listeners, url_of
from executor_host.supervision.orders import Orders
from executor_host.supervision.probes import ProbeServer
from executor_host.supervision.systemd import ServiceManager
from protocol.exits import HostExit, ServeExit
from protocol.messages import Drain, Order
from protocol.models import DeploymentSpec

HOSTS_SHARE_S = 0.5
"""The part of a stop's margin that is kept for the hosts when the front has used all of its own."""

LOOK_S = 0.5
"""How often the processes are looked at from outside: their memory, for the death report, and their limits."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a server consists of."""

    life: ServerLife
    clock: AwakeClock
    console: Console
    listeners: Listeners
    lane: FrontLane
    fleet: Fleet
    front: FrontSlot
    orders: Orders
    renewal: DirectoryRenewal
    probes: ProbeServer | None
    manager: ServiceManager
    close: Sequence[Callable[[], None]]
    """What holds something of the system, closed in this order when every process has ended."""
    last_lines: Callable[[], None]
    """Waits a little until the log is written."""


class Server:
    """`run` is its whole life."""

    def __init__(
        self,
        parts: Parts,
        models: Iterable[tuple[DeploymentSpec, bool]],
        *,
        management: str,
        drain_s: float,
        opens_with_first: bool = False,
    ) -> None:
        """`models`: each with whether its hosts are started with the server. `management`: the address of its lane.
        `opens_with_first`: whether the port opens when the first of those answers."""
        self._parts = parts
        self._models = tuple(models)
        self._management = management
        self._drain_s = drain_s
        self._enough = any if opens_with_first else all
        self._loop = asyncio.get_running_loop()

    async def run(self) -> ServeExit:
        """Serve until a signal or a failure; returns the exit status of the command."""
        parts = self._parts
        life, fleet = parts.life, parts.fleet
        stop_signals.OURS.tell(self._asked_to_stop, self._asked_to_reload)
        if parts.probes is not None:
            await parts.probes.start()
            parts.console.say("framehost", f"probes are answered at {url_of(parts.probes.listener)}")
        for listener in parts.listeners.inherited:
            listener.directory.publish(management=self._management, url=parts.listeners.main.url)
        for spec, resident in self._models:
            fleet.add(spec, size=await fleet.size_of(spec), present=resident)
        opening = self._loop.create_task(self._open_when_warm(fleet.start_residents()))
        looking = self._loop.create_task(self._look())
        life.watch(opening)
        life.watch(looking)
        parts.front.life.start()
        await life.asked_to_stop()
        parts.manager.stopping("stopping: open requests are finished first")
        opening.cancel()
        parts.orders.give_up()
        drained = await self._drain()
        looking.cancel()
        for close in parts.close:
            close()
        return self._ended(drained)

    def _ended(self, drained: bool) -> ServeExit:
        """The exit status, after the last line, which says it to who reads the log and not the status."""
        life = self._parts.life
        stop_signals.OURS.ignore()
        life.ended()
        if life.failure is not None:
            status, how = life.failure, "because of the failure above"
        elif drained:
            status, how = ServeExit.CLEAN, "everything was finished"
        else:
            how = self._parts.front.life.goodbye or "the frontend could not finish in time"
            status = ServeExit.NOT_DRAINED
        self._parts.console.say("framehost", f"stopped: {how}; exit status {int(status)}")
        return status

    async def _open_when_warm(self, residents: list[Hosts]) -> None:
        parts = self._parts
        fleet, say = parts.fleet, parts.console.say
        while residents and not self._enough(hosts.complete for hosts in residents):
            await fleet.progressed.wait()
            fleet.progressed.clear()
        if parts.life.stopping:
            return
        parts.life.warm()
        fleet.publish()
        await parts.front.served.wait()
        for name, native in parts.listeners.natives.items():
            say("framehost", f"{name} answers in its family's own dialect at {native.url}")
        if parts.listeners.admin is not None:
            say("framehost", f"operators' orders are taken at {parts.listeners.admin.url}/admin")
        names = ", ".join(f"{spec.name} ({spec.family})" for spec, _ in self._models)
        say("framehost", f"serving {names} at {parts.listeners.main.url} ({parts.life.uptime_s:.2f} s after the start)")
        parts.manager.ready(f"serving {names} at {parts.listeners.main.url}")

    async def _look(self) -> None:
        parts = self._parts
        while True:
            parts.manager.alive()
            parts.clock.look()
            parts.front.look()
            parts.fleet.look()
            parts.renewal.look()
            if os.getpid() == 1:
                orphans.reap(STARTED)
            await asyncio.sleep(LOOK_S)

    async def _drain(self) -> bool:
        """Stop in order, front first, within one budget and one margin; whether everything ended by itself in time."""
        parts = self._parts
        front, fleet = parts.front, parts.fleet
        budget = self._drain_s if parts.life.failure is None else 0.0
        end = self._loop.time() + budget + STOP_MARGIN_S
        connected = front.life.connected
        if connected:
            parts.lane.tell_front(Drain(budget_s=budget))
        front.life.begin_stop()
        fleet.begin_stop()
        await self._until(end - HOSTS_SHARE_S, [front.running])
        in_time = not connected or front.life.ended_with is None or front.life.ended_with.status == HostExit.CLEAN
        if not front.running.done():
            in_time = False
            parts.console.say("front", "still running after the drain budget; killed")
            front.kill()
        # With the front gone no client waits for a host's answer any more: what still runs has been given up.
        hosts = fleet.ask_to_stop(HOSTS_SHARE_S)
        # However early the front was done: who waits for a stop does not wait for a host that hangs.
        await self._until(min(end, self._loop.time() + STOP_MARGIN_S), hosts)
        fleet.kill()
        await asyncio.wait([front.running, *hosts])
        return in_time

    async def _until(self, deadline: float, ends: Sequence[asyncio.Future[None]]) -> None:
        if ends:
            await asyncio.wait(ends, timeout=max(0.0, deadline - self._loop.time()))

    def _asked_to_stop(self) -> None:
        """In the middle of anything; what follows is done in a step of the loop of its own."""
        self._loop.call_soon_threadsafe(self._signalled)

    def _asked_to_reload(self) -> None:
        """As `_asked_to_stop`. The answer is for the log alone."""
        order = Order(action="reload", model="server", settings={})
        self._loop.call_soon_threadsafe(self._parts.orders.take, order, lambda _: None)

    def _signalled(self) -> None:
        parts = self._parts
        if parts.life.stopped:
            return
        if parts.life.stopping:
            # The second signal: the operator does not want to wait. The guards take down whatever is left.
            status = ServeExit.INTERRUPTED
            parts.console.say("framehost", f"stopped: asked a second time; exit status {int(status)}")
            parts.front.kill()
            parts.fleet.kill()
            for listener in parts.listeners.inherited:
                listener.directory.close()
            parts.last_lines()
            os._exit(status)
        parts.life.stop()
        parts.console.say("framehost", f"stopping; at most {self._drain_s:g} s (again to stop at once)")
