"""What the host's two threads know of each other: one writer per field, plain values, no lock held over work.

The main thread owns the executor and the data socket, the control thread its own socket. Each is woken by
an eventfd that the other writes, because a ZeroMQ socket must never be touched by two threads.
"""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from executor_host.host.ages import Ages
from protocol.messages import Message
from protocol.states import HOST, HostEvent, HostState, Machine

Key = tuple[str, int]
"""A unit: the epoch of its front, and its call."""

MAX_CANCELLED: Final = 4096
"""Cancels that are remembered for units that have not come. A front cancels what it has sent, so more of them than it
can have on the way are forgotten, the oldest first."""


class SharedState:
    """The shared facts of one host process."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.started = time.monotonic()
        self.machine = Machine(HOST, HostState.STARTING)
        # Written by the main thread.
        self.busy: Sequence[Key] = ()
        """The units inside the executor: one, those of one pass, or none."""
        self.answered: dict[str, int] = {}
        """By the epoch of each front, its last unit that has ended. A front's units are executed in their order."""
        self.busy_since = 0.0
        self.executed = 0
        self.failed = 0
        self.stale = 0
        """Frames for another incarnation, or that were no messages: refused and counted."""
        self.undeliverable = 0
        """Answers whose front is gone."""
        self.device_bytes: int | None = None
        """Memory that this process holds on its devices, as last looked at; None without one."""
        self.held: dict[str, list[int]] = {}
        """By conversation, the tokens and the bytes that are pinned for it: WELCOME's `held`."""
        # Written by the control thread.
        self.cancelled: set[Key] = set()
        """Units that no caller waits for: an executor may look and stop early, and what has not begun never does. The
        control thread adds to it, the main thread takes out what has ended."""
        self._cancels: deque[Key] = deque()
        self.ages = Ages()
        self.idle_wanted = False
        """A new front waits to hear that the unit of its predecessor has ended."""
        self.drain_wanted = False
        self._outbox: deque[Message] = deque()
        self.main_wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.control_wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def advance(self, event: HostEvent) -> None:
        """Move the host's own state. Main thread only."""
        self.machine.advance(event)

    def begin(self, keys: Sequence[Key]) -> None:
        """These units are in the executor's hands from now. Main thread only."""
        self.busy_since = time.monotonic()
        self.busy = keys

    def end(self, keys: Sequence[Key]) -> None:
        """They are not any more. Main thread only."""
        epoch, call = keys[-1]
        # Noted first: a cancel that does not find them in `busy` any more finds that they have ended.
        self.answered[epoch] = call
        self.busy = ()
        for key in keys:
            self.cancelled.discard(key)

    def cancel(self, key: Key) -> str:
        """No caller waits for this unit any more; says what it is doing, as CANCELLED has it. Control thread only."""
        # Added first: the main thread looks there when it begins a unit, and `busy` is set before it looks.
        self.cancelled.add(key)
        if key in self.busy:
            return "running"
        if key[1] <= self.answered.get(key[0], 0):
            self.cancelled.discard(key)
            return "not_running"
        self._cancels.append(key)
        if len(self._cancels) > MAX_CANCELLED:
            self.cancelled.discard(self._cancels.popleft())
        return "not_begun"

    def announce(self, message: Message) -> None:
        """Have the control thread send `message` to everyone who said HELLO. Never blocks."""
        self._outbox.append(message)
        os.eventfd_write(self.control_wake, 1)

    def take_announcements(self) -> list[Message]:
        """Everything announced since the last call. Control thread only."""
        taken = []
        while self._outbox:
            taken.append(self._outbox.popleft())
        return taken

    def request_drain(self) -> None:
        """Ask the main thread to end after the running unit. Safe from a signal handler, idempotent."""
        self.drain_wanted = True
        os.eventfd_write(self.main_wake, 1)

    def report(self) -> dict[str, object]:
        """The answer to STATUS."""
        busy = self.busy
        return {
            "state": self.machine.state.value,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self.started, 3),
            "busy": bool(busy),
            "busy_s": round(time.monotonic() - self.busy_since, 3) if busy else 0.0,
            "executed": self.executed,
            "failed": self.failed,
            "stale": self.stale,
            "undeliverable": self.undeliverable,
            "device_bytes": self.device_bytes,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
