"""One replica's slot in the world: makes the processes that its life orders, hears them, and waits for their ends.

What is decided is in `host_life.py`; here are the tasks, the sockets and the files.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import zmq

from executor_host.launch import stacks
from executor_host.launch.aside import aside
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
from executor_host.supervision.host_life import HostLife
from executor_host.supervision.incarnation import Launched
from executor_host.supervision.life import ServerLife
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from protocol import addresses
from protocol.errors import ProtocolError
from protocol.exits import HostExit
from protocol.frames import decode, encode
from protocol.messages import Hello, Lane, Message, Ready
from protocol.models import DeploymentSpec

REMOVE_LIMIT_S = 10.0
"""How long the removal of an incarnation's directory may take. It has two sockets in it."""

Receive = Callable[[list[bytes]], None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every slot of a server works with."""

    life: ServerLife
    console: Console
    directory: RuntimeDirectory
    epoch: str
    """Of this supervisor."""
    restarts: int
    launcher_of: Callable[[DeploymentSpec], HostLauncher]
    dial: Callable[[str, Receive, ProcessHandle], Connection]
    """Opens a control lane to a process. Raises `zmq.ZMQError`."""
    tell_front: Callable[[Message], None]
    mint: Callable[[], str]
    """A name that no incarnation has had, also not of an earlier supervisor."""
    clock: Callable[[], float]
    """In seconds, standing still between looks."""


class Listener(Protocol):
    """Who wants to know of a slot."""

    def host_ready(self, slot: HostSlot) -> None:
        """A host is warm, and the front has accepted it."""

    def host_warm(self, slot: HostSlot) -> None:
        """A spare is ready."""

    def host_died(self, slot: HostSlot, how: str) -> None:
        """A host ended without being asked to."""

    def host_changed(self, slot: HostSlot) -> None:
        """A host ended, and what follows is decided."""


class HostSlot:
    """One replica's slot: at most one process at a time."""

    def __init__(self, around: Surroundings, spec: DeploymentSpec, replica: int | None, listener: Listener) -> None:
        # A remote host is not started by us: every next one that dials in is welcome, and is counted.
        limits = RestartLimits(budget=sys.maxsize if spec.remote else around.restarts, endless=True)
        self.life = HostLife(
            spec,
            replica,
            self,
            RestartPolicy(limits),
            console=around.console,
            clock=around.clock,
            mint=around.mint,
        )
        self._around = around
        self._spec = spec
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.end: asyncio.Future[None] | None = None
        """Done when nothing runs here, and nothing will by itself; None: nothing ever has."""
        self._launching: asyncio.Future[ProcessHandle] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._directory = Path()
        """Of the incarnation's sockets."""
        self._handle: ProcessHandle | None = None
        self._control: Connection | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, *, trial: bool = False) -> None:
        """As `HostLife.start`."""
        self.end = self._loop.create_future()
        self.life.start(trial=trial)

    @property
    def running(self) -> bool:
        """Whether a process is here, or will be by itself."""
        return self.end is not None and not self.end.done()

    def look(self) -> None:
        """See from outside how the process is."""
        handle = self._handle
        if handle is not None:
            self.life.look(resident_bytes(handle.pid), reachable=socket_is_there(self._control_address(handle)))

    def still_reachable(self) -> bool:
        """Whether another front could dial the ready host that is here; one that it could not is ended."""
        handle, up = self._handle, self.life.up
        if handle is None or up is None:
            return False
        if all(map(socket_is_there, (self._control_address(handle), up.data))):
            return True
        self.life.unreachable()
        return False

    def report(self) -> dict[str, Any]:
        """This slot's part of `framehost status`."""
        threads = None if self._handle is None else self._handle.threads
        return {**self.life.report(), "rss_bytes": resident_bytes(self.life.pid), "threads": threads}

    # Effects of its life

    def launch(self, incarnation: str) -> None:
        self._spawn(self._live(incarnation))

    def abandon(self) -> None:
        if self._launching is not None:
            self._launching.cancel()

    def tell(self, message: Message) -> None:
        if self._control is not None:
            try:
                self._control.send(encode(message, incarnation=self.life.current.name))
            except zmq.ZMQError as error:
                self._around.console.say(self.life.source, f"cannot be told {type(message).__name__}: {error}")

    def terminate(self) -> None:
        if self._handle is not None:
            self._handle.send_signal(signal.SIGTERM)

    def take_stacks(self) -> None:
        if self._handle is not None:
            self._spawn(self._dump(self._handle, self.life.current.name))

    def kill(self) -> None:
        if self._handle is not None:
            self._handle.kill()

    def wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._waited)

    def wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tell_front(self, message: Message) -> None:
        self._around.tell_front(message)

    def ready(self) -> None:
        self._listener.host_ready(self)

    def warm(self) -> None:
        self._listener.host_warm(self)

    def died(self, how: str) -> None:
        self._listener.host_died(self, how)

    def changed(self) -> None:
        self._listener.host_changed(self)

    def rests(self) -> None:
        if self.end is not None and not self.end.done():
            self.end.set_result(None)

    # One process

    async def _live(self, incarnation: str) -> None:
        """One incarnation from its start to its end."""
        around = self._around
        try:
            directory = self._directory = around.directory.incarnation(incarnation)
            spec = HostSpec(deployment=self._spec, incarnation=incarnation, directory=str(directory))
            self._launching = asyncio.ensure_future(around.launcher_of(self._spec).start(spec))
            await asyncio.wait([self._launching])
            launching, self._launching = self._launching, None
            if launching.cancelled():
                self._spawn(self._remove(directory))
                self.life.ended(ProcessExit(HostExit.CLEAN, None))  # the stop came while we waited for a host
                return
            handle = launching.result()
        except (OSError, DirectoryError) as error:
            around.console.say(self._spec.name, f"cannot start a host: {error}")
            self.life.ended(ProcessExit(HostExit.LOAD_FAILED, None), str(error))
            return
        self._handle = handle
        try:
            self._connect(handle)
            ended = await handle.wait()
        finally:
            self._handle = None
            if self._control is not None:
                self._control.close()
                self._control = None
            self._spawn(self._remove(directory))
        self.life.ended(ended, handle.last_words()[-LAST_WORDS_CHARS:], handle.taken())

    def _connect(self, handle: ProcessHandle) -> None:
        address = self._control_address(handle)
        self.life.launched(
            Launched(
                pid=handle.pid,
                where=handle.describe(),
                control=address,
                data=next(iter(self._own_data(handle)), None),
                public_key="" if handle.security is None else (handle.security.server or b"").decode(),
            )
        )
        try:
            if not addresses.usable(address):
                raise zmq.ZMQError(zmq.EINVAL)
            self._control = self._around.dial(address, self._heard, handle)
        except zmq.ZMQError as error:
            self.life.refuse(f"it cannot be dialled at {address[:100]!r}: {error}")
            return
        self.tell(Hello(role="supervisor", epoch=self._around.epoch, pid=os.getpid()))

    def _control_address(self, handle: ProcessHandle) -> str:
        return handle.address or addresses.control(self._directory)

    def _own_data(self, handle: ProcessHandle) -> list[str]:
        """The address that its data lane has to have, where that is ours to say."""
        return [] if handle.address is not None else [addresses.data(self._directory)]

    def _can_be_dialled(self) -> bool:
        """Whether a front that comes would find the sockets of the process that is here."""
        handle = self._handle
        return handle is not None and all(
            map(socket_is_there, (self._control_address(handle), *self._own_data(handle)))
        )

    def _heard(self, frames: list[bytes]) -> None:
        try:
            message = decode(frames, lane=Lane.CONTROL, incarnation=self.life.current.name).message
        except ProtocolError as error:
            self.life.malformed(str(error))
            return
        if isinstance(message, Ready) and not self._can_be_dialled():
            self.life.unreachable()  # better now than when it serves
            return
        self.life.heard(message)

    async def _remove(self, directory: Path) -> None:
        """Nothing waits for it: what a host has left there may be much, or on a disk that hangs."""
        try:
            await aside(lambda: shutil.rmtree(directory, ignore_errors=True), limit_s=REMOVE_LIMIT_S)
        except TimeoutError:
            self._around.console.say("framehost", f"{directory} could not be removed within {REMOVE_LIMIT_S:g} s")

    async def _dump(self, handle: ProcessHandle, incarnation: str) -> None:
        self.life.stacks_taken(incarnation, await stacks.dump(handle))

    def _waited(self) -> None:
        self._timer = None
        self.life.waited()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work, name=f"host slot {self._spec.id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        self._around.life.watch(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.rests()  # a bug of ours: the server ends, and must not wait for this

    def __repr__(self) -> str:
        return f"<HostSlot {self.life!r}>"
