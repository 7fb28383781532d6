"""One run: the supervisor, the fronts it starts and the hosts it starts, in one loop whose clock jumps."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import zmq

from executor_host.supervision.build import Server as Supervisor
from executor_host.supervision.changes import Changes
from executor_host.supervision.clock import AwakeClock
from executor_host.supervision.console import Console
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_lane import FrontLane
from executor_host.supervision.front_slot import FrontCommand, FrontSlot
from executor_host.supervision.host_slot import Surroundings
from executor_host.supervision.life import ServerLife
from executor_host.supervision.management import Management
from executor_host.supervision.orders import Invalid, Orders
from executor_host.supervision.report import Deaths, Reports
from executor_host.supervision.residency import Bounds
from executor_host.supervision.server import Parts
from protocol import families
from protocol.exits import ServeExit
from protocol.messages import Failure, Message, Order, Outcome
from protocol.models import Batch, DeploymentSpec
from tests.simulation.family import SHARING, SIMULATED
from tests.simulation.fronts import SimulatedFront
from tests.simulation.hosts import SimulatedHost, SimulatedLauncher
from tests.simulation.network import Network

LIMIT_S = 4.0
"""Of execution and of loads."""

DRAIN_S = 10.0


def _spec(name: str, **fields: Any) -> DeploymentSpec:
    keys = {"execution_limit_s": LIMIT_S, "load_limit_s": LIMIT_S, "max_requests": 40, "max_cost": 80, **fields}
    return DeploymentSpec(id=f"{name}@1", name=name, family=keys.pop("family", "simulated"), **keys)


MODELS = (
    (_spec("alpha", family="simulated_sharing"), True),
    (_spec("beta", replicas=2, spare=True, look_ahead=True, batch=Batch(units=4)), True),
    (_spec("gamma"), False),
    (_spec("delta", remote=True), True),
)
"""One whose equal units are joined; one with replicas, a spare, batches and look-ahead; one that is loaded when it is
asked; one on another machine. There is room for three."""


async def no_file() -> Any:
    """A simulated server has no configuration file."""
    raise Invalid("there is none")


class World:
    """What every part of a run shares, and what the run has recorded."""

    def __init__(self, choose: random.Random) -> None:
        self.loop = asyncio.get_running_loop()
        self._choose = choose
        self.network = Network(self.loop, choose)
        self.calm = True
        """While nothing goes wrong by itself: until the ports are open, and when the faults are over."""
        self.hosts: list[SimulatedHost] = []
        self.front: SimulatedFront | None = None
        self.executed: Counter[tuple[int, int]] = Counter()
        """How often each unit was begun: by request and index."""
        self.outcomes: list[Outcome] = []
        """What operators were answered in the end."""
        self.ordered = 0
        self.failures: list[BaseException] = []
        self.log = io.StringIO()
        self._numbers = itertools.count(1000, 2)
        self._swaps = itertools.count(2)
        self._build()

    # What the seed decides

    def number(self) -> int:
        return next(self._numbers)

    def start_s(self) -> float:
        return self._choose.uniform(0.01, 0.5)

    def load_s(self) -> float:
        long = not self.calm and self._choose.random() < 0.03
        return 2 * LIMIT_S if long else self._choose.uniform(0.01, 1.0)

    def execution_s(self) -> float:
        if self.calm:
            return 0.005
        chance = self._choose.random()
        if chance < 0.01:
            return 2 * LIMIT_S
        return self._choose.uniform(0.2, 1.0) if chance < 0.1 else self._choose.uniform(0.001, 0.05)

    def fate(self) -> Failure | None:
        """What goes wrong with a unit that is executed."""
        chance = 1.0 if self.calm else self._choose.random()
        if chance < 0.01:
            return Failure(code="fatal", status=503, message="the device is on fire", fatal=True)
        return Failure(code="executor_error", status=500, message="it failed") if chance < 0.03 else None

    def fails_to_load(self, options: Mapping[str, Any]) -> bool:
        return options.get("fail") == "load" or (not self.calm and self._choose.random() < 0.05)

    def fails_to_start(self) -> bool:
        return not self.calm and self._choose.random() < 0.02

    def making_s(self) -> float:
        return self._choose.uniform(0.0, 0.02)

    def drop(self, send: Callable[[], None]) -> None:
        """Send to a peer that may be gone."""
        with contextlib.suppress(zmq.ZMQError):
            send()

    def failed(self, error: BaseException) -> None:
        """A front could not act upon what it was told: never."""
        self.failures.append(error)

    # The supervisor

    def _build(self) -> None:
        console, clock = Console(self.log), AwakeClock(self.loop.time)
        names = (f"i{number}" for number in itertools.count(1))
        mint = names.__next__
        life, deaths = ServerLife(console.say), Deaths()
        lane = FrontLane(lambda receive: self.network.listen("management", receive), console.say, life)
        launcher = SimulatedLauncher(self)
        around = Surroundings(
            life=life,
            console=console,
            directory=SimpleNamespace(incarnation=lambda name: Path("/nonexistent") / name),  # type: ignore[arg-type]
            epoch="supervisor",
            restarts=1000,
            launcher_of=lambda spec: launcher,
            dial=lambda address, receive, handle: self.network.dial(
                self.loop, None, address, receive, identity="supervisor"
            ),
            tell_front=lane.tell_front,
            mint=mint,
            clock=clock,
        )
        self.fleet = Fleet(
            around,
            Bounds(count=3, turn_s=5.0),
            drain_s=DRAIN_S,
            default="alpha",
            limits={},
            kept_bytes={},
            session_idle_s=600.0,
            died=deaths.died,
        )
        self.slot = FrontSlot(
            life,
            lane,
            console,
            lambda: FrontCommand([], []),
            restarts=1000,
            limit_s=30.0,
            clock=clock,
            mint=mint,
            lost=self.fleet.front_lost,
            died=deaths.died,
            starter=self._start_front,  # type: ignore[arg-type]
        )
        listeners: Any = SimpleNamespace(
            inherited=[], main=SimpleNamespace(url="http://simulation"), natives={}, admin=None, health=None
        )
        names_of = tuple(spec.name for spec, _ in MODELS)
        self.orders = Orders(life, console, self.fleet, Changes(self.fleet, clock), names_of, self._successor, no_file)
        log: Any = SimpleNamespace(lost=0)
        reports = Reports(life, lane, log, listeners, self.fleet, self.slot, self.orders.swaps, deaths)
        Management(life, lane, console, self.fleet, self.slot, self.orders, reports)
        silent: Any = SimpleNamespace(
            look=lambda: None, alive=lambda: None, ready=lambda text: None, stopping=lambda text: None
        )
        self.life = life
        self._supervisor = Supervisor(
            Parts(
                life=life,
                clock=clock,
                console=console,
                listeners=listeners,
                lane=lane,
                fleet=self.fleet,
                front=self.slot,
                orders=self.orders,
                renewal=silent,
                probes=None,
                manager=silent,
                close=(lane.close,),
                last_lines=lambda: None,
            ),
            MODELS,
            management="management",
            drain_s=DRAIN_S,
        )

    async def _start_front(self, module: str, arguments: list[str], **_: Any) -> SimulatedFront:
        await asyncio.sleep(self.start_s())
        self.front = SimulatedFront(self, arguments[arguments.index("--epoch") + 1])
        return self.front

    async def _successor(self, name: str, settings: Mapping[str, Any]) -> tuple[DeploymentSpec, Callable[[], None]]:
        before = self.fleet.meant(name).spec
        fields = {field: getattr(before, field) for field in before.__struct_fields__}
        fields |= {"id": f"{name}@{next(self._swaps)}", "options": dict(settings["options"])}
        return DeploymentSpec(**fields), lambda: None

    async def run(self) -> ServeExit:
        """The supervisor's whole life."""
        return await self._supervisor.run()

    def order(self, action: str, model: str, **settings: Any) -> None:
        """What an operator wants; the last answer is in `outcomes`."""

        def hear(message: Message) -> None:
            if isinstance(message, Outcome):
                self.outcomes.append(message)

        self.ordered += 1
        self.orders.take(Order(action=action, model=model, settings=settings), hear)


@contextlib.contextmanager
def installed(world: Callable[[], World]) -> Iterator[None]:
    """Sockets, threads and disks are the world's in here."""

    def dial(*arguments: Any, **options: Any) -> Any:
        return world().network.dial(*arguments, **options)

    class Thread:
        def __init__(self, target: Callable[[], None], **_: Any) -> None:
            self._target = target

        def start(self) -> None:
            world().loop.call_later(world().making_s(), self._target)

    async def aside(work: Callable[[], Any], *, limit_s: float) -> Any:
        return work()

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            world().log.write(f"{world().loop.time():.4f} {record.getMessage()}\n")

    heard, handler = logging.getLogger("framehost"), Log()
    propagated, heard.propagate = heard.propagate, False
    heard.addHandler(handler)
    with contextlib.ExitStack() as stack:
        stack.callback(heard.removeHandler, handler)
        stack.callback(setattr, heard, "propagate", propagated)
        for name, stand_in in {
            "frontend.serving.management.dial": dial,
            "frontend.serving.hostlink.dial": dial,
            "frontend.serving.making.threading": SimpleNamespace(Thread=Thread),
            "executor_host.supervision.host_slot.aside": aside,
            "executor_host.supervision.hosts.aside": aside,
            "executor_host.supervision.fleet.aside": aside,
            "executor_host.supervision.host_slot.resident_bytes": lambda pid: 0,
            "executor_host.supervision.front_slot.resident_bytes": lambda pid: 0,
            "executor_host.supervision.server.stop_signals": mock.Mock(),
        }.items():
            stack.enter_context(mock.patch(name, stand_in))
        stack.enter_context(mock.patch.dict(families.BUILT_IN, {each.name: each for each in (SIMULATED, SHARING)}))
        yield
