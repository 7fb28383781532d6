"""The supervisor: starts the front and the hosts, watches them by their process handles, restarts, stops.

It is the only one that spawns, signals and mints incarnations, and it survives the death of any of them.
Whoever dies, it tells the front (HOST_DOWN) or gives the port to a new front; when it dies itself, the guards
in the children end them.

    HostSlot       one configured model: start ─▶ HELLO ─▶ WELCOME ─▶ PROGRESS ... READY ─▶ (death ─▶ start ...)
    FrontSlot      the frontend: start ─▶ HELLO ─▶ DEPLOYMENT, HOST_UP ... ─▶ SERVING ─▶ (death ─▶ start ...)
    Supervisor     owns both, the runtime directory, the port's socket and the management lane

The port is opened by the front when every configured model has finished its warm-up, and stays open then.

It is a long file because the three classes are one state machine: each transition of a slot is decided with
the others in view. How processes are started, guarded and listened to is in executor_host/launch, the
configuration and the other commands are in frontend/cli; only `serve` and the argument parser are here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from executor_host import inspection
from executor_host.launch import stacks
from executor_host.launch.base import HostLauncher, HostSpec, ProcessExit, ProcessHandle
from executor_host.launch.console import Console
from executor_host.launch.directory import AlreadyRunning, DirectoryError, RuntimeDirectory, bind, why_not_bound
from executor_host.launch.local import LocalLauncher, LocalProcess, start_process
from executor_host.launch.policy import RestartLimits, RestartPolicy
from executor_host.launch.probes import Health, ProbeServer
from executor_host.launch.pulse import Pulse
from frontend import keys, sockets
from frontend.cli import config
from frontend.cli.config import Configuration, ModelConfig
from frontend.toml_file import ConfigurationError
from protocol import addresses
from protocol.errors import LimitExceeded, ProtocolError
from protocol.exits import HostExit, ServeExit
from protocol.frames import decode, encode
from protocol.limits import MAX_TEXT_CHARS
from protocol.messages import (
    Deployment,
    Drain,
    Failure,
    Hello,
    HostDown,
    HostUp,
    Lane,
    Message,
    Overdue,
    Progress,
    Ready,
    Serving,
    Status,
    Welcome,
)
from protocol.states import HOST, HostEvent, HostState, Machine

FRONT_STATUS_TIMEOUT_S = 1.0
"""How long `framehost status` waits for the front's part; the rest is answered anyway."""

LAST_WORDS_CHARS = 4_000
"""How much of a dead process's output is attached to its death report; the log has all of it."""

LOOK_S = 0.5
"""How often the processes are looked at from outside: their memory, for the death report, and the load limit."""

STOP_MARGIN_S = 2.0
"""After the drain budget, what a process gets to end by itself before it is killed."""


class StartFailed(Exception):
    """A model or the front will not come up; carries the exit status of the command."""

    def __init__(self, status: ServeExit, message: str) -> None:
        super().__init__(message)
        self.status = status


class HostSlot:
    """One model's place: at most one incarnation at a time, and what is known of the ones before."""

    def __init__(self, owner: Supervisor, model: ModelConfig) -> None:
        self.model = model
        self.machine = Machine(HOST, HostState.STARTING)
        self.incarnation = ""
        self.up: HostUp | None = None
        self.ready = asyncio.Event()
        self.failed: str | None = None
        """Why no further incarnation will be started, once that is so."""
        self.last_death = ""
        self.load_s = 0.0
        """How long the last incarnation took from its start to READY."""
        self.progress: Progress | None = None
        self.progressed_at = 0.0
        self.pulse = Pulse(0.0)
        self.resident_bytes = 0
        """Memory of the living incarnation when it was last looked at; what is left of one that is killed."""
        self.policy = RestartPolicy(RestartLimits(budget=owner.configuration.restarts))
        self._owner = owner
        self._handle: ProcessHandle | None = None
        self._control: sockets.LoopSocket | None = None
        self._started = 0.0
        self._ready_at: float | None = None
        self._overdue: asyncio.Task[None] | None = None
        self._cause = ""
        """Why we end the incarnation, when it is us."""

    async def keep(self) -> None:
        """Start incarnations until the stop, or until the policy gives up."""
        owner = self._owner
        while not owner.is_stopping():
            try:
                ended = await self._live()
            except OSError as error:
                owner.console.say(self.model.name, f"cannot start a host: {error}")
                ended = ProcessExit(HostExit.LOAD_FAILED, None)
            delay = self._bury(ended)
            if delay is None:
                return
            await owner.pause(delay)

    async def _live(self) -> ProcessExit:
        """One incarnation from its start to its end."""
        owner = self._owner
        self.incarnation = owner.mint()
        self.machine = Machine(HOST, HostState.STARTING)
        self.progress = None
        self._started, self._ready_at = time.monotonic(), None
        self.progressed_at, self.pulse = self._started, Pulse(self._started)
        self._handle = None
        self._cause, self.resident_bytes = "", 0
        directory = owner.directory.incarnation(self.incarnation)
        spec = HostSpec(
            deployment=self.model.name,
            incarnation=self.incarnation,
            family=self.model.family,
            path=self.model.path,
            options=self.model.options,
            directory=str(directory),
        )
        self._handle = await owner.launcher.start(spec)
        if owner.is_stopping():
            self._handle.kill()  # the stop came while there was nothing to stop yet
        self._control = sockets.dial(
            owner.loop, owner.zmq, spec.control, self._heard, identity=f"supervisor-{owner.epoch}"
        )
        self._tell(Hello(role="supervisor", epoch=owner.epoch, pid=os.getpid()))
        try:
            return await self._handle.wait()
        finally:
            self._control.close()
            self._control = None
            shutil.rmtree(directory, ignore_errors=True)
            self.ready.clear()
            owner.console.settled(self._source)

    def _bury(self, ended: ProcessExit) -> float | None:
        """Record a death, tell the front, and return the delay until the next start, None for no next."""
        owner = self._owner
        clean = ended.status == HostExit.CLEAN
        if not self.machine.state.settled:
            self.machine.advance(HostEvent.EXIT_CLEAN if clean else HostEvent.EXIT)
        words = "" if self._handle is None else self._handle.last_words()[-LAST_WORDS_CHARS:]
        how = ended.describe(cause=self._cause, resident_bytes=self.resident_bytes)
        ready_for = None if self._ready_at is None else time.monotonic() - self._ready_at
        delay = None
        if not owner.is_stopping():
            delay = self.policy.after_death(status=ended.status, ready_for_s=ready_for)
            self.last_death = f"{how}\n{words}".strip()
        if delay is None and not owner.is_stopping():
            self.failed = how
            if words:
                self.failed += f": {words.splitlines()[-1]}"
        self.up = None
        owner.tell_front(
            HostDown(
                deployment=self.model.name,
                incarnation=self.incarnation,
                exit=None if ended.status is None else int(ended.status),
                signal=ended.signal_name,
                last_words=self.last_death[:MAX_TEXT_CHARS],
                will_restart=delay is not None,
                retry_after_s=float(self.load_s + (delay or 0.0)),
            )
        )
        # The front first, then the people: a log that cannot be written must not keep a death secret.
        if not owner.is_stopping():
            owner.console.say(self._source, f"ended: {how}; {owner.next_step(ended, delay)}")
        owner.settled(self, ended)
        return delay

    def _heard(self, frames: list[bytes]) -> None:
        try:
            message = decode(frames, lane=Lane.CONTROL, incarnation=self.incarnation).message
        except ProtocolError as error:
            self._owner.console.say(self._source, f"sent something that is no message: {error}")
            return
        self.pulse.answered(time.monotonic())
        if isinstance(message, Welcome):
            if self.machine.allows(HostEvent.WELCOME):
                self.machine.advance(HostEvent.WELCOME)
        elif isinstance(message, Progress):
            self.progress, self.progressed_at = message, time.monotonic()
            if message.stage == "warming" and self.machine.allows(HostEvent.LOADED):
                self.machine.advance(HostEvent.LOADED)
            self._owner.console.progress(self._source, message.stage, message.fraction, message.note)
        elif isinstance(message, Ready):
            self._is_ready(message)
        elif isinstance(message, Failure):
            self._owner.console.say(self._source, message.message)

    def _is_ready(self, message: Ready) -> None:
        if self.machine.allows(HostEvent.LOADED):
            # A host that loads faster than we dial is heard of when it is ready, not before.
            self.machine.advance(HostEvent.LOADED)
        if not self.machine.allows(HostEvent.READY):
            return  # told again after a second HELLO, or a stop came first
        self.machine.advance(HostEvent.READY)
        self._ready_at = time.monotonic()
        self.load_s = self._ready_at - self._started
        assert self._handle is not None
        self.up = HostUp(
            deployment=self.model.name,
            incarnation=self.incarnation,
            control=addresses.control(Path(message.address.removeprefix("ipc://")).parent),
            data=message.address,
            pid=self._handle.pid,
            facts=message.facts,
        )
        self.look()
        self._owner.console.settled(self._source)
        self._owner.console.say(self._source, f"ready in {self.load_s:.2f} s, {self._handle.describe()}")
        self._owner.tell_front(self.up)
        self.ready.set()
        self._owner.progressed.set()

    def look(self) -> None:
        """See from outside how the incarnation is; end one that loads for longer than it may."""
        if self._handle is None or self.machine.state.settled:
            return
        self.resident_bytes = resident_bytes(self._handle.pid) or self.resident_bytes
        limit = self.model.load_limit_s
        if limit is not None and self._ready_at is None and time.monotonic() - self._started > limit:
            self.overdue(f"it was not ready within its load limit of {limit:g} s")
        if self.pulse.due(time.monotonic()):
            self._tell(Status())

    def overdue(self, cause: str) -> None:
        """End an incarnation that takes too long, with its stacks in its last words. Only the first cause counts."""
        if self._handle is None or self.machine.state.settled or self._cause:
            return
        self._cause = cause
        self._owner.console.say(self._source, f"{cause}; it is killed after a look at its stacks")
        self._overdue = self._owner.loop.create_task(self._end(self._handle))

    async def _end(self, handle: ProcessHandle) -> None:
        missing = await stacks.dump(handle)
        if missing:
            self._cause += f"; {missing}"
        handle.kill()

    def stop(self, budget_s: float) -> None:
        """Ask the host to finish and go. One that is not ready has nothing to finish and is ended at once."""
        if self._handle is None or self.machine.state.settled:
            return
        was_ready = self.machine.state is HostState.READY
        if self.machine.allows(HostEvent.DRAIN):
            self.machine.advance(HostEvent.DRAIN)
        if was_ready:
            self._tell(Drain(budget_s=budget_s))
            # The same request by the other way, for a host whose control thread does not answer any more.
            self._handle.send_signal(signal.SIGTERM)
        else:
            self._handle.kill()

    def kill(self) -> None:
        """End it now."""
        if self._handle is not None:
            self._handle.kill()

    def _tell(self, message: Message) -> None:
        if self._control is not None:
            try:
                self._control.send(encode(message, incarnation=self.incarnation))
            except zmq.ZMQError as error:
                self._owner.console.say(self._source, f"cannot be told {type(message).__name__}: {error}")

    @property
    def _source(self) -> str:
        return f"{self.model.name} {self.incarnation}"

    @property
    def state(self) -> str:
        """For people and probes: a word of the host table, or "failed" when there will be no next incarnation."""
        return "failed" if self.failed else self.machine.state.value

    def report(self) -> dict[str, Any]:
        """This slot's part of `framehost status`."""
        handle = self._handle if not self.machine.state.settled else None
        return {
            "model": self.model.name,
            "family": self.model.family,
            "state": self.state,
            "incarnation": self.incarnation,
            "pid": 0 if handle is None else handle.pid,
            "rss_bytes": 0 if handle is None else resident_bytes(handle.pid),
            "restarts": self.policy.restarts,
            "load_s": round(self.load_s, 3),
            "native": url_of(self._owner.natives[self.model.name]) if self.model.name in self._owner.natives else "",
            "progress": None
            if self.progress is None
            else [self.progress.stage, self.progress.fraction, self.progress.note],
            "progress_age_s": round(time.monotonic() - self.progressed_at, 1),
            "silent_s": 0.0 if handle is None else round(self.pulse.silent_s(time.monotonic()), 1),
            "last_death": self.last_death,
            "failed": self.failed or "",
        }


class FrontSlot:
    """The frontend's place. A new front gets the same socket and finds the hosts as they are."""

    def __init__(self, owner: Supervisor) -> None:
        self.epoch = ""
        self.connected = False
        self.policy = RestartPolicy(RestartLimits(budget=owner.configuration.restarts))
        self.last_death = ""
        self.serving = asyncio.Event()
        self.pulse = Pulse(0.0)
        self._owner = owner
        self._handle: LocalProcess | None = None
        self._ending: asyncio.Task[None] | None = None
        self._cause = ""
        """Why we end it, when it is us."""
        self._resident_bytes = 0
        self._serving_at: float | None = None

    async def keep(self) -> None:
        """Start fronts until the stop; give up by failing the whole server."""
        owner = self._owner
        while not owner.is_stopping():
            self.epoch = owner.mint()
            self._serving_at, self._cause, self._resident_bytes = None, "", 0
            self.pulse = Pulse(time.monotonic(), owner.configuration.front_limit_s)
            ended, words = await self._live()
            self.connected = False
            self.serving.clear()
            owner.front_ended = ended
            if owner.is_stopping():
                return
            ready_for = None if self._serving_at is None else time.monotonic() - self._serving_at
            delay = self.policy.after_death(status=ended.status, ready_for_s=ready_for)
            how = ended.describe(cause=self._cause, resident_bytes=self._resident_bytes)
            self.last_death = f"{how}\n{words}".strip()
            text = f"ended: {how}; {owner.next_step(ended, delay)}"
            if delay is None:
                owner.fail(ServeExit.FRONT_FAILED, f"the frontend {text}")
                return
            owner.console.say("front", text)
            await owner.pause(delay)

    async def _live(self) -> tuple[ProcessExit, str]:
        """One front from its start to its end, and its last words."""
        owner = self._owner
        try:
            self._handle = await start_process(
                "frontend.main",
                [
                    "--management", owner.management_address, "--epoch", self.epoch,
                    "--listen", str(owner.listener.fileno()),
                    "--native", json.dumps({name: native.fileno() for name, native in owner.natives.items()}),
                    "--limits", json.dumps(owner.server_limits),
                    *(["--access-log"] if owner.configuration.access_log else []),
                    *(["--keys", str(owner.configuration.keys)] if owner.configuration.keys else []),
                    "--origins", json.dumps(owner.configuration.cors),
                ],
                say=lambda line: owner.console.say("front", line),
                descriptors=[listener.fileno() for listener in (owner.listener, *owner.natives.values())],
            )  # fmt: skip
        except OSError as error:
            return ProcessExit(HostExit.LOAD_FAILED, None), f"cannot start a front: {error}"
        if owner.is_stopping():
            self._handle.kill()  # the stop came while there was nothing to stop yet
        ended = await self._handle.wait()
        return ended, self._handle.last_words()[-LAST_WORDS_CHARS:]

    def look(self) -> None:
        """See from outside how the front is, ask it something, and end one whose event loop stands still."""
        if self._handle is None or self._cause:
            return
        now = time.monotonic()
        self._resident_bytes = resident_bytes(self._handle.pid) or self._resident_bytes
        if self.pulse.stalled(now):
            self._cause = f"no answer for {self.pulse.silent_s(now):.1f} s, front_limit is {self.pulse.limit_s:g} s"
            self._owner.console.say("front", f"{self._cause}; it is killed after a look at its stacks")
            self._ending = self._owner.loop.create_task(self._end(self._handle))
        elif self.connected and self.pulse.due(now):
            self._owner.tell_front(Status())

    async def _end(self, handle: LocalProcess) -> None:
        missing = await stacks.dump(handle)
        if missing:
            self._cause += f"; {missing}"
        handle.kill()

    @property
    def answers(self) -> bool:
        """Whether it serves and its loop turns, as far as is known."""
        return self.serving.is_set() and self.pulse.answers(time.monotonic())

    def is_serving(self, address: str) -> None:
        """The front listens."""
        self._serving_at = time.monotonic()
        self.serving.set()

    def kill(self) -> None:
        """End it now."""
        if self._handle is not None:
            self._handle.kill()

    def report(self) -> dict[str, Any]:
        """The supervisor's knowledge of the front."""
        pid = 0 if self._handle is None else self._handle.pid
        return {
            "pid": pid,
            "rss_bytes": resident_bytes(pid),
            "serving": self.serving.is_set(),
            "silent_s": round(self.pulse.silent_s(time.monotonic()), 1),
            "restarts": self.policy.restarts,
            "last_death": self.last_death,
        }


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
        health: socket.socket | None = None,
    ) -> None:
        """`listener` and `directory`: bound and locked by the caller, who closes them; so are those of `natives`,
        the native listeners by model. `health`: bound, for probes."""
        self.configuration = configuration
        self.directory = directory
        self.listener = listener
        self._doors = natives or {}
        self.natives = {name: door.listener for name, door in self._doors.items()}
        self.console = console
        self.launcher = launcher or LocalLauncher(console.say, hidden={keys.ENVIRONMENT})
        self.loop = asyncio.get_running_loop()
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.epoch = secrets.token_hex(4)
        self.progressed = asyncio.Event()
        self.front_ended: ProcessExit | None = None
        self.management_address = addresses.management(directory.launch)
        self.server_limits = {
            "max_body_bytes": configuration.max_body_bytes,
            "request_timeout_s": configuration.request_timeout_s,
        }
        self.url = url_of(listener)
        self._started = time.monotonic()
        self._counter = 0
        self._open = False
        self._served = False
        """Whether the port has been listened on."""
        self._stop = asyncio.Event()
        self._failure: StartFailed | None = None
        self._asked: dict[int, tuple[bytes, str, int, asyncio.TimerHandle]] = {}
        self._questions = 0
        self._hosts = {model.name: HostSlot(self, model) for model in configuration.models}
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
        for directory in (self.directory, *(door.directory for door in self._doors.values())):
            directory.publish(management=self.management_address, url=self.url)
        hosts = [self.loop.create_task(slot.keep()) for slot in self._hosts.values()]
        front = self.loop.create_task(self._front.keep())
        for task in (*hosts, front):
            task.add_done_callback(self._crashed)
        opening = self.loop.create_task(self._open_when_warm())
        looking = self.loop.create_task(self._look())
        looking.add_done_callback(self._crashed)
        await self._stop.wait()
        opening.cancel()
        looking.cancel()
        drained = await self._drain(hosts, front)
        self._management.close()
        if self._probes is not None:
            self._probes.close()
        self.zmq.destroy(linger=None)
        if self._failure is not None:
            return self._failure.status
        return ServeExit.CLEAN if drained else ServeExit.NOT_DRAINED

    async def _open_when_warm(self) -> None:
        while not all(slot.ready.is_set() for slot in self._hosts.values()):
            await self.progressed.wait()
            self.progressed.clear()
        self._open = True
        self.tell_front(self._table())
        await self._front.serving.wait()
        self._served = True
        for name, native in self.natives.items():
            self.console.say("framehost", f"{name} answers in its family's own dialect at {url_of(native)}")
        names = ", ".join(f"{slot.model.name} ({slot.model.family})" for slot in self._hosts.values())
        self.console.say(
            "framehost", f"serving {names} at {self.url} ({time.monotonic() - self._started:.2f} s after the start)"
        )

    async def _look(self) -> None:
        while True:
            self._front.look()
            for slot in self._hosts.values():
                slot.look()
            await asyncio.sleep(LOOK_S)

    def health(self) -> Health:
        """What the probes may know."""
        fractions = [
            slot.progress.fraction
            for slot in self._hosts.values()
            if not slot.ready.is_set() and slot.progress is not None and slot.progress.fraction is not None
        ]
        return Health(
            uptime_s=time.monotonic() - self._started,
            started=self._served,
            serving=self._front.answers,
            stopping=self.is_stopping(),
            models=tuple(slot.state for slot in self._hosts.values()),
            progress=min(fractions, default=None),
        )

    async def _drain(self, hosts: list[asyncio.Task[None]], front: asyncio.Task[None]) -> bool:
        """Stop in order, front first, within one budget; whether everything ended by itself in time."""
        budget = self.configuration.drain_s if self._failure is None else 0.0
        deadline = self.loop.time() + budget
        connected = self._front.connected
        if connected:
            self.tell_front(Drain(budget_s=budget))
        else:
            # It is still starting, or died a moment ago: nobody's request is in it.
            self._front.kill()
        await self._until(deadline + STOP_MARGIN_S, [front])
        in_time = not connected or self.front_ended is None or self.front_ended.status == HostExit.CLEAN
        if not front.done():
            in_time = False
            self.console.say("front", "still running after the drain budget; killed")
            self._front.kill()
        # With the front gone nobody waits for a host's answer any more: what still runs has been given up.
        for slot in self._hosts.values():
            slot.stop(STOP_MARGIN_S)
        await self._until(self.loop.time() + STOP_MARGIN_S, hosts)
        for slot in self._hosts.values():
            slot.kill()
        await asyncio.wait([front, *hosts])
        return in_time

    async def _until(self, deadline: float, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.wait(tasks, timeout=max(0.0, deadline - self.loop.time()))

    def _signalled(self) -> None:
        if self.is_stopping():
            # The second signal: nobody wants to wait. The guards take down whatever is left.
            self._front.kill()
            for slot in self._hosts.values():
                slot.kill()
            for directory in (self.directory, *(door.directory for door in self._doors.values())):
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

    def _crashed(self, task: asyncio.Task[None]) -> None:
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

    def settled(self, slot: HostSlot, ended: ProcessExit) -> None:
        """A host ended. Decide whether the server can go on without it."""
        if slot.failed is None or self.is_stopping():
            return
        if not self._open:
            status = ServeExit.CONFIGURATION if ended.status == HostExit.CONFIGURATION else ServeExit.MODEL_FAILED
            self.fail(status, f"model {slot.model.name!r} could not be started: {slot.failed}")
        elif all(other.failed is not None for other in self._hosts.values()):
            self.fail(ServeExit.MODEL_FAILED, f"no model is left: {slot.model.name!r}: {slot.failed}")

    def mint(self) -> str:
        """A new incarnation: readable, and never used before, also not by an earlier supervisor."""
        self._counter += 1
        return f"{self._counter}-{secrets.token_hex(4)}"

    # The management lane

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
            slot = self._hosts.get(message.deployment)
            if slot is not None and slot.incarnation == message.incarnation:
                limit = slot.model.execution_limit_s or 0.0
                slot.overdue(f"no answer for {message.elapsed_s:.1f} s, its execution limit is {limit:g} s")
        elif isinstance(message, Status):
            if message.report is None:
                self._ask_front(peer, envelope.incarnation, envelope.call)
            elif from_front:
                self._answer(envelope.call, message.report)

    def _welcome_front(self) -> None:
        self._front.connected = True
        self.tell_front(
            Welcome(role="supervisor", pid=os.getpid(), state="stopping" if self.is_stopping() else "running")
        )
        self.tell_front(self._table())
        for slot in self._hosts.values():
            if slot.up is not None:
                self.tell_front(slot.up)
            elif self._open:
                self.tell_front(
                    HostDown(
                        deployment=slot.model.name,
                        incarnation=slot.incarnation,
                        exit=None,
                        signal="",
                        last_words=slot.last_death[:MAX_TEXT_CHARS],
                        will_restart=slot.failed is None,
                        retry_after_s=slot.load_s,
                    )
                )

    def _table(self) -> Deployment:
        models = [
            {
                "name": model.name,
                "family": model.family,
                "path": model.path,
                "options": dict(model.options),
                "max_requests": model.max_requests,
                "max_cost": model.max_cost,
                "execution_limit_s": model.execution_limit_s,
            }
            for model in self.configuration.models
        ]
        return Deployment(models=models, default=self.configuration.default, server=self.server_limits, open=self._open)

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
        report = {
            "pid": os.getpid(),
            "url": self.url,
            "health": "" if self._probes is None else url_of(self._probes.listener),
            "uptime_s": round(time.monotonic() - self._started, 1),
            "stopping": self.is_stopping(),
            "supervisor_rss_bytes": resident_bytes(os.getpid()),
            "front_process": self._front.report(),
            "front": front,
            "hosts": [slot.report() for slot in self._hosts.values()],
        }
        self._send(peer, incarnation, Status(report=report), call)


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


def resident_bytes(pid: int) -> int:
    """Resident memory of a local process, 0 when it is gone or not ours to see. From /proc, in bytes."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


# The command line


def _serve(arguments: argparse.Namespace) -> int:
    console = Console()
    try:
        configuration = _configured(arguments)
    except ConfigurationError as error:
        print(f"framehost: {error}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    if not arguments.insecure and (problem := config.exposed(configuration)) is not None:
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
        natives = [model.name for model in configuration.models if model.native is not None]

        async def serve() -> ServeExit:
            return await Supervisor(
                configuration,
                main_door.directory,
                main_door.listener,
                console,
                natives=dict(zip(natives, others, strict=True)),
                health=health,
            ).run()

        try:
            return asyncio.run(serve())
        except DirectoryError as error:  # from publish: the directory went away or the disk is full
            print(f"framehost: {error}", file=sys.stderr)
            return ServeExit.CONFIGURATION


def _door(endpoint: config.Endpoint) -> Door | ServeExit:
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
    import dataclasses

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
    from frontend.cli import check, decide, fetch, status

    top = argparse.ArgumentParser(prog="framehost", description="A server for decision models.")
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
    status.add_to(commands)
    check.add_to(commands, inspection.examine)
    fetch.add_to(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the `framehost` command; returns its exit status."""
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    return int(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
