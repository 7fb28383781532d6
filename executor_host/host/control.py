"""The control lane: a daemon thread with its own socket that answers at any time, also while loading.

It can be late by as long as one C call holds the interpreter lock; no process infers death from that.
"""

from __future__ import annotations

import os
import sys
import threading

import zmq

from executor_host.host.shared_state import SharedState
from protocol.curve import Security
from protocol.errors import ProtocolError
from protocol.frames import decode, encode
from protocol.messages import (
    Bye,
    Cancel,
    CancelAnswer,
    Drain,
    Failure,
    Hello,
    Lane,
    Message,
    Progress,
    Ready,
    Status,
    Welcome,
)
from protocol.transport.calls import receive, send
from protocol.transport.sockets import LAST_ANSWERS_MS, address_of, router
from protocol.transport.waiting import Waiting, clear

STOP_TIMEOUT_S = 1.0
"""How long a host waits for its last control messages to leave; the process ends anyway after it."""


class ControlLane:
    """Owns the control socket and the thread that serves it."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        shared_state: SharedState,
        security: Security | None = None,
    ) -> None:
        """Bind at `address`; raises `zmq.ZMQError` when that is not possible."""
        self._shared_state = shared_state
        self._peers: set[bytes] = set()
        self._last: Message | None = None
        """How far it is: the latest PROGRESS, READY, fatal FAILURE or BYE, told to a peer that says HELLO later."""
        self._stopping = False
        self.malformed = 0
        self._socket = router(context, address, security, linger_ms=LAST_ANSWERS_MS)
        self.address = address_of(self._socket)
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)

    def start(self) -> None:
        """Hand the socket over to the thread; this thread must not touch it again."""
        self._thread.start()

    def leave(self, reason: str) -> None:
        """Say that the host ends. A peer that says HELLO from now on hears it, too, until `stop`."""
        self._shared_state.announce(Bye(reason=reason))

    def stop(self) -> None:
        """Send everything announced, then close. Called once, by the main thread."""
        self._stopping = True
        os.eventfd_write(self._shared_state.control_wake, 1)
        self._thread.join(STOP_TIMEOUT_S)

    def _serve(self) -> None:
        waiting = Waiting(self._socket, self._shared_state.control_wake)
        while not self._stopping:
            for ready in waiting.ready():
                if ready == self._shared_state.control_wake:
                    clear(self._shared_state.control_wake)
                    for message in self._shared_state.take_announcements():
                        self._broadcast(message)
                else:
                    self._receive()
        for message in self._shared_state.take_announcements():
            self._broadcast(message)
        self._socket.close()

    def _receive(self) -> None:
        while True:
            try:
                peer, *frames = receive(self._socket)
            except zmq.Again:
                return
            try:
                envelope = decode(frames, lane=Lane.CONTROL, incarnation=self._shared_state.incarnation)
                self._answer(peer, envelope.call, envelope.message)
            except ProtocolError as error:
                self.malformed += 1
                print(f"control: refused a message: {error}", file=sys.stderr, flush=True)

    def _answer(self, peer: bytes, call: int, message: Message) -> None:
        shared_state = self._shared_state
        if isinstance(message, Hello):
            self._peers.add(peer)
            # Raised before `busy` is read: a unit that ends in between is then reported once too often, never not.
            shared_state.idle_wanted = True
            epoch, busy_call = (*shared_state.busy, ("", 0))[0]
            if message.clock_ms:
                shared_state.ages.age_ms(message.epoch, message.clock_ms)
            self._send(
                peer,
                Welcome(
                    role="host",
                    pid=os.getpid(),
                    state=shared_state.machine.state.value,
                    busy_epoch=epoch,
                    busy_call=busy_call,
                    held=dict(shared_state.held),
                ),
            )
            if self._last is not None:
                self._send(peer, self._last)
        elif isinstance(message, Cancel):
            self._send(peer, CancelAnswer(outcome=shared_state.cancel((message.epoch, call))), call)
        elif isinstance(message, Status):
            self._send(peer, Status(report={**shared_state.report(), "malformed": self.malformed}), call)
        elif isinstance(message, Drain):
            shared_state.request_drain()
        else:
            self.malformed += 1

    def _broadcast(self, message: Message) -> None:
        if isinstance(message, (Progress, Ready, Bye)) or (isinstance(message, Failure) and message.fatal):
            self._last = message
        for peer in tuple(self._peers):
            self._send(peer, message)

    def _send(self, peer: bytes, message: Message, call: int = 0) -> None:
        frames = encode(message, incarnation=self._shared_state.incarnation, call=call)
        try:
            send(self._socket, [peer, *frames])
        except zmq.ZMQError:
            # Gone or not reading: a peer that needs this asks again with a new HELLO.
            self._peers.discard(peer)
