"""The place of one replica's host, and the processes that hold it one after the other: started, heard, buried, again.

    start ─▶ HELLO ─▶ WELCOME ─▶ PROGRESS ... READY ─▶ (death ─▶ start ...)

It decides when its next process starts (`policy`) and says so to its owner, the supervisor, who decides what that
means for the others.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import zmq

from executor_host.launch import stacks
from executor_host.launch.base import (
    LAST_WORDS_CHARS,
    Connection,
    HostLauncher,
    HostSpec,
    ProcessExit,
    ProcessHandle,
)
from executor_host.launch.memory import resident_bytes
from executor_host.supervision.console import Console
from executor_host.supervision.directory import DirectoryError, RuntimeDirectory, socket_is_there
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from executor_host.supervision.watchdog import Watchdog
from protocol import addresses
from protocol.errors import ProtocolError
from protocol.exits import HostExit
from protocol.frames import decode, encode
from protocol.limits import MAX_TEXT_CHARS
from protocol.messages import Drain, Failure, Hello, HostDown, HostUp, Lane, Message, Progress, Ready, Status, Welcome
from protocol.models import DeploymentSpec
from protocol.states import HOST, HostEvent, HostState, Machine


class Owner(Protocol):
    """What a host's place needs of the supervisor."""

    console: Console
    directory: RuntimeDirectory
    epoch: str
    restarts: int

    def is_stopping(self) -> bool: ...

    def mint(self) -> str: ...

    async def pause(self, seconds: float) -> None: ...

    def died(self, who: str, how: str) -> None: ...

    def tell_front(self, message: Message) -> None: ...

    def launcher_of(self, deployment: DeploymentSpec) -> HostLauncher: ...

    def dial(self, address: str, receive: Callable[[list[bytes]], None], process: ProcessHandle) -> Connection: ...

    def host_ready(self, slot: HostSlot) -> None: ...

    def host_ended(self, slot: HostSlot, ended: ProcessExit) -> None: ...

    def slot_done(self, task: asyncio.Task[None]) -> None: ...


class HostSlot:
    """One replica's place: at most one incarnation at a time, and what is known of the ones before."""

    def __init__(self, owner: Owner, deployment: DeploymentSpec, replica: int = 0) -> None:
        self.deployment = deployment
        self.replica = replica
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
        self.watchdog = Watchdog(0.0)
        self.resident_bytes = 0
        """Memory of the living incarnation when it was last looked at; what is left of one that is killed."""
        # A remote host is not started by us: every next one that dials in is welcome, and is counted.
        self.policy = RestartPolicy(RestartLimits(budget=sys.maxsize if deployment.remote else owner.restarts))
        self._owner = owner
        self._directory = Path()
        """Of the incarnation's sockets."""
        self._begun: asyncio.Future[ProcessHandle] | None = None
        self._handle: ProcessHandle | None = None
        self._control: Connection | None = None
        self._leaving = self._trial = False
        self._pause: asyncio.Future[None] | None = None
        self._started = 0.0
        self._ready_at: float | None = None
        self._overdue: asyncio.Task[None] | None = None
        self._cause = ""
        """Why we end the incarnation, when it is us."""

    def start(self, *, trial: bool = False) -> asyncio.Task[None]:
        """Keep a host here until `stop`, the server's own or this one's, or until the policy gives up. Done then.

        `trial`: a host that ends before the first one was ready is not followed by another.
        """
        self.failed, self._leaving, self._trial = None, False, trial
        self.policy.renew()
        return asyncio.get_running_loop().create_task(self._keep(), name=f"host slot {self.deployment.id}")

    async def _keep(self) -> None:
        owner = self._owner
        while not self._is_leaving():
            try:
                ended = await self._live()
            except (OSError, DirectoryError) as error:
                owner.console.say(self.deployment.name, f"cannot start a host: {error}")
                ended = ProcessExit(HostExit.LOAD_FAILED, None)
            delay = self._bury(ended)
            if delay is None:
                return
            self._pause = asyncio.ensure_future(owner.pause(delay))
            await asyncio.wait([self._pause])

    def _is_leaving(self) -> bool:
        return self._leaving or self._owner.is_stopping()

    async def _live(self) -> ProcessExit:
        """One incarnation from its start to its end."""
        owner = self._owner
        self.incarnation = owner.mint()
        self.machine = Machine(HOST, HostState.STARTING)
        self.progress = None
        self._ready_at = None
        self._handle = None
        self._cause, self.resident_bytes = "", 0
        directory = self._directory = owner.directory.incarnation(self.incarnation)
        spec = HostSpec(
            deployment=self.deployment,
            incarnation=self.incarnation,
            directory=str(directory),
        )
        self._begun = asyncio.ensure_future(owner.launcher_of(self.deployment).start(spec))
        await asyncio.wait([self._begun])
        if self._begun.cancelled():
            shutil.rmtree(directory, ignore_errors=True)
            return ProcessExit(HostExit.CLEAN, None)  # the stop came while we waited for a host
        self._handle = self._begun.result()
        # Not before: a launcher may wait for a host to come, and that is no part of its load.
        self._started = time.monotonic()
        self.progressed_at, self.watchdog = self._started, Watchdog(self._started)
        if self._is_leaving():
            self._handle.kill()  # the stop came while there was nothing to stop yet
        self._control = owner.dial(self._handle.address or spec.control, self._heard, self._handle)
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
        if ended.status == HostExit.LOST:
            how, words = words, ""
        ready_for = None if self._ready_at is None else time.monotonic() - self._ready_at
        delay = None
        if not self._is_leaving():
            delay = self.policy.after_death(status=ended.status, ready_for_s=ready_for)
            if self.deployment.remote:
                delay = 0.0  # nothing is started: the next one that dials in is welcome
            if self._trial:
                delay = None
            self.last_death = f"{how}\n{words}".strip()
            owner.died(self.deployment.name, how)
            if delay is None:
                self.failed = how
                if words and ended.signal is None:  # what a killed process says last are its stacks
                    self.failed += f": {words.splitlines()[-1]}"
        self.up = None
        owner.tell_front(
            HostDown(
                deployment=self.deployment.id,
                replica=self.replica,
                incarnation=self.incarnation,
                exit=None if ended.status is None else int(ended.status),
                signal=ended.signal_name,
                last_words=self.last_death[:MAX_TEXT_CHARS],
                will_restart=delay is not None,
                retry_after_s=float(self.load_s + (delay or 0.0)),
                taken=None if self._handle is None else self._handle.taken(),
            )
        )
        # The front first, then the people: a log that cannot be written must not keep a death secret.
        if not self._is_leaving():
            step = "its start is given up" if self._trial else self.policy.next_step(ended.status, delay)
            owner.console.say(self._source, f"ended: {how}; {step}")
        owner.host_ended(self, ended)
        return delay

    def _heard(self, frames: list[bytes]) -> None:
        try:
            message = decode(frames, lane=Lane.CONTROL, incarnation=self.incarnation).message
        except ProtocolError as error:
            self._owner.console.say(self._source, f"sent something that is no message: {error}")
            return
        self.watchdog.answered(time.monotonic())
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
        if self.replace_unreachable(message.address):
            return
        self.machine.advance(HostEvent.READY)
        self._ready_at = time.monotonic()
        self._trial = False
        self.load_s = self._ready_at - self._started
        assert self._handle is not None
        self.up = HostUp(
            deployment=self.deployment.id,
            replica=self.replica,
            incarnation=self.incarnation,
            control=self._handle.address or addresses.control(self._directory),
            data=message.address,
            pid=self._handle.pid,
            facts=message.facts,
            public_key=self._public_key(),
        )
        self.look()
        self._owner.console.settled(self._source)
        self._owner.console.say(self._source, f"ready in {self.load_s:.2f} s, {self._handle.describe()}")
        self._owner.tell_front(self.up)
        self.ready.set()
        self._owner.host_ready(self)

    def look(self) -> None:
        """See from outside how the incarnation is; end one that loads for longer than it may."""
        if self._handle is None or self.machine.state.settled:
            return
        self.resident_bytes = resident_bytes(self._handle.pid) or self.resident_bytes
        limit = self.deployment.load_limit_s
        if limit is not None and self._ready_at is None and time.monotonic() - self._started > limit:
            self.overdue(f"it was not ready within its load limit of {limit:g} s")
        if self.up is None and self.machine.state is not HostState.STARTING:
            self.replace_unreachable()
        if self.watchdog.due(time.monotonic()):
            self._tell(Status())

    def replace_unreachable(self, *data: str) -> bool:
        """Whether the file of its control socket or of `data` is gone, so that no front can dial this incarnation any
        more: then it is ended, and the next one takes its place. One that serves a front is not looked at until another
        front comes."""
        if self._handle is None:
            return False
        control = self._handle.address or addresses.control(self._directory)
        if all(map(socket_is_there, (control, *data))):
            return False
        self._cause = self._cause or "its sockets were removed from the runtime directory"
        self._handle.kill()
        return True

    def overdue(self, cause: str) -> None:
        """End an incarnation that takes too long, with its stacks in its last words. Only the first cause counts."""
        if self._handle is None or self.machine.state.settled or self._cause:
            return
        self._cause = cause
        self._owner.console.say(self._source, f"{cause}; it is killed after a look at its stacks")
        self._overdue = asyncio.get_running_loop().create_task(self._end(self._handle))

    async def _end(self, handle: ProcessHandle) -> None:
        missing = await stacks.dump(handle)
        if handle is self._handle:  # else it has ended by itself meanwhile, and the cause is not the next one's
            self._cause += f"; {missing}" if missing else ""
            handle.kill()

    def give_up(self, cause: str) -> None:
        """End an incarnation that is not ready. Not of a remote deployment, which no swap starts."""
        if self.up is None:
            self._cause = self._cause or cause
            self.kill()

    def stop(self, budget_s: float) -> None:
        """Ask the host to finish and go; none is started after it. One that is not ready has nothing to finish and
        is ended at once."""
        self._leaving = True
        if self._pause is not None:
            self._pause.cancel()
        if self._begun is not None and self.deployment.remote:
            self._begun.cancel()
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

    def _public_key(self) -> str:
        security = None if self._handle is None else self._handle.security
        return "" if security is None or security.server is None else security.server.decode()

    @property
    def pid(self) -> int:
        """Of the process that runs here, 0 when none does."""
        return 0 if self._handle is None or self.machine.state.settled else self._handle.pid

    def _tell(self, message: Message) -> None:
        if self._control is not None:
            try:
                self._control.send(encode(message, incarnation=self.incarnation))
            except zmq.ZMQError as error:
                self._owner.console.say(self._source, f"cannot be told {type(message).__name__}: {error}")

    @property
    def _source(self) -> str:
        return f"{self.deployment.id} {self.incarnation}"

    @property
    def state(self) -> str:
        """For people and probes: a word of the host table, or "failed" when there will be no next incarnation."""
        return "failed" if self.failed else self.machine.state.value

    def report(self) -> dict[str, Any]:
        """This slot's part of `framehost status`."""
        return {
            "model": self.deployment.name,
            "deployment": self.deployment.id,
            "replica": self.replica,
            "family": self.deployment.family,
            "state": self.state,
            "incarnation": self.incarnation,
            "pid": self.pid,
            "rss_bytes": resident_bytes(self.pid),
            "restarts": self.policy.restarts,
            "load_s": round(self.load_s, 3),
            "progress": None
            if self.progress is None
            else [self.progress.stage, self.progress.fraction, self.progress.note],
            "progress_age_s": round(time.monotonic() - self.progressed_at, 1),
            "silent_s": round(self.watchdog.silent_s(time.monotonic()), 1) if self.pid else 0.0,
            "last_death": self.last_death,
            "failed": self.failed or "",
        }
