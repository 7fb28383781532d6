"""What is heard on the management lane: what a front says of itself and of its requests, and who else asks.

    front       HELLO ─▶                 ◀─ WELCOME, DEPLOYMENT (the whole table), HOST_UP of every ready host
    front       SERVING, BYE, HOST_VERDICT, OVERDUE, DRAINED, WANT ─▶
    commands    ORDER ─▶                                                          (carried out in orders.py)
    both        STATUS ─▶                                                         (answered in report.py)

Every peer that connects may ask and order: the lane's socket is in the runtime directory, which is this user's alone.
What only a front may say is taken from the present one.
"""

from __future__ import annotations

import os

from executor_host.supervision.console import Console
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_lane import FrontLane
from executor_host.supervision.front_slot import FrontSlot
from executor_host.supervision.life import ServerLife
from executor_host.supervision.orders import Orders
from executor_host.supervision.report import Reports
from protocol.errors import ProtocolError
from protocol.frames import decode
from protocol.messages import (
    Bye,
    Drained,
    Hello,
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


class Management:
    """Everything that is heard on the lane. Runs in the supervisor's loop."""

    def __init__(
        self,
        life: ServerLife,
        lane: FrontLane,
        console: Console,
        fleet: Fleet,
        front: FrontSlot,
        orders: Orders,
        reports: Reports,
    ) -> None:
        self._life = life
        self._lane = lane
        self._console = console
        self._fleet = fleet
        self._front = front
        self._orders = orders
        self._reports = reports
        lane.hear(self._heard)

    def _heard(self, frames: list[bytes]) -> None:
        peer, *rest = frames
        try:
            envelope = decode(rest, lane=Lane.MANAGEMENT)
        except ProtocolError as error:
            self._console.say("framehost", f"management: {error}")
            return
        message, incarnation, call = envelope.message, envelope.incarnation, envelope.call

        def reply(answer: Message) -> None:
            self._lane.send(peer, incarnation, answer, call)

        front = self._front.life
        from_front = peer == front.epoch.encode() and incarnation == front.epoch
        if from_front:
            front.answered()
        if isinstance(message, Hello) and from_front:
            self._welcome_front()
        elif isinstance(message, Serving) and from_front:
            front.serves()
        elif isinstance(message, Overdue) and from_front:
            self._fleet.overdue(message.deployment, message.incarnation, message.elapsed_s)
        elif isinstance(message, Bye) and from_front:
            front.goodbye = message.reason
        elif isinstance(message, HostVerdict) and from_front:
            self._fleet.judged(message.deployment, message.replica, message.incarnation, message.refusal)
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
        self._front.life.greeted()
        state = "stopping" if self._life.stopping else "running"
        self._lane.tell_front(Welcome(role="supervisor", pid=os.getpid(), state=state))
        # The hosts after what they are hosts of, and before the word that opens the port: they are greeted first.
        self._fleet.publish(is_open=False)
        for slot in self._fleet.slots:
            if slot.life.up is not None and slot.still_reachable():
                self._lane.tell_front(slot.life.up)
        self._fleet.publish()
