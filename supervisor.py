"""The supervisor: starts the front and the hosts, watches them by their process handles, restarts, stops.

It is the only one that spawns, signals and mints incarnations, and it survives the death of any of them.
Whoever dies, it tells the front (HOST_DOWN) or gives the port to a new front; when it dies itself, the guards
in the children end them.

The port is opened by the front when every configured model has finished its warm-up, and stays open then.

Here is what needs all of them in view: the start, the stop, what a death means for the whole, and the command line;
that is why it is longer than any of the parts. The parts are in executor_host/supervision: the place of one process
and its restarts (`front_slot.py`, `host_slot.py`), all deployments (`fleet.py`), what is said to the front and to
operators (`management.py`, `orders.py`, `report.py`), the ports (`listeners.py`). The configuration is in
frontend/configuration, the commands in frontend/cli.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import zmq
from msgspec import structs

from executor_host import inspection
from executor_host.launch import local, orphans
from executor_host.launch.base import Connection, HostLauncher, ProcessExit, ProcessHandle
from executor_host.launch.local import LocalLauncher
from executor_host.supervision import stop_signals
from executor_host.supervision import swap as swapping
from executor_host.supervision.console import Console
from executor_host.supervision.directory import DirectoryError
from executor_host.supervision.directory_renewal import DirectoryRenewal
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_slot import FrontCommand, FrontSlot
from executor_host.supervision.host_slot import HostSlot
from executor_host.supervision.hosts import STOP_MARGIN_S, Hosts
from executor_host.supervision.listeners import HttpListener, Listeners, PortUnusable, open_health, url_of
from executor_host.supervision.log_writer import LogWriter
from executor_host.supervision.management import Management
from executor_host.supervision.orders import Invalid, Orders
from executor_host.supervision.probes import ProbeServer
from executor_host.supervision.report import Reports
from executor_host.supervision.residency import Bounds
from frontend.cli.serve import configured
from frontend.configuration import keys
from frontend.configuration.endpoints import Endpoint
from frontend.configuration.model import Configuration, exposed
from frontend.configuration.successor import successor
from frontend.configuration.toml_file import ConfigurationError
from protocol import addresses
from protocol.exits import HostExit, ServeExit
from protocol.messages import Drain, Message
from protocol.models import DeploymentSpec, NamedModel
from protocol.transport import monitor
from protocol.transport.loop import dial, listen

HOSTS_SHARE_S = 0.5
"""The part of a stop's margin that is kept for the hosts when the front has used all of its own."""

LAST_LINES_S = 1.0
"""How long the end waits for the reader of the log."""

STDERR = 2

LOOK_S = 0.5
"""How often the processes are looked at from outside: their memory, for the death report, and the load limit."""


if TYPE_CHECKING:
    from executor_host.launch.remote import RemoteLauncher


class Supervisor:
    """One running server. `run` is its whole life."""

    def __init__(self, configuration: Configuration, listeners: Listeners, log: LogWriter) -> None:
        """`listeners`: opened by the caller, who closes them, and `log`."""
        self.configuration = configuration
        self.directory = listeners.main.directory
        self.console = console = Console(log)
        self._log = log
        self._listeners = listeners
        self._local = LocalLauncher(console.say, hidden={keys.ENVIRONMENT})
        self.loop = asyncio.get_running_loop()
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._remote = self._take_hosts(configuration)
        self.epoch = secrets.token_hex(4)
        self.restarts = configuration.restarts
        self.front_limit_s = configuration.front_limit_s
        self.drain_s = configuration.drain_s
        self.clock = time.monotonic
        self.management_address = addresses.management(self.directory.launch)
        self.server_limits = dataclasses.asdict(configuration.limits)
        self._started = time.monotonic()
        self._counter = 0
        self._open = False
        self._stop = asyncio.Event()
        self._over = False
        """Whether the last line has been said."""
        self._failure: ServeExit | None = None
        self._progressed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._models = {model.name: model for model in configuration.models}
        """What each name is configured to be now."""
        self._fleet = Fleet(self, Bounds(configuration.max_resident, configuration.max_resident_bytes))
        for model in configuration.models:
            self._fleet.add(self._spec(model), present=model.resident)
        self._front = FrontSlot(self)
        self._orders = Orders(self, self._fleet, tuple(self._models))
        self._reports = Reports(self, listeners, self._fleet, self._front, self._orders.swaps)
        self._management = Management(
            self,
            lambda receive: listen(self.loop, self.zmq, self.management_address, receive),
            self._fleet,
            self._front,
            self._orders,
            self._reports,
            default=configuration.default,
            limits=self.server_limits,
        )
        self._renewal = DirectoryRenewal(
            [listener.directory for listener in listeners.inherited], self._management.listen_again, console.say
        )
        self._probes = None if listeners.health is None else ProbeServer(listeners.health, self._reports.health)

    # Life

    async def run(self) -> ServeExit:
        """Serve until a signal or a failure; returns the exit status of the command."""
        stop_signals.OURS.tell(self._asked_to_stop)
        if self._probes is not None:
            await self._probes.start()
            self.console.say("framehost", f"probes are answered at {url_of(self._probes.listener)}")
        for listener in self._listeners.inherited:
            listener.directory.publish(management=self.management_address, url=self._listeners.main.url)
        residents = self._fleet.start_residents()
        front = self.loop.create_task(self._front.keep())
        front.add_done_callback(self.slot_done)
        opening = self.loop.create_task(self._open_when_warm(residents))
        looking = self.loop.create_task(self._look())
        looking.add_done_callback(self.slot_done)
        await self._stop.wait()
        for task in (opening, looking):
            task.cancel()
        self._orders.give_up()
        self._fleet.give_up()
        drained = await self._drain(front)
        self._management.close()
        self._local.close()
        if self._remote is not None:
            self._remote.close()
        if self._probes is not None:
            self._probes.close()
        self.zmq.destroy(linger=None)
        return self._ended(drained)

    def _ended(self, drained: bool) -> ServeExit:
        """The exit status, after the last line, which says it to who reads the log and not the status."""
        stop_signals.OURS.ignore()
        self._over = True
        if self._failure is not None:
            status, how = self._failure, "because of the failure above"
        elif drained:
            status, how = ServeExit.CLEAN, "everything was finished"
        else:
            status, how = ServeExit.NOT_DRAINED, self._front.goodbye or "the frontend could not finish in time"
        self.console.say("framehost", f"stopped: {how}; exit status {int(status)}")
        return status

    async def _open_when_warm(self, residents: list[Hosts]) -> None:
        while not all(slot.up is not None for hosts in residents for slot in hosts.slots):
            await self._progressed.wait()
            self._progressed.clear()
        self._open = True
        self.publish()
        await self._front.serving.wait()
        for name, native in self._listeners.natives.items():
            self.console.say("framehost", f"{name} answers in its family's own dialect at {native.url}")
        if self._listeners.admin is not None:
            self.console.say("framehost", f"operators' orders are taken at {self._listeners.admin.url}/admin")
        names = ", ".join(f"{model.name} ({model.family})" for model in self._models.values())
        self.console.say(
            "framehost", f"serving {names} at {self._listeners.main.url} ({self.uptime_s:.2f} s after the start)"
        )

    async def _look(self) -> None:
        while True:
            self._front.look()
            for slot in self._fleet.slots:
                slot.look()
            self._renewal.look()
            if os.getpid() == 1:
                orphans.reap(local.STARTED)
            await asyncio.sleep(LOOK_S)

    async def _drain(self, front: asyncio.Task[None]) -> bool:
        """Stop in order, front first, within one budget and one margin; whether everything ended by itself in time."""
        budget = self.drain_s if self._failure is None else 0.0
        end = self.loop.time() + budget + STOP_MARGIN_S
        connected = self._front.connected
        if connected:
            self.tell_front(Drain(budget_s=budget))
        else:
            # It is still starting, or died a moment ago: nobody's request is in it.
            self._front.kill()
        await self._until(end - HOSTS_SHARE_S, [front])
        in_time = not connected or self._front.ended is None or self._front.ended.status == HostExit.CLEAN
        if not front.done():
            in_time = False
            self.console.say("front", "still running after the drain budget; killed")
            self._front.kill()
        # With the front gone nobody waits for a host's answer any more: what still runs has been given up.
        hosts = self._fleet.ask_to_stop(HOSTS_SHARE_S)
        # However early the front was done: who waits for a stop does not wait for a host that hangs.
        await self._until(min(end, self.loop.time() + STOP_MARGIN_S), hosts)
        self._fleet.kill()
        await asyncio.wait([front, *hosts])
        return in_time

    async def _until(self, deadline: float, tasks: list[asyncio.Task[None]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, deadline - self.loop.time()))

    def _asked_to_stop(self) -> None:
        """In the middle of anything; what follows is done in a step of the loop of its own."""
        self.loop.call_soon_threadsafe(self._signalled)

    def _signalled(self) -> None:
        if self._over:
            return
        if self.is_stopping():
            # The second signal: nobody wants to wait. The guards take down whatever is left.
            self.console.say("framehost", f"stopped: asked a second time; exit status {int(ServeExit.INTERRUPTED)}")
            self._front.kill()
            self._fleet.kill()
            for listener in self._listeners.inherited:
                listener.directory.close()
            self._log.close(LAST_LINES_S)
            os._exit(ServeExit.INTERRUPTED)
        self._stop.set()
        self.console.say("framehost", f"stopping; at most {self.configuration.drain_s:g} s (again to stop at once)")

    @property
    def log_lines_lost(self) -> int:
        """Since the start."""
        return self._log.lost

    @property
    def uptime_s(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started

    def is_open(self) -> bool:
        """Whether every resident model has been ready: the port may be listened on."""
        return self._open

    def is_stopping(self) -> bool:
        """Whether the end has begun: nothing is started any more."""
        return self._stop.is_set()

    def fail(self, status: ServeExit, message: str) -> None:
        """Stop the server because it cannot go on."""
        first = self._failure is None
        if first:
            self._failure = status
        self._stop.set()
        if first:
            self.console.say("framehost", message)

    def slot_done(self, task: asyncio.Task[None]) -> None:
        """A bug in a slot must end the server loudly, never leave it half alive."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.call_exception_handler({"message": "a slot failed", "exception": error, "task": task})
            self.fail(ServeExit.FAILED, f"internal error: {error!r}")

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds` or for the stop, whichever comes first."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    def host_ready(self, slot: HostSlot) -> None:
        """A host is warm, and the front has been told."""
        self._fleet.host_ready(slot)
        self._progressed.set()

    def host_ended(self, slot: HostSlot, ended: ProcessExit) -> None:
        """A host ended. Decide whether the server can go on without it."""
        self._fleet.host_ended(slot)
        if slot.failed is None or self.is_stopping():
            return
        if not self._open:
            status = ServeExit.CONFIGURATION if ended.status == HostExit.CONFIGURATION else ServeExit.MODEL_FAILED
            self.fail(status, f"model {slot.deployment.name!r} could not be started: {slot.failed}")
        else:
            self._give_up_when_none_is_left()

    def _give_up_when_none_is_left(self) -> None:
        failures = {name: self._fleet.meant(name).failed for name in self._models}
        if not self._fleet.busy and None not in failures.values():
            told = "; ".join(f"{name!r}: {why}" for name, why in failures.items())
            self.fail(ServeExit.MODEL_FAILED, f"no model is left: {told}")

    def front_lost(self) -> None:
        """The front ended, and its requests with it."""
        self._fleet.front_lost()

    def _take_hosts(self, configuration: Configuration) -> RemoteLauncher | None:
        where = configuration.hosts
        if where is None:
            return None
        from executor_host.launch import remote  # pyzmq's authenticator is only for this
        from protocol.transport.keys import KeyFileError

        models = {model.name: model.family for model in configuration.models if model.remote}
        address = f"tcp://{where.listen}"
        try:
            return remote.RemoteLauncher(
                remote.RemoteHosts(address, where.key, where.allow, where.lease_s),
                self.zmq,
                self.console.say,
                models,
                lambda at, receive, security: listen(self.loop, self.zmq, at, receive, security=security),
            )
        except (KeyFileError, zmq.ZMQError) as error:
            raise ConfigurationError(f"hosts cannot dial in at {address}: {error}") from error

    def launcher_of(self, deployment: DeploymentSpec) -> HostLauncher:
        """Who starts the hosts of a deployment."""
        if not deployment.remote:
            return self._local
        assert self._remote is not None, "the configuration has a place for remote hosts when a model needs one"
        if deployment.ray is None:
            return self._remote
        from executor_host.launch.ray_hosts import RayLauncher

        return RayLauncher(self._remote, self.console.say)

    def dial(self, address: str, receive: Callable[[list[bytes]], None], process: ProcessHandle) -> Connection:
        """A control lane to a host. When the connection of a remote one is gone, its `process` is lost."""

        def changed(event: monitor.Event) -> None:
            if event == monitor.LOST:
                process.lost()

        return dial(
            self.loop,
            self.zmq,
            address,
            receive,
            identity=f"supervisor-{self.epoch}",
            security=process.security,
            on_connection=None if process.security is None else changed,
        )

    def front_command(self) -> FrontCommand:
        """How a frontend of this server is started."""
        self._renewal.look()  # it dials the management address at once
        listeners = self._listeners
        return FrontCommand(
            [
                "--management", self.management_address,
                "--listen", str(listeners.main.fileno),
                "--native", json.dumps({name: native.fileno for name, native in listeners.natives.items()}),
                *(["--admin", str(listeners.admin.fileno)] if listeners.admin is not None else []),
                "--limits", json.dumps(self.server_limits),
                *(["--access-log"] if self.configuration.access_log else []),
                *(["--tracing"] if self.configuration.tracing else []),
                *(["--keys", str(self.configuration.keys)] if self.configuration.keys else []),
                "--origins", json.dumps(self.configuration.cors),
                "--allowed-hosts", json.dumps(self.configuration.allowed_hosts),
                *(
                    ["--curve", str(self.configuration.hosts.key), "--lease", str(self.configuration.hosts.lease_s)]
                    if self.configuration.hosts
                    else []
                ),
            ],
            [listener.fileno for listener in listeners.inherited],
        )  # fmt: skip

    def mint(self) -> str:
        """A new incarnation: readable, and never used before, also not by an earlier supervisor."""
        self._counter += 1
        return f"{self._counter}-{secrets.token_hex(4)}"

    def _spec(self, model: NamedModel) -> DeploymentSpec:
        return DeploymentSpec(id=f"{model.name}@{next(self._numbers)}", **structs.asdict(model))

    async def swap(
        self, name: str, settings: Mapping[str, Any], mode: swapping.Mode, say: Callable[[str], None]
    ) -> swapping.SwapReport:
        """Make `name` mean what `settings` make of it. Raises `Invalid`, and what `Fleet.swap` raises."""
        try:
            meant = successor(self._models[name], settings, self.configuration.limits.request_timeout_s)
        except ConfigurationError as error:
            raise Invalid(str(error)) from error
        report = await self._fleet.swap(name, self._spec(meant), mode, say)
        self._models[name] = meant
        return report

    def order_ended(self) -> None:
        """An operator's order has been carried out, or not."""
        self._give_up_when_none_is_left()

    # What the parts say to each other

    def died(self, who: str, how: str) -> None:
        """Remember a death, for whoever asks what has happened lately."""
        self._reports.died(who, how)

    def tell_front(self, message: Message, call: int = 0) -> None:
        """Send to the current front; one that is not there yet is told everything when it says HELLO."""
        self._management.tell_front(message, call)

    def publish(self) -> None:
        """Tell the front what every name means, in one message."""
        self._management.publish()


# The command line


def _serve(arguments: argparse.Namespace) -> int:
    stop_signals.OURS.install()
    try:
        return _served(arguments)
    finally:
        stop_signals.OURS.ignore()


def _served(arguments: argparse.Namespace) -> int:
    try:
        configuration = configured(arguments)
    except ConfigurationError as error:
        print(f"framehost: {error}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    if not arguments.insecure and (problem := exposed(configuration)) is not None:
        print(f"framehost: {problem}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    with contextlib.ExitStack() as opened:
        try:
            listeners = _open(configuration, opened)
        except PortUnusable as error:
            print(f"framehost: {error}", file=sys.stderr)
            return error.status

        log = LogWriter(STDERR)
        # What the loop and the sockets have to say goes the same way, or it would wait for the reader after all.
        logging.basicConfig(stream=log, format="[framehost] %(levelname)s %(name)s: %(message)s")

        async def run() -> ServeExit:
            return await Supervisor(configuration, listeners, log).run()

        try:
            return asyncio.run(run())
        except (DirectoryError, ConfigurationError) as error:  # the disk is full; the keys of [hosts] cannot be read
            print(f"framehost: {error}", file=sys.stderr)
            return ServeExit.CONFIGURATION
        finally:
            log.close(LAST_LINES_S)


def _open(configuration: Configuration, opened: contextlib.ExitStack) -> Listeners:
    """All ports of a configuration, which `opened` closes. Raises `PortUnusable`."""

    def opened_at(endpoint: Endpoint) -> HttpListener:
        return opened.enter_context(contextlib.closing(HttpListener.open(endpoint.host, endpoint.port)))

    health = configuration.health
    return Listeners(
        main=opened_at(Endpoint(configuration.host, configuration.port)),
        natives={name: opened_at(place) for name, place in configuration.natives.items()},
        admin=None if configuration.admin is None else opened_at(configuration.admin),
        health=None if health is None else opened.enter_context(open_health(health.host, health.port)),
    )


def parser() -> argparse.ArgumentParser:
    """The `framehost` command line."""
    from executor_host.launch import commands as launching
    from frontend.cli import batch, check, completion, decide, fetch, orders, serve, status

    top = argparse.ArgumentParser(prog="framehost", description="A server for decision models.")
    # It is answered before this module is imported; here for the help, and for the completion of the shells.
    top.add_argument("--version", action="store_true", help="show framehost's version number and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve.add_to(commands, _serve)
    decide.add_to(commands)
    batch.add_to(commands)
    status.add_to(commands)
    orders.add_to(commands)
    check.add_to(commands, inspection.examine, inspection.key_problem)
    launching.add_to(commands)
    fetch.add_to(commands)
    completion.add_to(commands, top)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the `framehost` command; returns its exit status."""
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    return int(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
