"""The supervisor: starts the front and the hosts, watches them by their process handles, restarts, stops.

It is the only one that spawns, signals and mints incarnations, and it survives the death of any of them.
Whoever dies, it tells the front (HOST_DOWN) or gives the port to a new front; when it dies itself, the guards
in the children end them.

The port is opened by the front when every configured model has finished its warm-up, and stays open then.

Here is what needs all of them in view: the table of deployments, the ports' sockets, the management lane, the
stop, and the argument parser with `serve`. The place of one process and its restarts are in
executor_host/launch/slots.py, how processes are started, guarded and listened to beside it; the configuration
and the other commands are in frontend/cli.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from executor_host import inspection
from executor_host.launch import local, strangers
from executor_host.launch import swap as swapping
from executor_host.launch.base import DeploymentSpec, HostLauncher, ProcessExit, ProcessHandle
from executor_host.launch.console import Console
from executor_host.launch.directory import AlreadyRunning, DirectoryError, RuntimeDirectory, bind, why_not_bound
from executor_host.launch.fleet import Conflict, Fleet, OrderFailed
from executor_host.launch.hosts import STOP_MARGIN_S, Hosts
from executor_host.launch.local import LocalLauncher
from executor_host.launch.memory import resident_bytes
from executor_host.launch.probes import Health, ProbeServer
from executor_host.launch.residency import Bounds
from executor_host.launch.slots import Connection, FrontCommand, FrontSlot, HostSlot
from frontend import keys, sockets
from frontend.cli import config
from frontend.cli.configuration import Configuration, Endpoint, ModelConfig, exposed
from frontend.toml_file import ConfigurationError
from protocol import addresses
from protocol.errors import LimitExceeded, ProtocolError
from protocol.exits import HostExit, ServeExit
from protocol.frames import decode, encode
from protocol.limits import MAX_TEXT_CHARS
from protocol.messages import (
    Bye,
    Deployment,
    Drain,
    Drained,
    Hello,
    HostDown,
    Lane,
    Message,
    Order,
    Outcome,
    Overdue,
    Progress,
    Serving,
    Status,
    Want,
    Welcome,
)
from protocol.states import HostState

FRONT_STATUS_TIMEOUT_S = 1.0
"""How long `framehost status` waits for the front's part; the rest is answered anyway."""

RECENT_DEATHS = 20
"""Deaths that are remembered, of all processes together. More are in the log."""

HOSTS_SHARE_S = 0.5
"""The part of a stop's margin that is kept for the hosts when the front has used all of its own."""

LOADING = frozenset(state.value for state in (HostState.STARTING, HostState.LOADING, HostState.WARMING))
"""States of which the progress is told."""

LOOK_S = 0.5
"""How often the processes are looked at from outside: their memory, for the death report, and the load limit."""


if TYPE_CHECKING:
    from executor_host.launch.remote import RemoteLauncher


class StartFailed(Exception):
    """A model or the front will not come up; carries the exit status of the command."""

    def __init__(self, status: ServeExit, message: str) -> None:
        super().__init__(message)
        self.status = status


class Supervisor:
    """One running server. `run` is its whole life."""

    def __init__(
        self,
        configuration: Configuration,
        directory: RuntimeDirectory,
        listener: socket.socket,
        console: Console,
        launcher: HostLauncher | None = None,
        natives: Mapping[str, Door] | None = None,
        admin: Door | None = None,
        health: socket.socket | None = None,
    ) -> None:
        """`listener` and `directory`: bound and locked by the caller, who closes them; so are those of `natives`,
        the native listeners by model, and `admin`, the operators'. `health`: bound, for probes."""
        self.configuration = configuration
        self.directory = directory
        self.listener = listener
        self.natives = {name: door.listener for name, door in (natives or {}).items()}
        self.admin = None if admin is None else admin.listener
        self._doors = [*(natives or {}).values(), *(() if admin is None else (admin,))]
        self.console = console
        self._local = launcher or LocalLauncher(console.say, hidden={keys.ENVIRONMENT})
        self.loop = asyncio.get_running_loop()
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._remote = self._take_hosts(configuration)
        self.epoch = secrets.token_hex(4)
        self.restarts = configuration.restarts
        self.front_limit_s = configuration.front_limit_s
        self.drain_s = configuration.drain_s
        self.clock = time.monotonic
        self.management_address = addresses.management(directory.launch)
        self.server_limits = dataclasses.asdict(configuration.limits)
        self.url = url_of(listener)
        self._started = time.monotonic()
        self._counter = 0
        self._open = False
        self._served = False
        """Whether the port has been listened on."""
        self._stop = asyncio.Event()
        self._failure: StartFailed | None = None
        self._goodbye = ""
        """What the front said of its end."""
        self._asked: dict[int, tuple[bytes, str, int, asyncio.TimerHandle]] = {}
        self._questions = 0
        self._progressed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._models = {model.name: model for model in configuration.models}
        """What each name is configured to be now."""
        self._fleet = Fleet(self, Bounds(configuration.max_resident, configuration.max_resident_bytes))
        for model in configuration.models:
            self._fleet.add(self._spec(model), present=model.resident)
        self._orders: set[asyncio.Task[None]] = set()
        self._swapped = {model.name: {"done": 0, "failed": 0} for model in configuration.models}
        """How the swaps of each name have ended."""
        self._deaths: deque[dict[str, Any]] = deque(maxlen=RECENT_DEATHS)
        self._front = FrontSlot(self)
        self._management = sockets.listen(self.loop, self.zmq, self.management_address, self._heard)
        self._probes = None if health is None else ProbeServer(health, self.health)

    # Life

    async def run(self) -> ServeExit:
        """Serve until a signal or a failure; returns the exit status of the command."""
        # SIGHUP: a closed terminal is a requested stop, too.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.loop.add_signal_handler(number, self._signalled)
        if self._probes is not None:
            await self._probes.start()
            self.console.say("framehost", f"probes are answered at {url_of(self._probes.listener)}")
        for directory in (self.directory, *(door.directory for door in self._doors)):
            directory.publish(management=self.management_address, url=self.url)
        residents = self._fleet.start_residents()
        front = self.loop.create_task(self._front.keep())
        front.add_done_callback(self.slot_done)
        opening = self.loop.create_task(self._open_when_warm(residents))
        looking = self.loop.create_task(self._look())
        looking.add_done_callback(self.slot_done)
        await self._stop.wait()
        for task in (opening, looking, *self._orders):
            task.cancel()
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
        if self._failure is not None:
            status, how = self._failure.status, "because of the failure above"
        elif drained:
            status, how = ServeExit.CLEAN, "everything was finished"
        else:
            status, how = ServeExit.NOT_DRAINED, self._goodbye or "the frontend could not finish in time"
        self.console.say("framehost", f"stopped: {how}; exit status {int(status)}")
        return status

    async def _open_when_warm(self, residents: list[Hosts]) -> None:
        while not all(slot.up is not None for hosts in residents for slot in hosts.slots):
            await self._progressed.wait()
            self._progressed.clear()
        self._open = True
        self.publish()
        await self._front.serving.wait()
        self._served = True
        for name, native in self.natives.items():
            self.console.say("framehost", f"{name} answers in its family's own dialect at {url_of(native)}")
        if self.admin is not None:
            self.console.say("framehost", f"operators' orders are taken at {url_of(self.admin)}/admin")
        names = ", ".join(f"{model.name} ({model.family})" for model in self._models.values())
        self.console.say(
            "framehost", f"serving {names} at {self.url} ({time.monotonic() - self._started:.2f} s after the start)"
        )

    async def _look(self) -> None:
        while True:
            self._front.look()
            for slot in self._fleet.slots:
                slot.look()
            if os.getpid() == 1:
                strangers.reap(local.STARTED)
            await asyncio.sleep(LOOK_S)

    def health(self) -> Health:
        """What the probes may know."""
        models = [self._fleet.meant(name) for name in self._models]
        fractions = [
            slot.progress.fraction
            for slot in (slot for hosts in models if hosts.state in LOADING for slot in hosts.slots)
            if slot.progress is not None and slot.progress.fraction is not None
        ]
        return Health(
            uptime_s=time.monotonic() - self._started,
            started=self._served,
            serving=self._front.answers,
            stopping=self.is_stopping(),
            models=tuple(hosts.state for hosts in models),
            progress=min(fractions, default=None),
        )

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

    def _signalled(self) -> None:
        if self.is_stopping():
            # The second signal: nobody wants to wait. The guards take down whatever is left.
            self.console.say("framehost", f"stopped: asked a second time; exit status {int(ServeExit.INTERRUPTED)}")
            self._front.kill()
            self._fleet.kill()
            for directory in (self.directory, *(door.directory for door in self._doors)):
                directory.close()
            os._exit(ServeExit.INTERRUPTED)
        self._stop.set()
        self.console.say("framehost", f"stopping; at most {self.configuration.drain_s:g} s (again to stop at once)")

    def is_stopping(self) -> bool:
        """Whether the end has begun: nothing is started any more."""
        return self._stop.is_set()

    def fail(self, status: ServeExit, message: str) -> None:
        """Stop the server because it cannot go on."""
        first = self._failure is None
        if first:
            self._failure = StartFailed(status, message)
        self._stop.set()
        if first:
            self.console.say("framehost", message)

    def slot_done(self, task: asyncio.Task[None]) -> None:
        """A bug in a slot must end the server loudly, never leave it half alive."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.call_exception_handler({"message": "a slot failed", "exception": error, "task": task})
            self.fail(ServeExit.FAILED, f"internal error: {error!r}")

    def next_step(self, ended: ProcessExit, delay: float | None) -> str:
        """What follows a death, for people."""
        if delay is not None:
            return f"starting again {f'in {delay:g} s' if delay else 'now'}"
        if ended.status == HostExit.CONFIGURATION:
            return "starting it again would not help"
        return (
            f"not started again: restarts = {self.configuration.restarts} in a row are used up "
            "(a minute of being ready makes them whole)"
        )

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
        from executor_host.errors import ConfigurationError as KeysUnusable
        from executor_host.launch import remote  # pyzmq's authenticator is only for this

        models = {model.name: model.family for model in configuration.models if model.remote}
        address = f"tcp://{where.listen}"
        try:
            return remote.RemoteLauncher(
                remote.RemoteHosts(address, where.key, where.allow, where.lease_s),
                self.zmq,
                self.console.say,
                models,
                lambda at, receive, security: sockets.listen(self.loop, self.zmq, at, receive, security=security),
            )
        except (KeysUnusable, zmq.ZMQError) as error:
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

        def changed(event: zmq.Event) -> None:
            if event == zmq.EVENT_DISCONNECTED:
                process.lost()

        return sockets.dial(
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
        listeners = [self.listener, *self.natives.values(), *(() if self.admin is None else (self.admin,))]
        return FrontCommand(
            [
                "--management", self.management_address,
                "--listen", str(self.listener.fileno()),
                "--native", json.dumps({name: native.fileno() for name, native in self.natives.items()}),
                *(["--admin", str(self.admin.fileno())] if self.admin is not None else []),
                "--limits", json.dumps(self.server_limits),
                *(["--access-log"] if self.configuration.access_log else []),
                *(["--tracing"] if self.configuration.tracing else []),
                *(["--keys", str(self.configuration.keys)] if self.configuration.keys else []),
                "--origins", json.dumps(self.configuration.cors),
                *(
                    ["--curve", str(self.configuration.hosts.key), "--lease", str(self.configuration.hosts.lease_s)]
                    if self.configuration.hosts
                    else []
                ),
            ],
            [listener.fileno() for listener in listeners],
        )  # fmt: skip

    def mint(self) -> str:
        """A new incarnation: readable, and never used before, also not by an earlier supervisor."""
        self._counter += 1
        return f"{self._counter}-{secrets.token_hex(4)}"

    # Deployments

    def _spec(self, model: ModelConfig) -> DeploymentSpec:
        return DeploymentSpec(
            id=f"{model.name}@{next(self._numbers)}",
            name=model.name,
            family=model.family,
            path=model.path,
            options=model.options,
            max_requests=model.max_requests,
            max_cost=model.max_cost,
            execution_limit_s=model.execution_limit_s,
            load_limit_s=model.load_limit_s,
            replicas=model.replicas,
            pinned=model.pin or model.remote,  # a host that others start cannot be started again for a request
            keep_alive_s=model.keep_alive_s,
            remote=model.remote,
            ray=model.ray,
        )

    def publish(self) -> None:
        """Tell the front what every name means, in one message."""
        self.tell_front(self._table())

    def _order(self, peer: bytes, incarnation: str, call: int, order: Order) -> None:
        """Carry out what an operator wants, or say at once why not."""

        def answer(code: str, message: str, report: dict[str, Any] | None = None) -> None:
            if report is None:
                self.console.say("framehost", f"{order.action} of {order.model}: {message}")
            self._send(peer, incarnation, Outcome(code=code, message=message, report=report or {}), call)

        def say(step: str) -> None:
            self.console.say("framehost", f"{order.action} of {order.model}: {step}")
            self._send(peer, incarnation, Progress(stage=order.action, note=step), call)

        if self.is_stopping():
            answer("conflict", "the server is stopping")
        elif not self._open:
            answer("conflict", "the server is still starting its models")
        elif order.model not in self._models:
            answer("unknown", f"there is no model {order.model!r}; models here: {', '.join(self._models)}")
        else:
            # Received: from here on it may take as long as it takes.
            self._send(peer, incarnation, Progress(stage=order.action), call)
            task = self.loop.create_task(self._carry_out(order, answer, say))
            self._orders.add(task)
            task.add_done_callback(self._orders.discard)
            task.add_done_callback(self.slot_done)

    async def _carry_out(self, order: Order, answer: Callable[..., None], say: Callable[[str], None]) -> None:
        try:
            if order.action == "swap":
                await self._swap(order, answer, say)
            elif order.action == "cancel":
                answer("done", self._fleet.cancel(order.model))
            elif order.action == "load":
                answer("done", await self._fleet.load(order.model))
            else:
                answer("done", await self._fleet.unload(order.model))
        except Conflict as error:
            answer("conflict", str(error))
        except swapping.SwapFailed as error:
            self._swapped[order.model]["failed"] += 1
            answer("failed", str(error))
        except OrderFailed as error:
            answer("failed", str(error))
        except asyncio.CancelledError:
            answer("failed", f"the server is stopping; the {order.action} was given up")
            raise
        self._give_up_when_none_is_left()

    async def _swap(self, order: Order, answer: Callable[..., None], say: Callable[[str], None]) -> None:
        name = order.model
        try:
            mode = swapping.Mode(order.settings.get("mode", "start-first"))
            successor = config.successor(
                self._models[name], order.settings, self.configuration.limits.request_timeout_s
            )
        except (ValueError, ConfigurationError) as error:
            answer("invalid", str(error))
            return
        report = await self._fleet.swap(name, self._spec(successor), mode, say)
        self._models[name] = successor
        self._swapped[name]["done"] += 1
        text = f"{name} means {report.new}, {report.old} and its {report.freed_bytes >> 20} MiB are gone"
        if report.held_bytes:
            text = f"{name} means {report.new}; of {report.old}, {report.held_bytes} bytes are resident still"
        self.console.say("framehost", f"swap of {name}: {text} ({report.total_s:.2f} s)")
        answer("failed" if report.held_bytes else "done", text, dataclasses.asdict(report))

    # The management lane

    def died(self, who: str, how: str) -> None:
        """Remember a death, for whoever asks what has happened lately."""
        self._deaths.append({"at": time.time(), "who": who, "how": how})

    def tell_front(self, message: Message) -> None:
        """Send to the current front; one that is not there yet is told everything when it says HELLO."""
        if self._front.connected:
            self._send(self._front.epoch.encode(), self._front.epoch, message)

    def _send(self, peer: bytes, incarnation: str, message: Message, call: int = 0) -> None:
        try:
            self._management.send([peer, *encode(message, incarnation=incarnation, call=call)])
        except zmq.ZMQError as error:
            self.console.say("framehost", f"{incarnation} cannot be told {type(message).__name__}: {error}")
        except ProtocolError as error:
            # Nobody may go on knowing less than it should: a bug of ours, and it ends the server.
            self.fail(ServeExit.FAILED, f"internal error: {type(message).__name__} cannot be sent: {error}")

    def _heard(self, frames: list[bytes]) -> None:
        peer, *rest = frames
        try:
            envelope = decode(rest, lane=Lane.MANAGEMENT)
        except ProtocolError as error:
            self.console.say("framehost", f"management: {error}")
            return
        message = envelope.message
        from_front = peer == self._front.epoch.encode() and envelope.incarnation == self._front.epoch
        if from_front:
            self._front.pulse.answered(time.monotonic())
        if isinstance(message, Hello) and from_front:
            self._welcome_front()
        elif isinstance(message, Serving) and from_front:
            self._front.is_serving(message.address)
        elif isinstance(message, Overdue) and from_front:
            self._overdue(message)
        elif isinstance(message, Bye) and from_front:
            self._goodbye = message.reason
        elif isinstance(message, Drained) and from_front:
            self._fleet.drained(message.deployment)
        elif isinstance(message, Want) and from_front:
            self._fleet.usage(message.wanted, message.idle)
        elif isinstance(message, Order):
            self._order(peer, envelope.incarnation, envelope.call, message)
        elif isinstance(message, Status):
            if message.report is None:
                if from_front:
                    self._send(peer, envelope.incarnation, Status(report=self._report(None)), envelope.call)
                else:
                    self._ask_front(peer, envelope.incarnation, envelope.call)
            elif from_front:
                self._answer(envelope.call, message.report)

    def _welcome_front(self) -> None:
        self._front.greeted()
        self.tell_front(
            Welcome(role="supervisor", pid=os.getpid(), state="stopping" if self.is_stopping() else "running")
        )
        self.tell_front(self._table())
        for slot in self._fleet.slots:
            if slot.up is not None:
                self.tell_front(slot.up)
            elif self._open and slot.incarnation and slot.state != HostState.STOPPED.value:
                self.tell_front(
                    HostDown(
                        deployment=slot.deployment.id,
                        replica=slot.replica,
                        incarnation=slot.incarnation,
                        exit=None,
                        signal="",
                        last_words=slot.last_death[:MAX_TEXT_CHARS],
                        will_restart=slot.failed is None,
                        retry_after_s=slot.load_s,
                    )
                )

    def _overdue(self, message: Overdue) -> None:
        hosts = self._fleet.find(message.deployment)
        for slot in [] if hosts is None else hosts.slots:
            if slot.incarnation == message.incarnation:
                limit = slot.deployment.execution_limit_s or 0.0
                slot.overdue(f"no answer for {message.elapsed_s:.1f} s, its execution limit is {limit:g} s")

    def _table(self) -> Deployment:
        return Deployment(
            models=[hosts.row() for hosts in self._fleet],
            default=self.configuration.default,
            server=self.server_limits,
            open=self._open,
        )

    def _ask_front(self, peer: bytes, incarnation: str, call: int) -> None:
        """STATUS from the command line: ask the front for its part, answer without it when it does not come."""
        self._questions += 1
        question = self._questions
        wait = FRONT_STATUS_TIMEOUT_S if self._front.connected else 0.0
        timer = self.loop.call_later(wait, self._answer, question, None)
        self._asked[question] = (peer, incarnation, call, timer)
        if self._front.connected:
            self._send(self._front.epoch.encode(), self._front.epoch, Status(), question)

    def _answer(self, question: int, front: dict[str, Any] | None) -> None:
        asked = self._asked.pop(question, None)
        if asked is None:
            return  # answered without it already
        peer, incarnation, call, timer = asked
        timer.cancel()
        self._send(peer, incarnation, Status(report=self._report(front)), call)

    def _report(self, front: dict[str, Any] | None) -> dict[str, Any]:
        """What `framehost status` shows, and what a front is told for its metrics; `front`: that front's own part."""
        return {
            "pid": os.getpid(),
            "url": self.url,
            "admin": "" if self.admin is None else url_of(self.admin),
            "health": "" if self._probes is None else url_of(self._probes.listener),
            "uptime_s": round(time.monotonic() - self._started, 1),
            "stopping": self.is_stopping(),
            "supervisor_rss_bytes": resident_bytes(os.getpid()),
            "front_process": self._front.report(),
            "front": front,
            "swaps": self._swapped,
            "deaths": list(self._deaths),
            "hosts": [self._row(hosts, slot) for hosts in self._fleet for slot in hosts.slots],
        }

    def _row(self, hosts: Hosts, slot: HostSlot) -> dict[str, Any]:
        native = self.natives.get(hosts.spec.name)
        return {
            **slot.report(),
            **({"state": hosts.state} if hosts.state == "absent" else {}),
            "role": hosts.role.state.value,
            "keep_alive_s": hosts.spec.keep_alive_s,
            "pinned": hosts.spec.pinned,
            "native": "" if native is None else url_of(native),
        }


@dataclass(frozen=True, slots=True)
class Door:
    """A bound, not yet listening socket, and the directory whose lock keeps a second server off its port."""

    listener: socket.socket
    directory: RuntimeDirectory

    def close(self) -> None:
        """Give the port and its lock back."""
        self.directory.close()
        self.listener.close()


def url_of(listener: socket.socket) -> str:
    """Where clients find a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


# The command line


def _serve(arguments: argparse.Namespace) -> int:
    console = Console()
    try:
        configuration = _configured(arguments)
    except ConfigurationError as error:
        print(f"framehost: {error}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    if not arguments.insecure and (problem := exposed(configuration)) is not None:
        print(f"framehost: {problem}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    with contextlib.ExitStack() as doors:
        opened: list[Door] = []
        for endpoint in configuration.endpoints:
            door = _door(endpoint)
            if isinstance(door, ServeExit):
                return door
            doors.callback(door.close)
            opened.append(door)
        main_door, *others = opened
        health = None
        if configuration.health is not None:
            try:
                health = doors.enter_context(bind(configuration.health.host, configuration.health.port))
                health.listen()
            except OSError as error:
                status, text = why_not_bound(configuration.health.host, configuration.health.port, error)
                print(f"framehost: the health address: {text}", file=sys.stderr)
                return status
        admin = others.pop() if configuration.admin is not None else None
        natives = [model.name for model in configuration.models if model.native is not None]

        async def serve() -> ServeExit:
            return await Supervisor(
                configuration,
                main_door.directory,
                main_door.listener,
                console,
                natives=dict(zip(natives, others, strict=True)),
                admin=admin,
                health=health,
            ).run()

        try:
            return asyncio.run(serve())
        except (DirectoryError, ConfigurationError) as error:  # the disk is full; the keys of [hosts] cannot be read
            print(f"framehost: {error}", file=sys.stderr)
            return ServeExit.CONFIGURATION


def _door(endpoint: Endpoint) -> Door | ServeExit:
    """The bound and locked port, or the exit status after saying why there is none."""
    try:
        listener = bind(endpoint.host, endpoint.port)
    except OSError as error:
        status, text = why_not_bound(endpoint.host, endpoint.port, error)
        print(f"framehost: {text}", file=sys.stderr)
        return status
    try:
        return Door(listener, RuntimeDirectory(listener.getsockname()[1]))
    except (DirectoryError, LimitExceeded) as error:
        listener.close()
        print(f"framehost: {error}", file=sys.stderr)
        return ServeExit.PORT_IN_USE if isinstance(error, AlreadyRunning) else ServeExit.CONFIGURATION


def _configured(arguments: argparse.Namespace) -> Configuration:
    """The configuration of the file or of the --model options, with --host and --port on top."""
    if arguments.config is not None and arguments.model:
        raise ConfigurationError("give either --config or --model, not both")
    configuration = (
        config.from_models(arguments.model) if arguments.config is None else config.load(Path(arguments.config))
    )
    if arguments.host is not None:
        configuration = dataclasses.replace(configuration, host=config.check_host(arguments.host))
    if arguments.health is not None:
        try:
            configuration = dataclasses.replace(configuration, health=config.endpoint(arguments.health))
        except ConfigurationError as error:
            raise ConfigurationError(f"--health: {error}") from error
    if arguments.access_log:
        configuration = dataclasses.replace(configuration, access_log=True)
    if arguments.keys is not None:
        configuration = dataclasses.replace(configuration, keys=config.check_keys(Path(arguments.keys)))
    else:
        keys.from_environment()  # what is wrong with it is told now, and not by the front
    if arguments.port is not None:
        if not 0 <= arguments.port <= 65535:
            raise ConfigurationError(f"--port {arguments.port}: a port is 0..65535")
        configuration = dataclasses.replace(configuration, port=arguments.port)
    return configuration


def parser() -> argparse.ArgumentParser:
    """The `framehost` command line."""
    from executor_host.launch import commands as launching
    from frontend.cli import batch, check, completion, decide, fetch, orders, status

    top = argparse.ArgumentParser(prog="framehost", description="A server for decision models.")
    # It is answered before this module is imported; here for the help, and for the completion of the shells.
    top.add_argument("--version", action="store_true", help="show framehost's version number and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve models over HTTP", description="Serve models over HTTP.")
    serve.add_argument(
        "--model", action="append", default=[], metavar="NAME=FAMILY[:PATH]",
        help="a model to serve; may be given several times (default: the embedded model, sparrow=sparrow)",
    )  # fmt: skip
    serve.add_argument("--config", metavar="FILE", help="a TOML file instead of --model")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8080; 0: any free one)")
    serve.add_argument("--health", metavar="ADDRESS:PORT", help="answer probes here: /livez, /startupz, /readyz")
    serve.add_argument("--access-log", action="store_true", help="log a line for every request")
    serve.add_argument("--keys", metavar="FILE", help="a TOML file with the API keys that may ask")
    serve.add_argument(
        "--insecure", action="store_true", help="allow an address that other machines can reach without API keys"
    )
    serve.set_defaults(run=_serve)
    decide.add_to(commands)
    batch.add_to(commands)
    status.add_to(commands)
    orders.add_to(commands)
    check.add_to(commands, inspection.examine)
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
