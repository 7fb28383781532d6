"""What a thread without a loop waits for: sockets with a message, and eventfds that another thread sets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import zmq


class Waiting:
    """The things one thread waits for; each stays its owner's."""

    __slots__ = ("_poller",)

    def __init__(self, *things: zmq.Socket[bytes] | int) -> None:
        """Sockets, and descriptors of eventfds."""
        self._poller = zmq.Poller()
        for thing in things:
            self._poller.register(thing, zmq.POLLIN)

    def ready(self, timeout_s: float | None = None) -> Iterator[zmq.Socket[bytes] | int]:
        """Wait until something is there, or for `timeout_s`; then those that are ready. None: for ever."""
        for thing, _ in self._poller.poll(None if timeout_s is None else int(timeout_s * 1000) + 1):
            yield thing


def clear(descriptor: int) -> None:
    """Reset an eventfd; fine when it was not set."""
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        pass
