"""What becomes of a socket's connections: the events of the library that we look at, and how they are read."""

from __future__ import annotations

from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

Event = zmq.Event

CONNECTED: Final = zmq.EVENT_CONNECTED
"""The other side took the connection; whether it lets us in is not known yet."""

LET_IN: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
LOST: Final = zmq.EVENT_DISCONNECTED
"""Follows every failed handshake, too."""

NOT_ALLOWED: Final = zmq.EVENT_HANDSHAKE_FAILED_AUTH
OTHER_PROTOCOL: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
BROKEN_OFF: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL

WATCHED: Final = CONNECTED | LET_IN | LOST | NOT_ALLOWED | OTHER_PROTOCOL | BROKEN_OFF


def of(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """A socket whose messages are the events of `socket`'s connections; `stop` ends it."""
    made: zmq.Socket[bytes] = socket.get_monitor_socket(WATCHED)
    return made


def event(frames: list[bytes]) -> Event:
    """What one message of such a socket says."""
    return zmq.Event(parse_monitor_message(frames)["event"])


def stop(socket: zmq.Socket[bytes]) -> None:
    """Tell no more of `socket`'s connections. Before either of the two is closed."""
    socket.disable_monitor()
