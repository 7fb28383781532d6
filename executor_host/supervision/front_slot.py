"""The front's slot in the world: makes the processes that its life orders, and waits for their ends.

A new front gets the same sockets and finds the hosts as they are. What it says is heard on the management lane
(`management.py`); what is decided about it is in `front_life.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from executor_host.launch import stacks
from executor_host.launch.base import LAST_WORDS_CHARS, ProcessExit
from executor_host.launch.local import LocalProcess, start_process
from executor_host.launch.memory import resident_bytes
from executor_host.supervision.console import Console
from executor_host.supervision.front_lane import FrontLane
from executor_host.supervision.front_life import FrontLife
from executor_host.supervision.life import ServerLife
from protocol.exits import HostExit, ServeExit
from protocol.messages import Status


@dataclass(frozen=True, slots=True)
class FrontCommand:
    """How a frontend is started: its arguments, and the listening sockets it inherits."""

    arguments: list[str]
    descriptors: list[int]


class Starter(Protocol):
    """Makes a process, as `start_process` does."""

    async def __call__(
        self, module: str, arguments: list[str], *, say: Callable[[str], None], descriptors: list[int]
    ) -> LocalProcess: ...


class FrontSlot:
    """At most one front at a time."""

    def __init__(
        self,
        life: ServerLife,
        lane: FrontLane,
        console: Console,
        command: Callable[[], FrontCommand],
        *,
        restarts: int,
        limit_s: float | None,
        clock: Callable[[], float],
        mint: Callable[[], str],
        lost: Callable[[], None],
        died: Callable[[str, str], None],
        starter: Starter = start_process,
    ) -> None:
        """`command()`: how the next one is started. `lost()`: a front has ended, and its requests with it.
        `died(who, how)`: a death to remember. The others as for `FrontLife`."""
        self.life = FrontLife(self, restarts=restarts, limit_s=limit_s, console=console, clock=clock, mint=mint)
        self.running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when no front is there, and none will be."""
        self.served = asyncio.Event()
        """Set while a front listens on the ports."""
        self._server = life
        self._lane = lane
        self._console = console
        self._command = command
        self._lost, self._died = lost, died
        self._starter = starter
        self._loop = asyncio.get_running_loop()
        self._handle: LocalProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self) -> None:
        """See from outside how the front is."""
        if self._handle is not None:
            self.life.look(resident_bytes(self._handle.pid))

    def report(self) -> dict[str, Any]:
        """The supervisor's knowledge of the front."""
        pid = 0 if self._handle is None else self._handle.pid
        return {"pid": pid, "rss_bytes": resident_bytes(pid), **self.life.report()}

    # Effects of its life

    def launch(self, epoch: str) -> None:
        self._spawn(self._live(epoch))

    def ask(self) -> None:
        self._lane.tell_front(Status())

    def take_stacks(self) -> None:
        if self._handle is not None:
            self._spawn(self._dump(self._handle, self.life.epoch))

    def kill(self) -> None:
        if self._handle is not None:
            self._handle.kill()

    def wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._waited)

    def wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def listening(self) -> None:
        self._server.serving()
        self.served.set()

    def died(self, how: str) -> None:
        self._died("front", how)

    def changed(self) -> None:
        self._lane.front = self.life.epoch if self.life.connected else None
        if not self.life.connected:
            self.served.clear()
            self._lost()

    def give_up(self, why: str) -> None:
        self._server.fail(ServeExit.FRONT_FAILED, why)

    def rests(self) -> None:
        self.running.set_result(None)

    # One front

    async def _live(self, epoch: str) -> None:
        """One front from its start to its end."""
        try:
            command = self._command()
            handle = self._handle = await self._starter(
                "frontend.main",
                ["--epoch", epoch, *command.arguments],
                say=lambda line: self._console.say("front", line),
                descriptors=command.descriptors,
            )
        except OSError as error:
            self.life.ended(ProcessExit(HostExit.LOAD_FAILED, None), f"cannot start a front: {error}")
            return
        self.life.launched()
        ended = await handle.wait()
        self._handle = None  # what is gone is not looked at
        self.life.ended(ended, handle.last_words()[-LAST_WORDS_CHARS:])

    async def _dump(self, handle: LocalProcess, epoch: str) -> None:
        self.life.stacks_taken(epoch, await stacks.dump(handle))

    def _waited(self) -> None:
        self._timer = None
        self.life.waited()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work, name="front slot")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        self._server.watch(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.running.done():
            self.running.set_result(None)  # a bug of ours: the server ends, and must not wait for this
