"""A remote host's lane to its server: asks for a place, holds on to it, and notices when it is alone."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Final

import zmq

from executor_host.errors import DialInFailed
from protocol.curve import KeyPair, Security
from protocol.errors import ProtocolError
from protocol.frames import decode, encode
from protocol.limits import MAX_TEXT_CHARS
from protocol.messages import NOBODY, Assigned, DialIn, Lane, Leaving, Listening, Message, Refused
from protocol.transport import monitor
from protocol.transport.calls import receive, send
from protocol.transport.sockets import LAST_ANSWERS_MS, dealer
from protocol.transport.waiting import Waiting

LEASE_UNTIL_ASSIGNED_S: Final = 10.0
"""Until the server has said its own lease, a silent connection is given up after this."""

_STRANGER: Final = "something is there and does not speak our protocol. Is it the port for hosts?"

_CAUSES: Final[dict[int, str]] = {
    0: "nothing answers there. Is the address right, does the server have a table [hosts], does a firewall "
    "let this machine through?",
    monitor.CONNECTED: _STRANGER,
    monitor.OTHER_PROTOCOL: _STRANGER,
    monitor.BROKEN_OFF: "the handshake breaks off. Is --server-key the public key of that server?",
    monitor.NOT_ALLOWED: "the server does not let this host's key in. Is its NAME.key in the server's "
    "folder `allow`, and was it there when the server started?",
    monitor.LET_IN: "the server let this host in and does not answer. Is it of the same version?",
}
"""What to look at, by how far the connection came."""


class ServerLane:
    """The connection of one remote host to its server, by one thread at a time: the main one, from `watch` to `leave`
    one of its own."""

    def __init__(self, address: str, own: KeyPair, server: bytes) -> None:
        """Connect to `address`, a ZeroMQ address, whose owner must hold the secret key of `server`."""
        # A context of its own: the host's is destroyed before the last message here.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._address = address
        self._own = own
        self._holder: threading.Thread | None = None
        self._goodbye = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._socket = dealer(
            self._context,
            identity=None,
            security=Security(own, LEASE_UNTIL_ASSIGNED_S, server=server),
            linger_ms=LAST_ANSWERS_MS,
        )
        self._monitor = monitor.of(self._socket)
        self._socket.connect(address)

    def ask(self, model: str, family: str, *, timeout_s: float) -> Assigned:
        """The place the server has for this host. Raises `DialInFailed` when it has none, or after `timeout_s`."""
        self._send(
            DialIn(
                model=model,
                family=family,
                version=metadata.version("framehost"),
                machine=platform.node()[:200] or "unknown",
                pid=os.getpid(),
                public_key=self._own.public.decode(),
            )
        )
        waiting = Waiting(self._socket, self._monitor)
        came_to = 0
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            for ready in waiting.ready(left):
                if ready is self._socket:
                    return self._verdict()
                event = self._event()
                # A next try that has only begun says nothing more than what the last one came to.
                if event != monitor.LOST and not (event == monitor.CONNECTED and came_to):
                    came_to = event
            if came_to == monitor.NOT_ALLOWED:
                break  # it is not tried again
        raise DialInFailed(f"cannot dial in at {self._address}: {_CAUSES[came_to]}")

    def _verdict(self) -> Assigned:
        try:
            message = decode(receive(self._socket), lane=Lane.ARRIVAL).message
        except ProtocolError as error:
            raise DialInFailed(f"the server at {self._address} speaks another protocol: {error}") from None
        if isinstance(message, Refused):
            raise DialInFailed(
                f"the server at {self._address} sends this host away ({message.code}): {message.message}"
            )
        if not isinstance(message, Assigned):
            raise DialInFailed(f"the server at {self._address} answers with {type(message).__name__}")
        return message

    def listening(self, control: str) -> None:
        """Say where the control lane is."""
        self._send(Listening(control=control))

    def watch(self, lost: Callable[[str], None]) -> None:
        """From here on a thread of its own holds the connection. It calls `lost(why)` once, when the connection is
        gone or the server has given this host up, unless `leave` comes first."""
        self._holder = threading.Thread(target=self._hold, args=(lost,), name="lease", daemon=True)
        self._holder.start()

    def _hold(self, lost: Callable[[str], None]) -> None:
        waiting = Waiting(self._monitor, self._socket, self._goodbye)
        why = ""
        while True:
            for ready in waiting.ready():
                if ready == self._goodbye:
                    return
                if ready is self._monitor and self._event() == monitor.LOST:
                    now = "the connection to the server is gone"
                elif ready is self._socket and self._given_up():
                    now = "the server has given this host up"
                else:
                    continue
                if not why:
                    why = now
                    lost(why)

    def _given_up(self) -> bool:
        try:
            return isinstance(decode(receive(self._socket), lane=Lane.ARRIVAL).message, Refused)
        except ProtocolError:
            return False

    def _event(self) -> int:
        return int(monitor.event(receive(self._monitor)))

    def leave(self, status: int, words: str) -> None:
        """Say goodbye, for which there is half a second, and close. Once, and nothing is possible after it."""
        if self._holder is not None:
            os.eventfd_write(self._goodbye, 1)
            self._holder.join()
        self._send(Leaving(status=int(status), words=words[-MAX_TEXT_CHARS:]))
        monitor.stop(self._socket)
        self._monitor.close()
        self._socket.close()
        self._context.term()
        os.close(self._goodbye)

    def _send(self, message: Message) -> None:
        try:
            send(self._socket, encode(message, incarnation=NOBODY))
        except zmq.ZMQError:
            # No server is there, and `lost` has been or will be called.
            pass
