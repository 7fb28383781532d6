"""Hosts of the simulation: they keep the rules of `executor_host`, and fall over as the run tells them to.

A host has one unit or batch in its hands at a time, answers its control lane at any time, notes what it takes in a page
that outlives it, remembers cancels of what has not begun, and keeps its last answers.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from executor_host.launch.base import HostLauncher, HostSpec, ProcessExit, ProcessHandle
from executor_host.main import KEPT_ANSWERS
from protocol import batches
from protocol.curve import KeyPair, Security
from protocol.exits import HostExit
from protocol.frames import Envelope, decode, encode
from protocol.messages import (
    Bye,
    Cancel,
    CancelAnswer,
    Drain,
    Execute,
    Failure,
    Hello,
    Lane,
    Message,
    Owed,
    Progress,
    Ready,
    Result,
    Status,
    Welcome,
)
from protocol.tensors import Buffer

if TYPE_CHECKING:
    from tests.simulation.world import World

ALONE_S = 3.0
"""How long a host elsewhere goes on when its server has given it up."""


class SimulatedHost(ProcessHandle):
    """One process."""

    def __init__(self, world: World, spec: HostSpec) -> None:
        self._world, self.spec = world, spec
        self.incarnation = spec.incarnation
        self.remote = bool(spec.deployment.remote)
        number = world.number()
        self.address = f"tcp://host:{number}"
        self._data_address = f"tcp://host:{number + 1}"
        if self.remote:
            self.security = Security(KeyPair(b"", b""), 1.0, server=b"k" * 40)
        self._ended: asyncio.Future[ProcessExit] = world.loop.create_future()
        self._state = "loading"
        self._peers: dict[bytes, None] = {}
        self._last: Message = Progress(stage="loading")
        self._inbox: deque[tuple[bytes, list[bytes]]] = deque()
        self._busy: tuple[bytes, Sequence[int]] | None = None
        self._taken: dict[str, int] = {}
        self._answered: dict[bytes, int] = {}
        self._cancelled: set[tuple[bytes, int]] = set()
        self._kept: deque[tuple[bytes, Sequence[int], list[Buffer]]] = deque(maxlen=KEPT_ANSWERS)
        self._idle_wanted = self._draining = False
        self._frozen: list[Callable[[], None]] | None = None
        self._frozen_until = 0.0
        self.alive = True
        self._control = world.network.listen(self.address, lambda frames: self._now(lambda: self._heard(frames)))
        self._data: Any = None
        self._later(world.load_s(), self._loaded)

    @property
    def addresses(self) -> tuple[str, str]:
        """Of both lanes."""
        return str(self.address), self._data_address

    # Time

    def _now(self, work: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._frozen is None:
            work()
        else:
            self._frozen.append(work)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        self._world.loop.call_later(seconds, self._now, work)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after that time."""
        if self._frozen is None:
            self._frozen = []
        self._frozen_until = max(self._frozen_until, self._world.loop.time() + seconds)
        self._world.loop.call_at(self._frozen_until, self._thaw)

    def _thaw(self) -> None:
        if self._frozen is not None and self._world.loop.time() >= self._frozen_until:
            frozen, self._frozen = self._frozen, None
            for work in frozen:
                self._now(work)

    # Loading

    def _loaded(self) -> None:
        if self._world.fails_to_load(self.spec.deployment.options):
            self._say_last(Failure(code="executor_error", status=500, message="it cannot be loaded", fatal=True))
            self._later(0.01, lambda: self._exit(ProcessExit(HostExit.LOAD_FAILED, None)))
            return
        self._state = "ready"
        self._say_last(Progress(stage="warming"))
        self._data = self._world.network.listen(self._data_address, lambda f: self._now(lambda: self._came(f)))
        identity = str(self.spec.deployment.options.get("identity", "one"))
        self._say_last(Ready(address=self._data_address, facts={"identity": identity}))
        if self._draining:
            self._leave(HostExit.CLEAN)

    def _say_last(self, message: Message) -> None:
        self._last = message
        for peer in list(self._peers):
            self._tell(peer, message)

    def _tell(self, peer: bytes, message: Message, call: int = 0) -> None:
        self._world.drop(lambda: self._control.send([peer, *encode(message, incarnation=self.incarnation, call=call)]))

    # The control lane

    def _heard(self, frames: list[bytes]) -> None:
        peer, *rest = frames
        envelope = decode(rest, lane=Lane.CONTROL, incarnation=self.incarnation)
        message, call = envelope.message, envelope.call
        if isinstance(message, Hello):
            self._peers[peer] = None
            self._idle_wanted = True
            epoch, calls = self._busy or (b"", (0,))
            welcome = Welcome(role="host", pid=1, state=self._state, busy_epoch=epoch.decode(), busy_call=calls[0])
            self._tell(peer, welcome)
            self._tell(peer, self._last)
        elif isinstance(message, Cancel):
            self._tell(peer, CancelAnswer(outcome=self._cancel(peer, call)), call)
        elif isinstance(message, Status) and message.report is None:
            self._tell(peer, Status(report={"busy": self._busy is not None}), call)
        elif isinstance(message, Drain):
            self._drain()

    def _cancel(self, peer: bytes, call: int) -> str:
        if self._busy is not None and self._busy[0] == peer and call in self._busy[1]:
            return "running"
        if call <= self._answered.get(peer, 0):
            return "not_running"
        self._cancelled.add((peer, call))
        return "not_begun"

    def _drain(self) -> None:
        self._draining = True
        if self._state == "ready" and self._busy is None:
            self._leave(HostExit.CLEAN)

    # The data lane

    def _came(self, frames: list[bytes]) -> None:
        self._inbox.append((frames[0], frames[1:]))
        self._next()

    def _next(self) -> None:
        while self.alive and self._busy is None and self._inbox and not self._draining:
            peer, frames = self._inbox.popleft()
            if frames[0] == batches.KIND_BYTE:
                batch = batches.read(frames, incarnation=self.incarnation)
                parts = [part for part in batch.parts if isinstance(part, Envelope)]
                self._begin(peer, parts, batch.call)
                continue
            envelope = decode(frames, lane=Lane.DATA, incarnation=self.incarnation)
            if isinstance(envelope.message, Owed):
                self._answer_again(peer, envelope.message.calls)
            else:
                self._begin(peer, [envelope], None)

    def _begin(self, peer: bytes, parts: Sequence[Envelope], batch: int | None) -> None:
        self._taken[peer.decode()] = parts[-1].call
        self._busy = peer, [part.call for part in parts]
        outcomes = [self._outcome(peer, part) for part in parts]
        self._later(self._world.execution_s(), lambda: self._done(peer, outcomes, batch))

    def _outcome(self, peer: bytes, part: Envelope) -> tuple[int, Message]:
        message = part.message
        assert isinstance(message, Execute)
        if (peer, part.call) in self._cancelled:
            return part.call, _failure("cancelled", dispatched=False)
        number, index = json.loads(message.payload["document"])
        self._world.executed[number, index] += 1
        fate = self._world.fate()
        if fate is not None:
            return part.call, fate
        identity = self.spec.deployment.options.get("identity", "one")
        return part.call, Result(outputs={"unit": [number, index], "identity": identity}, elapsed_us=1)

    def _done(self, peer: bytes, outcomes: Sequence[tuple[int, Message]], batch: int | None) -> None:
        calls = [call for call, _ in outcomes]
        self._answered[peer] = calls[-1]
        self._busy = None
        self._cancelled.difference_update((peer, call) for call in calls)
        if batch is None:
            ((call, message),) = outcomes
            self._answer(peer, calls, encode(message, incarnation=self.incarnation, call=call))
        else:
            parts = [batches.pack(message, call=call) for call, message in outcomes]
            self._answer(peer, calls, batches.join(parts, incarnation=self.incarnation, call=batch))
        if any(isinstance(message, Failure) and message.fatal for _, message in outcomes):
            self._leave(HostExit.RETIRED)
            return
        if self._idle_wanted:
            self._idle_wanted = False
            for each in list(self._peers):
                self._tell(each, Status(report={"busy": False}))
        if self._draining:
            self._leave(HostExit.CLEAN)
        else:
            self._next()

    def _answer(self, peer: bytes, calls: Sequence[int], frames: list[Buffer]) -> None:
        self._kept.append((peer, calls, frames))
        self._world.drop(lambda: self._data.send([peer, *frames]))

    def _answer_again(self, peer: bytes, calls: Sequence[int]) -> None:
        owed = set(calls)
        for whose, answered, frames in self._kept:
            if whose == peer and not owed.isdisjoint(answered):
                self._world.drop(lambda frames=frames: self._data.send([peer, *frames]))  # type: ignore[misc]
                owed.difference_update(answered)
        for call in sorted(owed):
            lost = encode(_failure("lost"), incarnation=self.incarnation, call=call)
            self._world.drop(lambda lost=lost: self._data.send([peer, *lost]))  # type: ignore[misc]

    # The end

    def _leave(self, status: HostExit) -> None:
        self._state = "leaving"
        self._say_last(Bye(reason=status.name.lower()))
        self._later(0.005, lambda: self._exit(ProcessExit(status, None)))

    def _exit(self, ended: ProcessExit) -> None:
        if self.alive:
            self.alive = False
            self._control.close()
            if self._data is not None:
                self._data.close()
            self._world.hosts.remove(self)
            self._world.loop.call_later(self._world.network.delay(), self._known, ended)

    def _known(self, ended: ProcessExit) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def die(self) -> None:
        """SIGKILL by a stranger."""
        self._exit(ProcessExit(HostExit.LOST, None) if self.remote else ProcessExit(None, signal.SIGKILL))

    # What the supervisor knows

    @property
    def pid(self) -> int:
        return 0

    async def wait(self) -> ProcessExit:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGTERM and not self.remote:
            self._now(self._drain)

    def kill(self) -> None:
        if self.remote:
            # It is told, and is given up whether it hears that or not.
            self.lost()
        else:
            self._exit(ProcessExit(None, signal.SIGKILL))

    def lost(self) -> None:
        self._world.loop.call_later(ALONE_S, self._exit, ProcessExit(HostExit.LOST, None))
        self._known(ProcessExit(HostExit.LOST, None))

    def last_words(self) -> str:
        return ""

    def describe(self) -> str:
        return "a host of the simulation"

    def taken(self) -> dict[str, int] | None:
        return None if self.remote else dict(self._taken)


def _failure(code: str, *, dispatched: bool = True) -> Failure:
    return Failure(code=code, status=503, message="it is not executed", dispatched=dispatched)


class SimulatedLauncher(HostLauncher):
    """Starts them; of a remote deployment, one that dials in after a while."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self, spec: HostSpec) -> ProcessHandle:
        await asyncio.sleep(self._world.start_s())
        if self._world.fails_to_start():
            raise OSError("no process could be made")
        host = SimulatedHost(self._world, spec)
        self._world.hosts.append(host)
        return host
