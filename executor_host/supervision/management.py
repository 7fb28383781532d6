"""The supervisor's end of the management lane: what the front is told of names and hosts, what it says of its requests,
and who else asks.

    front       HELLO ─▶                 ◀─ WELCOME, DEPLOYMENT (the whole table), HOST_UP and HOST_DOWN of every host
    front       SERVING, BYE, OVERDUE, DRAINED, WANT ─▶
    commands    ORDER ─▶                                                          (carried out in orders.py)
    both        STATUS ─▶                                                         (answered in report.py)

Whoever connects may ask and order: the lane's socket is in the runtime directory, which is this user's alone. What only
a front may say is taken from the present one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import zmq

from executor_host.launch.base import Listener
from executor_host.supervision.console import Console
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_slot import FrontSlot
from executor_host.supervision.orders import Orders
from executor_host.supervision.report import Reports
from protocol.errors import ProtocolError
from protocol.exits import ServeExit
from protocol.frames import decode, encode
from protocol.limits import MAX_TEXT_CHARS
from protocol.messages import (
    Bye,
    Deployment,
    Drained,
    Hello,
    HostDown,
    HostVerdict,
    Lane,
    Message,
    Order,
    Overdue,
    Serving,
    Status,
    Want,
    Welcome,
)
from protocol.states import HostState


class Owner(Protocol):
    """What the lane needs of the supervisor."""

    console: Console

    def is_stopping(self) -> bool: ...

    def is_open(self) -> bool: ...

    def fail(self, status: ServeExit, message: str) -> None: ...


class Management:
    """Everything that is said on the lane. Runs in the supervisor's loop."""

    def __init__(
        self,
        owner: Owner,
        listen: Callable[[Callable[[list[bytes]], None]], Listener],
        fleet: Fleet,
        front: FrontSlot,
        orders: Orders,
        reports: Reports,
        *,
        default: str,
        limits: dict[str, Any],
    ) -> None:
        """`listen`: binds the lane's socket; what it receives begins with the identity of the peer. `default` and
        `limits`: of the server, as the front is told them."""
        self._owner = owner
        self._fleet = fleet
        self._front = front
        self._orders = orders
        self._reports = reports
        self._default = default
        self._limits = limits
        self._socket = listen(self._heard)

    def close(self) -> None:
        """Nobody is heard any more."""
        self._socket.close()

    def listen_again(self, address: str) -> None:
        """Have newcomers find the lane at `address`; who is connected stays so. Raises `zmq.ZMQError`."""
        # The former listener stays: unbinding it would remove the file at its address, whenever the library gets round
        # to it, and that is the new one's.
        self._socket.bind(address)

    def tell_front(self, message: Message, call: int = 0) -> None:
        """Send to the current front; one that is not there yet is told everything when it says HELLO."""
        if self._front.connected:
            self._send(self._front.epoch.encode(), self._front.epoch, message, call)

    def publish(self) -> None:
        """Tell the front what every name means, in one message."""
        self._publish(is_open=self._owner.is_open())

    def _publish(self, *, is_open: bool) -> None:
        self.tell_front(
            Deployment(
                models=[hosts.row() for hosts in self._fleet],
                default=self._default,
                server=self._limits,
                open=is_open,
            )
        )

    def _send(self, peer: bytes, incarnation: str, message: Message, call: int) -> None:
        try:
            self._socket.send([peer, *encode(message, incarnation=incarnation, call=call)])
        except zmq.ZMQError as error:
            self._owner.console.say("framehost", f"{incarnation} cannot be told {type(message).__name__}: {error}")
        except ProtocolError as error:
            # Nobody may go on knowing less than it should: a bug of ours, and it ends the server.
            name = type(message).__name__
            self._owner.fail(ServeExit.FAILED, f"internal error: {name} cannot be sent: {error}")

    def _heard(self, frames: list[bytes]) -> None:
        peer, *rest = frames
        try:
            envelope = decode(rest, lane=Lane.MANAGEMENT)
        except ProtocolError as error:
            self._owner.console.say("framehost", f"management: {error}")
            return
        message, incarnation, call = envelope.message, envelope.incarnation, envelope.call

        def reply(answer: Message) -> None:
            self._send(peer, incarnation, answer, call)

        from_front = peer == self._front.epoch.encode() and incarnation == self._front.epoch
        if from_front:
            self._front.watchdog.answered(time.monotonic())
        if isinstance(message, Hello) and from_front:
            self._welcome_front()
        elif isinstance(message, Serving) and from_front:
            self._front.is_serving(message.address)
        elif isinstance(message, Overdue) and from_front:
            self._overdue(message)
        elif isinstance(message, HostVerdict) and from_front:
            self._judged(message)
        elif isinstance(message, Bye) and from_front:
            self._front.goodbye = message.reason
        elif isinstance(message, Drained) and from_front:
            self._fleet.drained(message.deployment)
        elif isinstance(message, Want) and from_front:
            self._fleet.usage(message.wanted, message.idle)
        elif isinstance(message, Order):
            self._orders.take(message, reply)
        elif isinstance(message, Status):
            if message.report is None:
                if from_front:
                    reply(Status(report=self._reports.report(None)))
                else:
                    self._reports.ask(reply)
            elif from_front:
                self._reports.answered(call, message.report)

    def _welcome_front(self) -> None:
        stopping = self._owner.is_stopping()
        self._front.greeted()
        self.tell_front(Welcome(role="supervisor", pid=os.getpid(), state="stopping" if stopping else "running"))
        # The hosts after what they are hosts of, and before the word that opens the port: they are greeted first.
        self._publish(is_open=False)
        for slot in self._fleet.slots:
            if slot.up is not None and not slot.replace_unreachable(slot.up.data):
                self.tell_front(slot.up)
            elif self._owner.is_open() and slot.incarnation and slot.state != HostState.STOPPED.value:
                self.tell_front(
                    HostDown(
                        deployment=slot.deployment.id,
                        replica=slot.replica,
                        incarnation=slot.incarnation,
                        exit=None,
                        signal="",
                        last_words=slot.last_death[:MAX_TEXT_CHARS],
                        will_restart=slot.failed is None,
                        retry_after_s=slot.load_s,
                    )
                )
        self.publish()

    def _judged(self, message: HostVerdict) -> None:
        hosts = self._fleet.find(message.deployment)
        for slot in hosts.slots if hosts is not None and message.refusal else []:
            if slot.incarnation == message.incarnation:
                slot.overdue(f"the front refuses it: {message.refusal}")

    def _overdue(self, message: Overdue) -> None:
        hosts = self._fleet.find(message.deployment)
        for slot in [] if hosts is None else hosts.slots:
            if slot.incarnation == message.incarnation:
                limit = slot.deployment.execution_limit_s or 0.0
                slot.overdue(f"no answer for {message.elapsed_s:.1f} s, its execution limit is {limit:g} s")
