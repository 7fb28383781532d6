"""How a host opens its sockets. Every option is set on purpose; none is left to its default."""

from __future__ import annotations

from collections.abc import Sequence

import zmq
import zmq.backend

from protocol import limits
from protocol.curve import Security
from protocol.tensors import Buffer

LINGER_MS = 500
"""How long close() lets the last answers leave. The default is for ever, which turns a stop into a hang."""


def open_router(
    context: zmq.Context[zmq.Socket[bytes]], address: str, security: Security | None = None
) -> zmq.Socket[bytes]:
    """A bound ROUTER that never blocks and never drops in silence.

    MANDATORY: a message to a peer that is gone raises instead of vanishing. Raises `zmq.ZMQError` when the
    address cannot be bound; ipc addresses are fresh per incarnation, because a second bind on a live path
    succeeds and makes the first one deaf (measured).
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, limits.SOCKET_HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, limits.SOCKET_HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.SOCKET_MAX_FRAME_BYTES)
    secure(socket, security)
    socket.bind(address)
    return socket


def address_of(socket: zmq.Socket[bytes]) -> str:
    """Where `socket` is bound, with the port that the system chose."""
    return str(socket.getsockopt_string(zmq.LAST_ENDPOINT)).rstrip("\0")


def secure(socket: zmq.Socket[bytes], security: Security | None) -> None:
    """Set the options of `security` on a socket that is neither bound nor connected yet."""
    for name, value in () if security is None else security.options():
        socket.setsockopt(getattr(zmq, name), value)


# The library's own calls, without the wrappers around them that serve subclasses and other calling styles, and
# plain integers instead of flag enums: together a third of the price of a message (measured).
_send, _recv = zmq.backend.Socket.send, zmq.backend.Socket.recv
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)


def send(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """One message, now; raises `zmq.ZMQError` when its receiver is gone or does not read. Never blocks."""
    for frame in frames[:-1]:
        _send(socket, frame, _MORE)
    _send(socket, frames[-1], _NOBLOCK)


def receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    """The frames of one message, the peer's identity first; raises `zmq.Again` when there is none. Never blocks."""
    frame = _recv(socket, _NOBLOCK, False)
    frames = [frame.bytes]
    while frame.more:
        frame = _recv(socket, _NOBLOCK, False)
        frames.append(frame.bytes)
    return frames
