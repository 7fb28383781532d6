"""One seed: its events, the run, and what has to be true of every run.

    a client asks, leaves · a host or the front is killed · a host stands still, everything stands still
    a lane is held, a connection to another machine breaks, a lease is lost · swap, load, unload, cancel

A run is its seed and its events: both together run again exactly.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frontend.serving.replica import Availability
from protocol.exits import ServeExit
from tests.simulation.world import LIMIT_S, MODELS, World, installed
from tests.virtual_time import VirtualTimeLoop, run_virtual

STORM_S = 15.0
"""How long faults come."""

CALM_S = 180.0
"""When they are over, what every model has to be ready again: the longest back-off, some loads, and the drains."""

LATE_S = 1.0
"""A request's end may come so much later than its time was over."""

TURNS: Final = 2_000
"""Turns of the loop in one moment: more is two parts that answer each other for ever."""

STEPS: Final = 2_000
"""Callbacks of one turn."""

NAMES: Final = tuple(spec.name for spec, _ in MODELS)

WEIGHTS: Final = {
    "ask": 70,
    "leave": 6,
    "kill a host": 6,
    "kill the front": 2,
    "freeze a host": 3,
    "freeze everything": 1,
    "hold a lane": 5,
    "break a connection": 3,
    "lose a lease": 1,
    "swap": 3,
    "load": 1,
    "unload": 2,
    "cancel": 1,
}


class Event(NamedTuple):
    """What happens, when, and four numbers in 0..1 that say the rest."""

    at: float
    what: str
    one: float = 0.0
    two: float = 0.0
    three: float = 0.0
    four: float = 0.0


def events_of(seed: int) -> tuple[Event, ...]:
    """The events of a seed, in the order of their times."""
    choose = random.Random(f"events {seed}")
    count = choose.randint(20, 90)
    kinds = choose.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    made = (
        Event(round(choose.uniform(0, STORM_S), 3), kind, *(choose.randrange(1000) / 1000 for _ in range(4)))
        for kind in kinds
    )
    return tuple(sorted(made))


class BoundedLoop(VirtualTimeLoop):
    """No turn has too many steps, and no moment too many turns."""

    def __init__(self) -> None:
        super().__init__()
        self._turns, self._moment = 0, -1.0

    def _run_once(self) -> None:
        self._turns = self._turns + 1 if self.time() == self._moment else 0
        self._moment = self.time()
        steps = len(self._ready)  # type: ignore[attr-defined]
        assert self._turns <= TURNS, f"{self._turns} turns of the loop at {self._moment}: {self._ready}"  # type: ignore[attr-defined]
        assert steps <= STEPS, f"{steps} callbacks in one turn of the loop"
        super()._run_once()  # type: ignore[misc]


@dataclass(slots=True)
class Asked:
    """One request, and how it ended: a word, "left", "closed" (its front died)."""

    number: int
    model: str
    units: int
    timeout_s: float
    began: float
    ended: float = 0.0
    ends: list[str] = field(default_factory=list)
    task: asyncio.Task[str] | None = None


class Run:
    """One run; `trace` is what happened, for a comparison of two."""

    def __init__(self, seed: int, events: Sequence[Event] | None = None) -> None:
        self.seed = seed
        self.events = events_of(seed) if events is None else tuple(events)
        self.asked: list[Asked] = []
        self.trace: list[str] = []
        self._world: World | None = None
        self._paused = 0.0

    def __call__(self) -> None:
        """Raises `AssertionError` when something is wrong, with the seed and the events."""
        try:
            with installed(lambda: self.world):
                run_virtual(self._main(), BoundedLoop)
        except BaseException as error:
            listed = "\n".join(f"    {tuple(event)}," for event in self.events)
            told = "" if self._world is None else self._world.log.getvalue()[-6000:]
            raise AssertionError(f"{error!r}\n{told}\nRun({self.seed}, [\n{listed}\n])()") from error

    @property
    def world(self) -> World:
        assert self._world is not None
        return self._world

    # The run

    async def _main(self) -> None:
        self._world = world = World(random.Random(f"world {self.seed}"))
        loop = world.loop
        serving = loop.create_task(world.run())
        await asyncio.wait_for(world.slot.served.wait(), 30)
        world.calm = world.network.calm = False
        began = loop.time()
        for event in self.events:
            await asyncio.sleep(max(0.0, began + event.at - loop.time()))
            getattr(self, "_" + event.what.replace(" ", "_"))(event)
        await asyncio.sleep(max(0.0, began + STORM_S - loop.time()))
        world.calm = world.network.calm = True
        await self._recovered()
        await self._everything_given_back()
        world.life.stop()
        assert await asyncio.wait_for(serving, 60) is ServeExit.CLEAN, "the stop was not clean"
        await asyncio.sleep(2 * LIMIT_S)
        assert not world.hosts, f"still there: {world.hosts}"
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left: {left}"
        # How long a real process took to get there is no part of the run.
        self.trace.append(re.sub(r"[\d.]+ s after the start", "", world.log.getvalue()))
        self._check_requests()

    # What happens

    def _ask(self, event: Event) -> None:
        # One of eight asks what another one has asked just before.
        twin = event.four > 0.875 and self.asked
        number = self.asked[-1].number if twin else len(self.asked)
        units = self.asked[-1].units if twin else 1 + int(event.two * 3)
        model = self.asked[-1].model if twin else NAMES[int(event.one * len(NAMES))]
        timeout_s = 0.05 + 20.0 * event.three**3
        self._begin(Asked(number, model, units, timeout_s, self.world.loop.time()))

    def _begin(self, asked: Asked) -> None:
        front = self.world.front
        self.asked.append(asked)
        if front is None or not front.serving:
            asked.ends.append("refused")  # there is nobody to connect to
            return
        asked.task = front.ask(asked.model, asked.number, asked.units, asked.timeout_s)

        def ended(task: asyncio.Task[str]) -> None:
            asked.ended = self.world.loop.time()
            asked.ends.append("gone" if task.cancelled() else task.result())
            self.trace.append(f"{asked.number} {asked.model} {asked.ended:.6f} {asked.ends}")

        asked.task.add_done_callback(ended)

    def _leave(self, event: Event) -> None:
        waiting = [asked.task for asked in self.asked if asked.task is not None and not asked.task.done()]
        if waiting:
            waiting[int(event.one * len(waiting))].cancel()

    def _kill_a_host(self, event: Event) -> None:
        if self.world.hosts:
            self.world.hosts[int(event.one * len(self.world.hosts))].die()

    def _kill_the_front(self, event: Event) -> None:
        if self.world.front is not None:
            self.world.front.kill()

    def _freeze_a_host(self, event: Event) -> None:
        if self.world.hosts:
            self.world.hosts[int(event.one * len(self.world.hosts))].freeze(8 * event.two**2)

    def _freeze_everything(self, event: Event) -> None:
        seconds = 60 * event.one
        self._paused += seconds
        loop = self.world.loop
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(seconds)

    def _hold_a_lane(self, event: Event) -> None:
        lanes = self.world.network.lanes
        if lanes:
            lanes[int(event.one * len(lanes))].hold(3 * event.two**2)

    def _break_a_connection(self, event: Event) -> None:
        for host in self.world.hosts:
            if host.remote:
                lanes = [
                    lane
                    for address in host.addresses
                    for lane in self.world.network.of(address)
                    if lane.identity != b"supervisor"
                ]
                if lanes:
                    lanes[int(event.one * len(lanes))].break_off()

    def _lose_a_lease(self, event: Event) -> None:
        for host in self.world.hosts:
            if host.remote:
                host.lost()

    def _swap(self, event: Event) -> None:
        model = NAMES[int(event.one * 3)]  # hosts elsewhere are not swapped
        mode = "start-first" if event.two < 0.5 else "stop-first"
        options = {"identity": f"new {event.three}"} if event.three > 0.3 else {"fail": "load"}
        self.world.order("swap", model, mode=mode, options=options)

    def _load(self, event: Event) -> None:
        self.world.order("load", NAMES[int(event.one * 3)])

    def _unload(self, event: Event) -> None:
        self.world.order("unload", NAMES[int(event.one * 3)])

    def _cancel(self, event: Event) -> None:
        self.world.order("cancel", NAMES[int(event.one * 3)])

    # What has to be true

    async def _recovered(self) -> None:
        """Every model answers again, one after the other, whoever has to make room for it."""
        for model in NAMES:
            end = self.world.loop.time() + CALM_S
            while True:
                probe = Asked(10_000 + len(self.asked), model, 1, 30.0, self.world.loop.time())
                self._begin(probe)
                if probe.task is not None:
                    await asyncio.wait([probe.task])
                if probe.ends == ["answered"]:
                    break
                assert self.world.loop.time() < end, f"{model} is not answered any more: {probe}"
                await asyncio.sleep(1.0)

    async def _everything_given_back(self) -> None:
        """No budget is held, no replica is on its way for ever, and front and supervisor agree."""
        end = self.world.loop.time() + CALM_S
        while wrong := self._not_given_back():
            assert self.world.loop.time() < end, wrong
            await asyncio.sleep(1.0)

    def _not_given_back(self) -> str:
        """What is not as it has to be when there was time enough."""
        world, front = self.world, self.world.front
        assert world.life.failure is None and not world.life.stopping, "the server ended by itself"
        assert not world.failures, world.failures
        if front is None or not front.serving:
            return "no front serves"
        server, there = front.server, list(world.fleet)
        facts = {
            "evictions go on": bool(world.fleet.evictions),
            "requests are open": server.requests.statistics().open > 0,
            "deployments of a swap are left": bool(server.others) or len(there) > len(MODELS),
            f"{len(world.hosts)} hosts": len(world.hosts) != sum(len(one.everywhere) for one in there if one.present),
            f"{len(world.outcomes)} of {world.ordered} orders have an outcome": len(world.outcomes) != world.ordered,
        }
        for name, deployment in server.deployments.items():
            seen, hosts = deployment.statistics(), world.fleet.meant(name)
            queue, agreed = seen.scheduler, Availability.READY if hosts.present else Availability.ABSENT
            facts |= {
                f"{name} holds {seen.admissions}": any(layer.outstanding or layer.held for layer in seen.admissions),
                f"{name} has {queue}": bool(queue.waiting or queue.running or queue.staged or queue.joined),
                f"{name} is two": (hosts.spec.id, hosts.present) != (deployment.id, deployment.present),
            }
            for slot, replica in zip(hosts.slots, deployment.replicas, strict=True):
                incarnation = "" if slot.life.up is None else slot.life.up.incarnation
                facts[f"{replica!r}, and at the supervisor {slot!r}"] = (
                    replica.availability is not agreed
                    or slot.life.ready != hosts.present
                    or (hosts.present and incarnation != replica.statistics().incarnation)
                )
        return "; ".join(what for what, wrong in facts.items() if wrong)

    def _check_requests(self) -> None:
        asked_for = Counter((asked.number, index) for asked in self.asked for index in range(asked.units))
        for unit, times in self.world.executed.items():
            assert times <= asked_for[unit], f"unit {unit} was executed {times} times, asked {asked_for[unit]} times"
        for asked in self.asked:
            assert len(asked.ends) == 1, f"{asked} has {len(asked.ends)} ends"
            late = asked.ended - asked.began - asked.timeout_s - self._paused
            assert late < LATE_S, f"{asked} ended {late:.2f} s late"
