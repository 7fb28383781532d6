"""Sockets that are lists: what is sent arrives when the seed says so, in order on its own lane and in none beside it.

dial, listen     as `protocol.transport.loop` has them
delay            of each frame list, drawn anew; a lane never overtakes itself, two lanes do all the time
hold             a partition: what is sent on a lane waits until it is over
break_lane       what is on its way is lost in both directions; the lane comes back, which its dialler is told
cut              an end is gone: nothing leaves it and nothing reaches it any more
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from protocol.tensors import Buffer
from protocol.transport import monitor

Receive = Callable[[list[bytes]], None]
OnConnection = Callable[[monitor.Event], None]

QUICK_S = 0.0005
SLOW_S = 0.2
"""A frame list takes up to `QUICK_S`, and one of twenty up to `SLOW_S`."""

RECONNECT_S = 0.1


class Direction:
    """One way of a lane: first in, first out."""

    def __init__(self, network: Network, receive: Receive) -> None:
        self._network, self._receive = network, receive
        self._waiting: deque[tuple[float, list[bytes]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_due = 0.0
        self.held_until = 0.0
        self.closed = False

    def send(self, frames: list[bytes]) -> None:
        due = max(self._last_due, self._network.loop.time() + self._network.delay())
        self._last_due = due
        self._waiting.append((due, frames))
        self.look()

    def lose(self) -> None:
        self._waiting.clear()

    def look(self) -> None:
        """Wait for what comes next."""
        if self._timer is None and self._waiting and not self.closed:
            due = max(self._waiting[0][0], self.held_until)
            self._timer = self._network.loop.call_at(due, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        now = self._network.loop.time()
        if self._waiting and not self.closed and self._waiting[0][0] <= now >= self.held_until:
            self._receive(self._waiting.popleft()[1])
        self.look()

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Lane:
    """One connection: who has dialled, and the socket that listens at the address, as soon as there is one."""

    def __init__(self, network: Network, address: str, identity: bytes, receive: Receive) -> None:
        self.address, self.identity = address, identity
        self.on_connection: OnConnection | None = None
        self._network = network
        self.there = Direction(network, self._arrived)
        self.back = Direction(network, receive)

    def _arrived(self, frames: list[bytes]) -> None:
        # What comes before the other side is there waits, as in a real socket; the network looks again when it is.
        listener = self._network.listeners.get(self.address)
        if listener is None:
            self._network.early.setdefault(self.address, []).append((self, frames))
        else:
            listener.receive([self.identity, *frames])

    def hold(self, seconds: float) -> None:
        until = self._network.loop.time() + seconds
        for direction in (self.there, self.back):
            direction.held_until = max(direction.held_until, until)

    def break_off(self) -> None:
        for direction in (self.there, self.back):
            direction.lose()
        self.hold(RECONNECT_S)
        self._network.loop.call_later(RECONNECT_S, self.connected)

    def connected(self) -> None:
        if self.on_connection is not None and not self.back.closed:
            self.on_connection(monitor.LET_IN)

    def close(self) -> None:
        self.there.close()
        self.back.close()


class Dealer:
    """The end that has dialled."""

    def __init__(self, network: Network, lane: Lane) -> None:
        self._network, self._lane = network, lane

    def send(self, frames: Sequence[Buffer]) -> None:
        if self._lane.there.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        self._lane.there.send([bytes(frame) for frame in frames])

    def close(self) -> None:
        self._network.forget(self._lane)


class Router:
    """The end that listens."""

    def __init__(self, network: Network, address: str, receive: Receive) -> None:
        self._network, self.address, self.receive = network, address, receive

    def send(self, frames: Sequence[Buffer]) -> None:
        peer, *rest = [bytes(frame) for frame in frames]
        lane = self._network.lane(self.address, peer)
        if lane is None or self._network.listeners.get(self.address) is not self:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        lane.back.send(rest)

    def bind(self, address: str) -> None:
        raise NotImplementedError("a simulated socket listens at one address")

    def close(self) -> None:
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]


class Network:
    """Every lane of one run."""

    def __init__(self, loop: asyncio.AbstractEventLoop, choose: random.Random) -> None:
        self.loop, self._choose = loop, choose
        self.listeners: dict[str, Router] = {}
        self.lanes: list[Lane] = []
        self.early: dict[str, list[tuple[Lane, list[bytes]]]] = {}
        self.calm = False

    def delay(self) -> float:
        slow = not self.calm and self._choose.random() < 0.05
        return self._choose.uniform(0.0, SLOW_S if slow else QUICK_S)

    def dial(
        self,
        loop: asyncio.AbstractEventLoop,
        context: object,
        address: str,
        receive: Receive,
        *,
        identity: str,
        security: object = None,
        on_connection: OnConnection | None = None,
    ) -> Dealer:
        lane = Lane(self, address, identity.encode(), receive)
        lane.on_connection = on_connection
        self.lanes.append(lane)
        self.loop.call_later(QUICK_S, lane.connected)
        return Dealer(self, lane)

    def listen(self, address: str, receive: Receive) -> Router:
        router = self.listeners[address] = Router(self, address, receive)
        for lane, frames in self.early.pop(address, ()):
            if not lane.there.closed:
                receive([lane.identity, *frames])
        return router

    def lane(self, address: str, identity: bytes) -> Lane | None:
        return next((lane for lane in self.lanes if (lane.address, lane.identity) == (address, identity)), None)

    def of(self, text: str) -> list[Lane]:
        """Lanes whose address or dialler has `text` in it."""
        return [lane for lane in self.lanes if text in lane.address or text in lane.identity.decode()]

    def forget(self, lane: Lane) -> None:
        lane.close()
        if lane in self.lanes:
            self.lanes.remove(lane)

    def cut(self, identity: str) -> None:
        """Whoever has dialled as `identity` is gone, with all of its sockets."""
        for lane in [lane for lane in self.lanes if lane.identity == identity.encode()]:
            self.forget(lane)
