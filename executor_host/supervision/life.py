"""The life of the whole server: where it is, why it ends, and who has to be told.

    starting ─▶ open (every resident model was ready) ─▶ serving (a front has listened) ─▶ stopping ─▶ stopped

A failure that the server cannot go on with is a stop with a status. Only the first one counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from protocol.exits import ServeExit
from protocol.states import SERVER, Machine, ServerEvent, ServerState


class ServerLife:
    """One server's state. Belongs to the supervisor's loop."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        """`say(source, text)`: a line for people."""
        self.failure: ServeExit | None = None
        """Why it ends, when it was not asked to."""
        self.has_served = False
        """Whether a front has ever listened: the ports have been open."""
        self._say = say
        self._started = time.monotonic()
        self._machine = Machine(SERVER, ServerState.STARTING)
        self._stop = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether every resident model has been ready: the ports may be listened on."""
        return self._machine.state in (ServerState.OPEN, ServerState.SERVING)

    @property
    def stopping(self) -> bool:
        """Whether the end has begun: nothing is started any more."""
        return self._machine.state in (ServerState.STOPPING, ServerState.STOPPED)

    @property
    def stopped(self) -> bool:
        """Whether the last line has been said."""
        return self._machine.state is ServerState.STOPPED

    @property
    def uptime_s(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started

    def warm(self) -> None:
        """Every resident model has been ready."""
        self._machine.advance(ServerEvent.WARM)

    def serving(self) -> None:
        """A front listens on the ports, the first or another one."""
        if self._machine.allows(ServerEvent.SERVE):
            self._machine.advance(ServerEvent.SERVE)
            self.has_served = True

    def stop(self) -> None:
        """Begin the end. Again: nothing."""
        if not self.stopping:
            self._machine.advance(ServerEvent.STOP)
            self._stop.set()

    def fail(self, status: ServeExit, message: str) -> None:
        """Stop the server because it cannot go on."""
        first = self.failure is None
        if first:
            self.failure = status
        self.stop()
        if first:
            self._say("framehost", message)

    def ended(self) -> None:
        """The last line is about to be said."""
        self._machine.advance(ServerEvent.END)

    async def asked_to_stop(self) -> None:
        """Until the end begins."""
        await self._stop.wait()

    def watch(self, task: asyncio.Task[Any]) -> None:
        """A bug in a task of ours must end the server loudly, never leave it half alive."""
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a task failed", "exception": error, "task": task})
            self.fail(ServeExit.FAILED, f"internal error: {error!r}")

    def __repr__(self) -> str:
        return f"<ServerLife {self._machine.state.value} failure={self.failure}>"
