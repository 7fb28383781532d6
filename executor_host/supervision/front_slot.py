"""The frontend's place, and the processes that hold it one after the other: started, watched, started again.

    start ─▶ HELLO ─▶ DEPLOYMENT, HOST_UP ... ─▶ SERVING ─▶ (death ─▶ start ...)

A new front gets the same sockets and finds the hosts as they are. What it says is heard on the management lane
(`management.py`), which tells its place.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Protocol

from executor_host.launch import stacks
from executor_host.launch.base import LAST_WORDS_CHARS, ProcessExit
from executor_host.launch.local import LocalProcess, start_process
from executor_host.launch.memory import resident_bytes
from executor_host.supervision.console import Console
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from executor_host.supervision.watchdog import Watchdog
from protocol.exits import HostExit, ServeExit
from protocol.messages import Message, Status

FRONT_START_S = 60.0
"""What a front has at least until its HELLO, whatever the limit is afterwards: it imports its libraries until then."""


@dataclass(frozen=True, slots=True)
class FrontCommand:
    """How a frontend is started: its arguments, and the listening sockets it inherits."""

    arguments: list[str]
    descriptors: list[int]


class Owner(Protocol):
    """What the front's place needs of the supervisor."""

    console: Console
    restarts: int
    front_limit_s: float | None

    def is_stopping(self) -> bool: ...

    def mint(self) -> str: ...

    async def pause(self, seconds: float) -> None: ...

    def died(self, who: str, how: str) -> None: ...

    def fail(self, status: ServeExit, message: str) -> None: ...

    def tell_front(self, message: Message) -> None: ...

    def front_command(self) -> FrontCommand: ...

    def front_lost(self) -> None: ...


class FrontSlot:
    """At most one front at a time, and what is known of the one before."""

    def __init__(self, owner: Owner) -> None:
        self.epoch = ""
        self.connected = False
        self.policy = RestartPolicy(RestartLimits(budget=owner.restarts))
        self.last_death = ""
        self.ended: ProcessExit | None = None
        """How the last one ended."""
        self.goodbye = ""
        """What one has said of its end."""
        self.serving = asyncio.Event()
        self.has_served = False
        """Whether one has listened: the port has been open."""
        self.watchdog = Watchdog(0.0)
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
            limit_s = owner.front_limit_s
            self.watchdog = Watchdog(time.monotonic(), None if limit_s is None else max(limit_s, FRONT_START_S))
            ended, words = await self._live()
            self.connected = False
            owner.front_lost()
            self.serving.clear()
            self.ended = ended
            if owner.is_stopping():
                return
            ready_for = None if self._serving_at is None else time.monotonic() - self._serving_at
            delay = self.policy.after_death(status=ended.status, ready_for_s=ready_for)
            how = ended.describe(cause=self._cause, resident_bytes=self._resident_bytes)
            self.last_death = f"{how}\n{words}".strip()
            owner.died("front", how)
            text = f"ended: {how}; {self.policy.next_step(ended.status, delay)}"
            if delay is None:
                owner.fail(ServeExit.FRONT_FAILED, f"the frontend {text}")
                return
            owner.console.say("front", text)
            await owner.pause(delay)

    async def _live(self) -> tuple[ProcessExit, str]:
        """One front from its start to its end, and its last words."""
        owner = self._owner
        try:
            command = owner.front_command()
            self._handle = await start_process(
                "frontend.main",
                ["--epoch", self.epoch, *command.arguments],
                say=lambda line: owner.console.say("front", line),
                descriptors=command.descriptors,
            )
        except OSError as error:
            return ProcessExit(HostExit.LOAD_FAILED, None), f"cannot start a front: {error}"
        if owner.is_stopping():
            self._handle.kill()  # the stop came while there was nothing to stop yet
        handle = self._handle
        ended = await handle.wait()
        self._handle = None  # nobody looks at what is gone
        return ended, handle.last_words()[-LAST_WORDS_CHARS:]

    def look(self) -> None:
        """See from outside how the front is, ask it something, and end one whose event loop stands still."""
        if self._handle is None or self._cause:
            return
        now = time.monotonic()
        self._resident_bytes = resident_bytes(self._handle.pid) or self._resident_bytes
        if self.watchdog.stalled(now):
            self._cause = (
                f"no answer for {self.watchdog.silent_s(now):.1f} s, front_limit is {self.watchdog.limit_s:g} s"
            )
            self._owner.console.say("front", f"{self._cause}; it is killed after a look at its stacks")
            self._ending = asyncio.get_running_loop().create_task(self._end(self._handle))
        elif self.connected and self.watchdog.due(now):
            self._owner.tell_front(Status())

    async def _end(self, handle: LocalProcess) -> None:
        missing = await stacks.dump(handle)
        if handle is self._handle:
            self._cause += f"; {missing}" if missing else ""
            handle.kill()

    @property
    def answers(self) -> bool:
        """Whether it serves and its loop turns, as far as is known."""
        return self.serving.is_set() and self.watchdog.answers(time.monotonic())

    def greeted(self) -> None:
        """It has said HELLO: from here on it is asked, and has the configured time to answer."""
        self.connected = True
        self.watchdog = Watchdog(time.monotonic(), self._owner.front_limit_s)
        self.watchdog.answered(time.monotonic())

    def is_serving(self, address: str) -> None:
        """The front listens."""
        self._serving_at = time.monotonic()
        self.has_served = True
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
            "silent_s": round(self.watchdog.silent_s(time.monotonic()), 1),
            "restarts": self.policy.restarts,
            "last_death": self.last_death,
        }
