"""The client connections of all listeners, kept below the number of files that this process may have open.

An accept without a free descriptor fails inside the loop, which closes the connection without a word and logs nothing.
So a part of the descriptors is kept free: a newcomer that would begin to use them takes the place of the connection
that has been idle for longest, and is refused where all are busy.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from frontend import limits

log = logging.getLogger("framehost.clients")

LOOK_AGAIN_S: Final = 0.02
"""At a stop, how often it is looked whether the last answers have left."""


def open_files() -> int:
    """How many descriptors this process may have; an operator may change it at any time (`prlimit`)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files() -> None:
    """Allow as many descriptors as the hard limit does. The soft one is low for programs that use `select`; none here
    does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        log.warning("the limit of open files stays at %d: %s", open_files(), error)


def kept_free(files: int) -> int:
    """Of `files` descriptors, those that clients do not get. The loop accepts one connection in a turn and hears of it
    in the same one, so that it is for everything else."""
    return min(limits.FILES_KEPT_FREE, files // 2)


class Client(Protocol):
    """One connection."""

    def is_idle(self) -> bool:
        """Whether nothing of a request is here, or only an answer that is not being read."""
        ...

    def unwritten(self) -> int:
        """How many bytes of answers it has not read."""
        ...

    def answered(self) -> int:
        """How many answers were written to it."""
        ...

    def leave(self) -> None:
        """Close it; what it has not read is dropped."""
        ...


class Unread(NamedTuple):
    """Answers that a client has not read yet."""

    answered: int
    """How many it had been written when they were seen first."""
    left: int
    """Bytes that were left when its present time began."""
    due: float
    """When that time is over."""


class Clients:
    """The open connections, the longest idle first. Belongs to the event loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, files: Callable[[], int] = open_files) -> None:
        self.ended_idle = 0
        """Idle connections that made room for others."""
        self.refused = 0
        """Newcomers that found no room."""
        self.aborted = 0
        """Connections that did not read their answers in time."""
        self._unread: dict[Client, Unread] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._clock, self._files = clock, files
        self._by_activity: dict[Client, float] = {}
        """When each was active last."""
        self._said_at = -math.inf

    def __len__(self) -> int:
        return len(self._by_activity)

    def admit(self, client: Client, descriptor: int) -> bool:
        """Count a newcomer; False when there is no room for it, and it has to be refused.

        The kernel gives the lowest free descriptor, so the newcomer's own says how many are used at least. Those that
        were just ended free theirs a little later, and are not counted here any more.
        """
        files = self._files()
        if max(descriptor, len(self)) >= files - kept_free(files):
            longest = self._longest_idle()
            if longest is None:
                self.refused += 1
                self._say(files, "none of them is idle, and newcomers get 503")
                return False
            self.ended_idle += 1
            self._say(files, "those that have been idle for longest are ended")
            del self._by_activity[longest]
            longest.leave()
        self._by_activity[client] = self._clock()
        return True

    def _longest_idle(self) -> Client | None:
        since = self._clock() - limits.CLIENT_IDLE_S
        for client, active_at in self._by_activity.items():
            if active_at > since:
                return None
            if client.is_idle():
                return client
        return None

    def active(self, client: Client) -> None:
        """Something has come from it, or was answered."""
        if client in self._by_activity:
            del self._by_activity[client]
            self._by_activity[client] = self._clock()

    def gone(self, client: Client) -> None:
        """It is closed."""
        self._by_activity.pop(client, None)
        self._unread.pop(client, None)

    # Answers that no client reads

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look for them from now on, every `limits.SWEEP_S` seconds."""
        self.sweep()
        self._timer = loop.call_later(limits.SWEEP_S, self.watch, loop)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def sweep(self) -> None:
        """Abort the connections whose answers were not read in time. One that reads, and asks on, begins anew."""
        now = self._clock()
        for client in list(self._by_activity):
            left = client.unwritten()
            if not left:
                self._unread.pop(client, None)
                continue
            seen = self._unread.get(client)
            if seen is not None and seen.answered == client.answered() and now < seen.due:
                continue
            enough = limits.WRITE_S * limits.WRITE_BYTES_PER_S
            if seen is None or seen.answered != client.answered() or seen.left - left >= enough:
                self._unread[client] = Unread(client.answered(), left, now + limits.WRITE_S)
            else:
                self.aborted += 1
                log.info("a client has not read its answer in time: %d bytes are dropped", left)
                del self._by_activity[client], self._unread[client]
                client.leave()

    def unwritten(self) -> int:
        """How many connections have answers that are not read yet."""
        return sum(client.unwritten() > 0 for client in self._by_activity)

    async def written(self) -> None:
        """Wait until every answer has left, also one that is about to be written. Cancelling it changes nothing."""
        if not all(client.is_idle() for client in self._by_activity):
            await asyncio.sleep(LOOK_AGAIN_S)
        while self.unwritten():  # noqa: ASYNC110 - a transport does not say that it is empty
            await asyncio.sleep(LOOK_AGAIN_S)

    def report(self) -> dict[str, Any]:
        """For metrics and `framehost status`. `limit`: about where room is made for newcomers; the process has a few
        dozen other files."""
        files = self._files()
        return {
            "open": len(self),
            "limit": files - kept_free(files),
            "files": files,
            "ended_idle": self.ended_idle,
            "aborted": self.aborted,
            "refused": self.refused,
        }

    def _say(self, files: int, what: str) -> None:
        now = self._clock()
        if now - self._said_at >= limits.FILES_WARNING_S:
            self._said_at = now
            log.warning(
                "%d client connections are open, and the front may have %d files open: %s. More are possible with a "
                "higher hard limit (LimitNOFILE= of the unit, ulimit -Hn)",
                len(self), files, what,
            )  # fmt: skip
