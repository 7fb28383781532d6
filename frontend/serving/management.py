"""The front's end of the management lane: what the supervisor says becomes deployments, what it asks is answered."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import zmq

from frontend import limits
from frontend.serving.deployment import Deployment
from frontend.serving.server import Server
from protocol.curve import Security
from protocol.errors import ProtocolError
from protocol.frames import decode, encode
from protocol.messages import (
    Bye,
    Drain,
    Drained,
    Hello,
    HostDown,
    HostUp,
    HostVerdict,
    Lane,
    Message,
    Order,
    Outcome,
    Overdue,
    Progress,
    Serving,
    Status,
    Want,
    Welcome,
)
from protocol.messages import Deployment as DeploymentTable
from protocol.states import Role
from protocol.transport.loop import dial

ANSWER_S = 1.0
"""How long the supervisor's answer is waited for. It takes a millisecond, and the supervisor is never busy."""

log = logging.getLogger("framehost.management")


class Management:
    """Dials the supervisor. `on_open` is called once, when the port may be listened on; `on_drain` with a budget;
    `on_failure` when a message could not be acted upon: a front that knows less than it was told must not go on.
    `secure` as for `Deployment`."""

    def __init__(
        self,
        server: Server,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        epoch: str,
        *,
        on_open: Callable[[], None],
        on_drain: Callable[[float], None],
        on_failure: Callable[[Exception], None],
        secure: Callable[[str], Security | None] = lambda public_key: None,
    ) -> None:
        self._server, self._context, self._epoch = server, context, epoch
        self._on_open, self._on_drain, self._on_failure = on_open, on_drain, on_failure
        self._secure = secure
        self._opened = False
        self._deployments: dict[str, Deployment] = {}
        """All of them, by id."""
        self._calls = itertools.count(1)
        self._ordered: dict[int, asyncio.Future[Outcome]] = {}
        """Orders that are being carried out, by call."""
        self._wanted: dict[str, None] = {}
        """Ids of absent deployments that requests wait for, in the order of coming."""
        self._expiring: dict[str, asyncio.TimerHandle] = {}
        self._asked: asyncio.Future[Mapping[str, Any]] | None = None
        self._socket = dial(server.loop, context, address, self._receive, identity=epoch)
        self.tell(Hello(role="front", epoch=epoch, pid=os.getpid()))

    def tell(self, message: Message, call: int = 0) -> None:
        """Send to the supervisor. When that fails, the supervisor is gone and the parent guard ends us."""
        try:
            self._socket.send(encode(message, incarnation=self._epoch, call=call))
        except zmq.ZMQError as error:
            log.warning("the supervisor cannot be told %s: %s", type(message).__name__, error)

    def serving(self, address: str) -> None:
        """Say that the port is open."""
        self.tell(Serving(address=address))

    async def ask(self) -> Mapping[str, Any] | None:
        """What the supervisor knows of the processes; None when it does not say so within `ANSWER_S`.

        All who ask meanwhile share one question. Cancelling one of them changes nothing for the others.
        """
        asked = self._asked
        if asked is None or asked.done():
            asked = self._asked = self._server.loop.create_future()
            self.tell(Status())
        await asyncio.wait([asked], timeout=ANSWER_S)
        if asked.done():
            return asked.result()
        if self._asked is asked:
            self._asked = None  # the next caller asks anew
        return None

    async def order(self, order: Order) -> Outcome:
        """Have the supervisor carry out an operator's order. It may take minutes; cancelled, it goes on without us.

        Raises `ProtocolError` for settings that the wire cannot carry.
        """
        call = next(self._calls)
        answer: asyncio.Future[Outcome] = self._server.loop.create_future()
        self._ordered[call] = answer
        try:
            self.tell(order, call)
            return await answer
        finally:
            del self._ordered[call]

    def close(self, reason: str) -> None:
        """Say goodbye and close."""
        self.tell(Bye(reason=reason))
        self._socket.close()

    def _receive(self, frames: list[bytes]) -> None:
        try:
            envelope = decode(frames, lane=Lane.MANAGEMENT, incarnation=self._epoch)
        except ProtocolError as error:
            log.warning("management: %s", error)
            return
        try:
            self._act(envelope.message, envelope.call)
        except Exception as error:
            self._on_failure(error)

    def _act(self, message: Message, call: int) -> None:
        if isinstance(message, DeploymentTable):
            self._table(message)
        elif isinstance(message, HostUp):
            self._deployments[message.deployment].host_up(message)
        elif isinstance(message, HostDown):
            if (deployment := self._deployments.get(message.deployment)) is not None:
                deployment.host_down(message)
        elif isinstance(message, Status):
            if message.report is None:
                self.tell(Status(report=self.report()), call)
            elif self._asked is not None and not self._asked.done():
                self._asked.set_result(message.report)
        elif isinstance(message, Outcome):
            if (answer := self._ordered.get(call)) is not None and not answer.done():
                answer.set_result(message)
        elif isinstance(message, Drain):
            self._on_drain(message.budget_s)
        elif not isinstance(message, (Welcome, Progress)):
            log.warning("management: unexpected %s", type(message).__name__)

    def _table(self, table: DeploymentTable) -> None:
        server = self._server
        known, self._deployments = self._deployments, {}
        for row in table.models:
            deployment = known.pop(row["id"], None)
            if deployment is None:
                deployment = Deployment(
                    row,
                    loop=server.loop,
                    zmq_context=self._context,
                    epoch=self._epoch,
                    listener=self,
                    secure=self._secure,
                    devices=server.devices,
                )
                if server.draining:
                    deployment.begin_stop()
            self._deployments[deployment.id] = deployment
        # What every name means changes here, in one step of the loop; who waited for it looks again after that.
        server.deployments = {
            deployment.name: deployment
            for deployment, row in zip(self._deployments.values(), table.models, strict=True)
            if Role(row["role"]).named
        }
        server.others = {
            deployment.id: deployment
            for deployment in self._deployments.values()
            if server.deployments.get(deployment.name) is not deployment
        }
        for deployment, row in zip(self._deployments.values(), table.models, strict=True):
            deployment.assume(row)
        for dropped in known.values():
            dropped.close(f"model {dropped.name!r} was replaced by another one")
        # Not before those who have waited at a name have gone on: what they go to is in use.
        server.loop.call_soon(self._tell_usage)
        kept = table.server
        server.devices.configure(kept.get("kept_bytes", {}), kept.get("session_idle_s", limits.SESSION_IDLE_S))
        server.default = table.default
        if table.open and not self._opened:
            self._opened = True
            self._on_open()

    # What deployments are used for

    def drained(self, deployment: Deployment) -> None:
        self.tell(Drained(deployment=deployment.id))

    def overdue(self, deployment: Deployment, incarnation: str, seconds: float) -> None:
        self.tell(Overdue(deployment=deployment.id, incarnation=incarnation, elapsed_s=seconds))

    def judged(self, deployment: Deployment, up: HostUp, refusal: str) -> None:
        self.tell(
            HostVerdict(deployment=deployment.id, replica=up.replica, incarnation=up.incarnation, refusal=refusal)
        )

    def usage_changed(self, deployment: Deployment) -> None:
        if deployment.wanted or self._wanted:
            self._tell_usage()
        if deployment.keep_alive_s is not None and deployment.idle_s is not None:
            self._expire_later(deployment, deployment.keep_alive_s)

    def _tell_usage(self) -> None:
        """Send the whole picture: it replaces the former one, so that nothing can be missed."""
        known = (name for name in self._wanted if self._is_wanted(name))
        # Also one whose load was given up while they waited for it.
        others = (deployment.id for deployment in self._deployments.values() if deployment.wanted)
        self._wanted = dict.fromkeys((*known, *others))
        # In the middle of a swap no request is here yet, or not any more: they wait at the name.
        meant = [deployment for deployment in self._deployments.values() if deployment.role is Role.CURRENT]
        idle = {deployment.id: deployment.idle_s for deployment in meant}
        self.tell(
            Want(wanted=list(self._wanted), idle={key: idle_s for key, idle_s in idle.items() if idle_s is not None})
        )

    def _is_wanted(self, name: str) -> bool:
        return name in self._deployments and self._deployments[name].wanted

    def _expire_later(self, deployment: Deployment, seconds: float) -> None:
        """Say it when a deployment has been idle for as long as it is kept. One timer each, however busy it is."""
        if deployment.id not in self._expiring:
            self._expiring[deployment.id] = self._server.loop.call_later(
                seconds + limits.TIMER_SLACK_S, self._expired, deployment
            )

    def _expired(self, deployment: Deployment) -> None:
        del self._expiring[deployment.id]
        idle_s = deployment.idle_s
        if self._deployments.get(deployment.id) is not deployment or idle_s is None or deployment.keep_alive_s is None:
            return  # dropped, or busy: it comes back when it is idle
        if idle_s < deployment.keep_alive_s:
            self._expire_later(deployment, deployment.keep_alive_s - idle_s)
        elif deployment.present:
            self._tell_usage()

    def report(self) -> dict[str, Any]:
        """The front's part of `framehost status`."""
        server = self._server
        return {
            "pid": os.getpid(),
            "epoch": self._epoch,
            "draining": server.draining,
            "default": server.default,
            "requests": dataclasses.asdict(server.requests.statistics()),
            "keys": None if server.keys is None else server.keys.report(),
            "limits": server.limits.report(),
            "connections": server.clients.report(),
            "poisoned": server.poison.report(),
            "ingress": dataclasses.asdict(server.ingress.statistics()),
            "models": {
                name: dataclasses.asdict(deployment.statistics()) for name, deployment in server.deployments.items()
            },
            "devices": [dataclasses.asdict(device) for device in server.devices.statistics()],
            "sessions": len(server.devices.conversations),
            "others": [dataclasses.asdict(deployment.statistics()) for deployment in server.others.values()],
        }


async def until_idle(server: Server, budget_s: float) -> bool:
    """Wait until no request is open and every answer was read, at most `budget_s`; whether it came to that."""
    try:
        async with asyncio.timeout(budget_s):
            await server.requests.idle()
            await server.clients.written()
    except TimeoutError:
        return False
    return True
