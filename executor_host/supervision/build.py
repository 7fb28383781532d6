"""Makes a server of its parts: who is told what by whom is decided here, and nowhere else."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from executor_host.launch.base import RemoteHosts
from executor_host.supervision.changes import Changes
from executor_host.supervision.clock import AwakeClock
from executor_host.supervision.console import Console
from executor_host.supervision.directory_renewal import DirectoryRenewal
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_lane import FrontLane
from executor_host.supervision.front_slot import FrontCommand, FrontSlot
from executor_host.supervision.host_slot import Surroundings
from executor_host.supervision.launchers import Launchers
from executor_host.supervision.life import ServerLife
from executor_host.supervision.listeners import Listeners
from executor_host.supervision.log_writer import LogWriter
from executor_host.supervision.management import Management
from executor_host.supervision.orders import Orders, Reloading, Successor
from executor_host.supervision.probes import ProbeServer
from executor_host.supervision.report import Deaths, Reports
from executor_host.supervision.residency import Bounds
from executor_host.supervision.server import Parts, Server
from executor_host.supervision.systemd import ServiceManager
from protocol import addresses
from protocol.models import DeploymentSpec
from protocol.transport.loop import listen

LAST_LINES_S = 1.0
"""How long the end waits for the reader of the log."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a configuration comes to for the supervisor. Times in seconds."""

    models: Sequence[tuple[DeploymentSpec, bool]]
    """The first deployment of each name, and whether its hosts are started with the server."""
    default: str
    """The name that is meant where none is said."""
    limits: dict[str, Any]
    """Of the server, as the front is told them."""
    opens_with_first: bool
    """Whether the port opens when one model answers, and not when all do that are started with the server."""
    kept_bytes: Mapping[str, int]
    """By device, what may stay on it between requests."""
    session_idle_s: float
    """After how many seconds without a turn a conversation is over."""
    bounds: Bounds
    restarts: int
    front_limit_s: float | None
    """How long the front may owe an answer; None: for ever."""
    drain_s: float
    front_arguments: Sequence[str]
    """What a front is started with beside its sockets."""
    share: int
    """Threads of a host of this machine whose model does not say how many."""
    hidden: Collection[str]
    """Variables of the environment that are not for hosts."""
    hosts: RemoteHosts | None
    """Where hosts dial in that others start."""


def build(
    settings: Settings,
    listeners: Listeners,
    log: LogWriter,
    successor: Successor,
    reload: Callable[[], Awaitable[Reloading]],
    manager: ServiceManager,
) -> Server:
    """A server that is ready to run in the running loop. `listeners` and `log`: opened by the caller, who closes them.
    `successor`, `reload`: as for `Orders`. `manager`: who is told of the start and the end. Raises `HostsUnusable`."""
    loop = asyncio.get_running_loop()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    console, clock, directory = Console(log), AwakeClock(), listeners.main.directory
    life, deaths, mint, epoch = ServerLife(console.say), Deaths(), _minting(), secrets.token_hex(4)
    management = addresses.management(directory.launch)
    lane = FrontLane(lambda receive: listen(loop, context, management, receive), console.say, life)
    launchers = Launchers(
        console,
        context,
        hidden=settings.hidden,
        share=settings.share,
        where=settings.hosts,
        dialling_in={spec.name: spec.family for spec, _ in settings.models if spec.remote},
        epoch=epoch,
    )
    around = Surroundings(
        life=life,
        console=console,
        directory=directory,
        epoch=epoch,
        restarts=settings.restarts,
        launcher_of=launchers.of,
        dial=launchers.dial,
        tell_front=lane.tell_front,
        mint=mint,
        clock=clock,
    )
    fleet = Fleet(
        around,
        settings.bounds,
        drain_s=settings.drain_s,
        default=settings.default,
        limits=settings.limits,
        kept_bytes=settings.kept_bytes,
        session_idle_s=settings.session_idle_s,
        died=deaths.died,
    )
    renewal = DirectoryRenewal([one.directory for one in listeners.inherited], lane.listen_again, console.say)

    def front_command() -> FrontCommand:
        renewal.look()  # it dials the management address at once
        return _front_command(settings, listeners, management)

    front = FrontSlot(
        life,
        lane,
        console,
        front_command,
        restarts=settings.restarts,
        limit_s=settings.front_limit_s,
        clock=clock,
        mint=mint,
        lost=fleet.front_lost,
        died=deaths.died,
    )
    names = tuple(spec.name for spec, _ in settings.models)
    orders = Orders(life, console, fleet, Changes(fleet, clock), names, successor, reload)
    reports = Reports(life, lane, log, listeners, fleet, front, orders.swaps, deaths)
    Management(life, lane, console, fleet, front, orders, reports)
    probes = None if listeners.health is None else ProbeServer(listeners.health, reports.health)
    parts = Parts(
        life=life,
        clock=clock,
        console=console,
        listeners=listeners,
        lane=lane,
        fleet=fleet,
        front=front,
        orders=orders,
        renewal=renewal,
        probes=probes,
        manager=manager,
        close=(
            lane.close,
            launchers.close,
            *([] if probes is None else [probes.close]),
            manager.close,
            lambda: context.destroy(linger=None),
        ),
        last_lines=lambda: log.close(LAST_LINES_S),
    )
    return Server(
        parts,
        settings.models,
        management=management,
        drain_s=settings.drain_s,
        opens_with_first=settings.opens_with_first,
    )


def _minting() -> Callable[[], str]:
    """Makes new incarnations: readable, and never used before, also not by an earlier supervisor."""
    numbers = itertools.count(1)
    return lambda: f"{next(numbers)}-{secrets.token_hex(4)}"


def _front_command(settings: Settings, listeners: Listeners, management: str) -> FrontCommand:
    natives: Mapping[str, int] = {name: native.fileno for name, native in listeners.natives.items()}
    return FrontCommand(
        [
            "--management", management,
            "--listen", str(listeners.main.fileno),
            "--native", json.dumps(natives),
            *(["--admin", str(listeners.admin.fileno)] if listeners.admin is not None else []),
            "--limits", json.dumps(settings.limits),
            *settings.front_arguments,
        ],
        [listener.fileno for listener in listeners.inherited],
    )  # fmt: skip
