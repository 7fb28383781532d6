"""What the host's two threads know of each other: one writer per field, plain values, no lock held over work.

The main thread owns the executor and the data socket, the control thread its own socket. Each is woken by
an eventfd that the other writes, because a ZeroMQ socket must never be touched by two threads.
"""

from __future__ import annotations

import os
import resource
import time
from collections import deque

from protocol.messages import Message
from protocol.states import HOST, HostEvent, HostState, Machine


class Board:
    """The shared facts of one host process."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.started = time.monotonic()
        self.machine = Machine(HOST, HostState.STARTING)
        # Written by the main thread.
        self.busy: tuple[str, int] | None = None
        """(epoch, call) of the unit inside the executor, or None."""
        self.busy_since = 0.0
        self.executed = 0
        self.failed = 0
        self.stale = 0
        """Frames for another incarnation, or that were no messages: refused and counted."""
        self.undeliverable = 0
        """Answers whose front is gone."""
        self.device_bytes: int | None = None
        """Memory that this process holds on its devices, as last looked at; None without one."""
        # Written by the control thread.
        self.cancelled: tuple[str, int] | None = None
        """The running unit, once nobody waits for it: an executor may look and stop early."""
        self.idle_wanted = False
        """A new front waits to hear that the unit of its predecessor has ended."""
        self.drain_wanted = False
        self._outbox: deque[Message] = deque()
        self.main_wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.control_wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def advance(self, event: HostEvent) -> None:
        """Move the host's own state. Main thread only."""
        self.machine.advance(event)

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
            "busy": busy is not None,
            "busy_s": round(time.monotonic() - self.busy_since, 3) if busy else 0.0,
            "executed": self.executed,
            "failed": self.failed,
            "stale": self.stale,
            "undeliverable": self.undeliverable,
            "device_bytes": self.device_bytes,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
