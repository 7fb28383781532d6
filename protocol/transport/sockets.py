"""How sockets are opened. Every option is set on purpose; none is left to its default."""

from __future__ import annotations

from typing import Final

import zmq

from protocol import limits
from protocol.curve import Security

LINGER_MS: Final = 200
"""How long a closed socket may still send its last words. The default is for ever, which turns a stop into a hang."""

LAST_ANSWERS_MS: Final = 500
"""The same for a host, whose last words are a client's answer."""

RECONNECT_MS: Final = 5
"""First retry of a dial: the other side binds within milliseconds of being told to."""

RECONNECT_MAX_MS: Final = 100


def router(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    security: Security | None = None,
    *,
    linger_ms: int = LINGER_MS,
) -> zmq.Socket[bytes]:
    """A ROUTER bound at `address`; the first frame of what it receives and sends is the peer's identity.

    MANDATORY: a message to a peer that is gone raises instead of vanishing. HANDOVER: a peer whose connection broke
    has its identity back with its next one, also when this side has not noticed the break. Raises `zmq.ZMQError` when
    the address cannot be bound; ipc addresses are fresh per incarnation, because a second bind on a live path
    succeeds and makes the first one deaf (measured).
    """
    socket = context.socket(zmq.ROUTER)
    _configure(socket, security, linger_ms)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    socket.bind(address)
    return socket


def dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    *,
    identity: str | None,
    security: Security | None = None,
    linger_ms: int = LINGER_MS,
) -> zmq.Socket[bytes]:
    """A DEALER that is not connected yet, so that its connections can be watched from the first one on.

    `identity` must never be reused: it contains the dialler's epoch. None: the library makes one up.
    """
    socket = context.socket(zmq.DEALER)
    _configure(socket, security, linger_ms)
    if identity is not None:
        socket.setsockopt(zmq.IDENTITY, identity.encode("ascii"))
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    return socket


def address_of(socket: zmq.Socket[bytes]) -> str:
    """Where `socket` is bound or connected, with the port that the system chose."""
    return str(socket.getsockopt_string(zmq.LAST_ENDPOINT)).rstrip("\0")


def _configure(socket: zmq.Socket[bytes], security: Security | None, linger_ms: int) -> None:
    socket.setsockopt(zmq.LINGER, linger_ms)
    socket.setsockopt(zmq.SNDHWM, limits.SOCKET_HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, limits.SOCKET_HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.SOCKET_MAX_FRAME_BYTES)
    for name, value in () if security is None else security.options():
        socket.setsockopt(getattr(zmq, name), value)
