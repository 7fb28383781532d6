"""May this request go in, and to whom? One deployment, its fake hosts, and the supervisor played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zmq

from frontend import limits
from frontend.errors import HostDied, InternalError, QueueFull, RequestTooLarge, Unavailable
from frontend.families.base import Decision
from frontend.observation.record import RequestTable
from frontend.requests.questions import DecisionRequest, Noul
from frontend.serving import pipeline
from frontend.serving.deployment import Deployment
from frontend.serving.replica import Availability
from frontend.serving.server import Server, ServerLimits
from protocol import families
from protocol.messages import Execute, HostUp
from protocol.states import RequestEvent
from tests.helpers import fake_family
from tests.helpers.asking import Asking
from tests.helpers.fake_host import GUARD_S, FakeHost, failure, until, zmq_context


class Bench:
    """A deployment and what it needs."""

    def __init__(self, context: zmq.Context[Any], **bounds: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.zmq = context
        self.told: list[str] = []
        self.verdicts: list[tuple[str, str]] = []
        self.table = RequestTable(self.loop.time)
        self.hosts: list[FakeHost] = []
        model: dict[str, Any] = {
            "id": "m@1",
            "name": "m",
            "role": "current",
            "family": "fake",
            "options": {},
            "max_requests": None,
            "max_cost": None,
            **bounds,
        }
        self.deployment = Deployment(
            model,
            loop=self.loop,
            zmq_context=context,
            epoch="front-1",
            listener=self,
        )
        self.server = Server(
            self.loop, ServerLimits(), deployments={"m": self.deployment}, default="m", clock=self.loop.time
        )
        self.server.pool.shutdown()
        self.server.pool = ThreadPoolExecutor(1)

    # What the deployment is used for

    def drained(self, deployment: Deployment) -> None:
        self.told.append("drained")

    def usage_changed(self, deployment: Deployment) -> None:
        self.told.append("wanted" if deployment.wanted else "idle" if deployment.idle_s is not None else "used")

    def overdue(self, deployment: Deployment, incarnation: str, seconds: float) -> None:
        self.told.append(f"overdue {incarnation}")

    def judged(self, deployment: Deployment, up: HostUp, refusal: str) -> None:
        self.verdicts.append((up.incarnation, refusal))

    async def host(self, incarnation: str = "1-a", *, identity: str = "same", **options: Any) -> FakeHost:
        """A host that is up, and has been welcomed unless it is shy."""
        host = FakeHost(self.zmq, incarnation, **options)
        self.hosts.append(host)
        self.deployment.host_up(host.up(identity=identity))
        if not host.shy:
            await until(lambda: self.deployment.availability is Availability.READY, "ready")
        return host

    def ask(self, state: str = "x", *, size: int = 10, timeout: float | None = None) -> asyncio.Task[Decision]:
        return self.loop.create_task(self._ask(state, size, timeout))

    async def _ask(self, state: str, size: int, timeout: float | None) -> Decision:
        async with asyncio.timeout(GUARD_S):
            return await self._decide(state, size, timeout)

    async def _decide(self, state: str, size: int, timeout: float | None) -> Decision:
        record = self.table.begin("id")
        event = RequestEvent.FAIL
        asking = Asking(
            DecisionRequest("m", state, (Noul("q", "is it?", None),)),
            size,
            None if timeout is None else round(timeout * 1000),
        )
        try:
            decision = await pipeline.answered(self.server, asking, record, record.observe)
            event = RequestEvent.ANSWER
            return decision
        except asyncio.CancelledError:
            event = RequestEvent.CANCEL
            raise
        finally:
            record.end(event)

    async def waiting(self, number: int) -> None:
        await until(lambda: self.deployment.scheduler.statistics().waiting == number, f"{number} waiting")

    def held(self) -> list[tuple[int, int]]:
        """(outstanding, cost held) of every layer."""
        return [(layer.outstanding, layer.held) for layer in self.deployment.statistics().admissions]

    def close(self) -> None:
        self.deployment.close()
        for host in self.hosts:
            host.close()
        self.server.metrics.close()
        self.server.pool.shutdown()
        self.server.parser.shutdown()


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)
    fake_family.GATE.clear()
    fake_family.ENTERED.clear()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with zmq_context() as context:
        made = Bench(context, max_requests=10, max_cost=100)
        yield made
        made.close()


async def test_a_request_is_prepared_sent_and_finished(bench: Bench) -> None:
    """Every unit in order, one output each, and everything given back."""
    host = await bench.host()
    asked = bench.ask("units:3")
    for _ in range(3):
        host.answer((await host.unit()).call)
    assert [output["call"] for output in (await asked).extras["x_all"]] == [1, 2, 3]
    assert bench.held() == [(0, 0), (0, 0)]


async def test_nothing_is_sent_before_the_host_has_said_welcome(bench: Bench) -> None:
    """HOST_UP is the supervisor's word; the first unit waits for the host's own."""
    host = await bench.host(shy=True)
    asked = bench.ask()
    await bench.waiting(1)
    async with asyncio.timeout(20):
        await host.hellos.get()
    assert host.units.empty()
    assert bench.deployment.availability is Availability.LOADING
    host.welcome()
    host.answer((await host.unit()).call)
    await asked


async def test_a_death_fails_what_runs_and_keeps_what_waits(bench: Bench) -> None:
    """Dispatched ends at once, the queue goes on with the next incarnation in its order."""
    host = await bench.host("1-a")
    first, second, third = bench.ask("one"), bench.ask("two"), bench.ask("three")
    await host.unit()
    await bench.waiting(2)
    bench.deployment.host_down(host.down())
    with pytest.raises(HostDied) as caught:
        await first
    assert caught.value.dispatched
    assert "was being executed when its host died" in caught.value.message
    assert "not sent again" in caught.value.message
    assert host.units.empty()
    assert bench.held() == [(2, 0), (2, 2)]
    successor = await bench.host("2-b")
    for _ in range(2):
        unit = await successor.unit()
        assert unit.incarnation == "2-b"
        successor.answer(unit.call)
    await second
    await third
    assert bench.held() == [(0, 0), (0, 0)]


@pytest.mark.parametrize("taken", [{}, {"front-1": 1}, {"front-0": 9, "front-1": 1}], ids=["nothing", "1", "others"])
async def test_what_a_dead_host_had_not_taken_keeps_its_place(bench: Bench, taken: dict[str, int]) -> None:
    """Call 2 was sent to it and is not among what it took: it is the first that the next incarnation gets."""
    host = await bench.host("1-a")
    before = bench.ask("zero")
    host.answer((await host.unit()).call)
    await before
    first, second = bench.ask("one"), bench.ask("two")
    sent = await host.unit()
    await bench.waiting(1)
    bench.deployment.host_down(host.down(taken=taken))
    await bench.waiting(2)
    assert bench.table.statistics().open == 2
    successor = await bench.host("2-b")
    again = await successor.unit()
    assert (sent.call, again.call) == (2, 1)
    assert isinstance(again.message, Execute) and isinstance(sent.message, Execute)
    assert again.message.payload == sent.message.payload
    successor.answer(again.call)
    await first
    assert not second.done()
    successor.answer((await successor.unit()).call)
    await second
    assert bench.held() == [(0, 0), (0, 0)]


@pytest.mark.parametrize("taken", [None, {"front-1": 1}, {"front-1": 2}], ids=["not known", "1", "more"])
async def test_what_a_dead_host_had_taken_is_not_sent_again(bench: Bench, taken: dict[str, int] | None) -> None:
    """Its number, a later one, or no word about it: it may have been executed, and ends with 503."""
    host = await bench.host("1-a")
    asked = bench.ask()
    await host.unit()
    bench.deployment.host_down(host.down(taken=taken))
    with pytest.raises(HostDied) as caught:
        await asked
    assert caught.value.dispatched
    assert (await bench.host("2-b")).units.empty()


async def test_what_hosts_die_of_before_they_take_it_is_not_sent_for_ever(bench: Bench) -> None:
    """Three hosts in a row, the same unit on its way to each: 503, and what waits behind it is served."""
    asked = bench.ask("large")
    behind = None
    for number in range(3):
        host = await bench.host(f"{number}-a")
        await host.unit()
        behind = behind or bench.ask("behind")
        await bench.waiting(1)
        bench.deployment.host_down(host.down(taken={}))
    with pytest.raises(HostDied) as caught:
        await asked
    assert "on its way" in caught.value.message
    assert "not sent again" in caught.value.message
    host = await bench.host("3-a")
    host.answer((await host.unit()).call)
    assert behind is not None
    await behind
    assert bench.held() == [(0, 0), (0, 0)]


async def test_what_was_not_taken_ends_as_what_waits_does(bench: Bench) -> None:
    """No host will come, or one with other weights, or the client leaves: not dispatched, nothing left."""
    host = await bench.host("1-a", identity="old")
    asked = bench.ask()
    await host.unit()
    bench.deployment.host_down(host.down(taken={}))
    await bench.waiting(1)
    host = await bench.host("2-b", identity="new")
    with pytest.raises(HostDied, match="was replaced") as replaced:
        await asked
    leaver = bench.ask()
    await host.unit()
    bench.deployment.host_down(host.down(taken={}))
    await bench.waiting(1)
    leaver.cancel()
    await bench.waiting(0)
    host = await bench.host("3-c", identity="new")
    asked = bench.ask()
    await host.unit()
    bench.deployment.host_down(host.down(will_restart=False, taken={}))
    with pytest.raises(HostDied) as final:
        await asked
    assert replaced.value.dispatched is final.value.dispatched is False
    assert host.cancels.empty()
    assert bench.held() == [(0, 0), (0, 0)]
    assert bench.table.statistics().ended == {"failed": 2, "cancelled": 1}


async def test_the_end_of_a_former_incarnation_does_not_end_this_one(bench: Bench) -> None:
    """A late HOST_DOWN names an incarnation that is not linked: nothing happens to the one that is."""
    first = await bench.host("1-a")
    bench.deployment.host_down(first.down())
    second = await bench.host("2-b")
    asked = bench.ask()
    unit = await second.unit()
    bench.deployment.host_down(first.down())
    assert bench.deployment.availability is Availability.READY
    second.answer(unit.call)
    await asked


async def test_another_identity_ends_the_queue(bench: Bench) -> None:
    """What was prepared for one model is not run on another: 503, not dispatched; the newcomer is served."""
    host = await bench.host("1-a", identity="old")
    first, second = bench.ask(), bench.ask()
    await host.unit()
    await bench.waiting(1)
    bench.deployment.host_down(host.down())
    with pytest.raises(HostDied):
        await first
    successor = await bench.host("2-b", identity="new")
    with pytest.raises(HostDied) as caught:
        await second
    assert caught.value.dispatched is False
    assert "not started" in caught.value.message
    assert "being executed" not in caught.value.message
    assert bench.deployment.statistics().identity == "new"
    asked = bench.ask()
    successor.answer((await successor.unit()).call)
    await asked


async def test_no_unit_of_a_request_runs_on_another_identity_than_the_first(bench: Bench) -> None:
    """Between two units the model was replaced: the request ends, its remaining units are not sent."""
    host = await bench.host("1-a", identity="old")
    several, other = bench.ask("units:2"), bench.ask("other")
    unit = await host.unit()
    await bench.waiting(1)
    host.answer(unit.call)
    # `other` holds the executor now and `several` waits with its second unit.
    await host.unit()
    await bench.waiting(1)
    bench.deployment.host_down(host.down())
    successor = await bench.host("2-b", identity="new")
    with pytest.raises(HostDied) as caught:
        await several
    assert caught.value.dispatched is False
    with pytest.raises(HostDied):
        await other
    assert successor.units.empty()
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_host_that_retires_gets_nothing_more(bench: Bench) -> None:
    """A fatal failure: the queue is closed before the permit moves, so the next unit goes to the successor."""
    host = await bench.host("1-a")
    first, second = bench.ask(), bench.ask()
    unit = await host.unit()
    await bench.waiting(1)
    host.answer(unit.call, failure("fatal", 503, fatal=True))
    with pytest.raises(HostDied):
        await first
    assert bench.deployment.availability is Availability.RESTARTING
    assert host.units.empty()
    bench.deployment.host_down(host.down())
    successor = await bench.host("2-b")
    successor.answer((await successor.unit()).call)
    await second


async def test_a_busy_host_of_an_earlier_front_holds_the_permit(bench: Bench) -> None:
    """The orphan's unit keeps the executor until the host says that it is idle."""
    host = await bench.host(busy_epoch="front-0")
    asked = bench.ask()
    await bench.waiting(1)
    assert bench.deployment.scheduler.statistics().held_for_earlier_front
    assert host.units.empty()
    host.idle()
    host.answer((await host.unit()).call)
    await asked
    assert not bench.deployment.scheduler.statistics().held_for_earlier_front


async def test_a_second_welcome_or_idle_report_changes_nothing(bench: Bench) -> None:
    """Told twice, the scheduler is not held twice and not released twice."""
    host = await bench.host(busy_epoch="front-0")
    host.welcome()
    host.idle()
    host.idle()
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked


async def test_an_orphan_ends_with_its_host(bench: Bench) -> None:
    """The host died with the unit of an earlier front: the permit is free for the successor."""
    host = await bench.host("1-a", busy_epoch="front-0")
    asked = bench.ask()
    await bench.waiting(1)
    bench.deployment.host_down(host.down())
    successor = await bench.host("2-b")
    successor.answer((await successor.unit()).call)
    await asked


async def test_a_newcomer_waits_for_a_host_that_is_expected_soon(bench: Bench) -> None:
    """Restarting within the wait: the request queues; beyond it, or beyond its own deadline: 503 at once."""
    host = await bench.host("1-a")
    bench.deployment.host_down(host.down(retry_after_s=limits.RESTART_WAIT_S - 1))
    patient = bench.ask()
    await bench.waiting(1)
    with pytest.raises(Unavailable) as caught:
        await bench.ask(timeout=1.0)
    assert 1 <= (caught.value.retry_after or 0) <= limits.RETRY_AFTER_SECONDS[1]
    successor = await bench.host("2-b")
    successor.answer((await successor.unit()).call)
    await patient


async def test_a_newcomer_does_not_wait_for_a_host_that_takes_long(bench: Bench) -> None:
    """503 with the largest Retry-After; nothing is reserved."""
    host = await bench.host("1-a")
    bench.deployment.host_down(host.down(retry_after_s=300))
    with pytest.raises(Unavailable) as caught:
        await bench.ask()
    assert caught.value.retry_after == limits.RETRY_AFTER_SECONDS[1]
    assert "not started" in caught.value.message
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_newcomer_does_not_wait_for_a_host_that_should_be_back_long_since(bench: Bench) -> None:
    """Nobody knows when it comes: 503 at once, to come again as rarely as may be said; who waited before goes on."""
    host = await bench.host()
    bench.deployment.host_down(host.down(retry_after_s=0.0))
    waiting = bench.ask()
    await bench.waiting(1)
    (replica,) = bench.deployment.replicas
    replica.back_at -= limits.RESTART_WAIT_S + 1
    with pytest.raises(Unavailable) as caught:
        await bench.ask()
    assert caught.value.retry_after == limits.RETRY_AFTER_SECONDS[1]
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_without_another_host_the_queue_ends_at_once(bench: Bench) -> None:
    """The restart budget is spent: what waits gets its 503 now, and so does whoever comes."""
    host = await bench.host("1-a")
    first, second = bench.ask(), bench.ask()
    await host.unit()
    await bench.waiting(1)
    bench.deployment.host_down(host.down(will_restart=False))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [(type(result), getattr(result, "dispatched", None)) for result in results] == [
        (HostDied, True),
        (HostDied, False),
    ]
    assert bench.deployment.availability is Availability.FAILED
    with pytest.raises(Unavailable):
        await bench.ask()
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_death_while_nobody_was_linked_is_taken_note_of(bench: Bench) -> None:
    """A host that died before the front knew it: its words are kept, and the next one is dialled."""
    host = FakeHost(bench.zmq, "1-a")
    bench.hosts.append(host)
    bench.deployment.host_down(host.down())
    assert bench.deployment.availability is Availability.RESTARTING
    assert "SIGKILL" in bench.deployment.last_death
    await bench.host("2-b")


async def test_two_hosts_at_once_are_a_bug_of_the_supervisor(bench: Bench) -> None:
    """HOST_UP before HOST_DOWN: loud, and the first host goes on."""
    host = await bench.host("1-a")
    with pytest.raises(RuntimeError):
        await bench.host("2-b")
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked


async def test_a_cost_that_never_fits_is_not_told_to_come_back(bench: Bench) -> None:
    """413 without Retry-After above the whole budget; 429 with it while the budget is in use; then admitted."""
    host = await bench.host()
    with pytest.raises(RequestTooLarge) as never:
        await bench.ask("cost:101")
    assert never.value.retry_after is None
    big = bench.ask("cost:60")
    unit = await host.unit()
    with pytest.raises(QueueFull) as now:
        await bench.ask("cost:41")
    assert now.value.retry_after == 1
    assert "m cost" in now.value.message
    assert "requested 41, in use 60, limit 100" in now.value.message
    fits = bench.ask("cost:40")
    await bench.waiting(1)
    host.answer(unit.call)
    host.answer((await host.unit()).call)
    await big
    await fits
    assert bench.held() == [(0, 0), (0, 0)]


async def test_slots_in_use_are_refused_and_named(bench: Bench) -> None:
    """The eleventh of ten gets 429 and is told which budget it hit."""
    host = await bench.host()
    ten = [bench.ask() for _ in range(10)]
    await bench.waiting(9)
    with pytest.raises(QueueFull, match="m requests"):
        await bench.ask()
    for _ in range(10):
        host.answer((await host.unit()).call)
    await asyncio.gather(*ten)
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_client_that_leaves_a_large_preparation_leaves_its_slot(bench: Bench) -> None:
    """A thread cannot be stopped, so the reservation is given back when the thread is done."""
    await bench.host()
    asked = bench.ask("held", size=limits.INLINE_WORK_BYTES + 1)
    await until(fake_family.ENTERED.is_set, "the preparation")
    assert bench.held() == [(1, 0), (0, 0)]
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert bench.table.statistics().open == 0
    assert bench.held() == [(1, 0), (0, 0)], "the thread still computes for it"
    fake_family.GATE.set()
    await until(lambda: bench.held() == [(0, 0), (0, 0)], "given back")


async def test_a_large_preparation_that_is_over_is_not_begun(bench: Bench) -> None:
    """The pool was busy: a request whose client has left in the meantime costs the next one nothing."""
    await bench.host()
    first = bench.ask("held", size=limits.INLINE_WORK_BYTES + 1)
    await until(fake_family.ENTERED.is_set, "the preparation")
    fake_family.ENTERED.clear()
    second = bench.ask("held", size=limits.INLINE_WORK_BYTES + 1)
    await until(lambda: bench.held()[0] == (2, 0), "the slot of the second")
    first.cancel()
    second.cancel()
    await asyncio.wait([first, second])
    fake_family.GATE.set()
    await until(lambda: bench.held() == [(0, 0), (0, 0)], "given back")
    assert not fake_family.ENTERED.is_set()


async def test_small_work_stays_on_the_loop_and_large_work_does_not(bench: Bench) -> None:
    """The loop goes on turning while a large request is prepared and while a large answer is finished."""
    host = await bench.host()
    held = bench.ask("held", size=limits.INLINE_WORK_BYTES + 1)
    await until(fake_family.ENTERED.is_set, "the preparation")
    small = bench.ask("small", size=limits.INLINE_WORK_BYTES)
    host.answer((await host.unit()).call)
    await small
    fake_family.GATE.set()
    host.answer((await host.unit()).call)
    await held
    large = bench.ask("large")
    host.answer((await host.unit()).call)
    await large


async def test_closing_ends_everything_with_503(bench: Bench) -> None:
    """The end of the process: what runs and what waits is told so, once."""
    host = await bench.host()
    first, second = bench.ask(), bench.ask()
    await host.unit()
    await bench.waiting(1)
    bench.deployment.close()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [HostDied, HostDied]
    assert bench.held() == [(0, 0), (0, 0)]
    bench.deployment.close()


async def test_a_failed_unit_ends_its_request_alone(bench: Bench) -> None:
    """500 for the one, the next one in the queue is sent to the same host."""
    host = await bench.host()
    first, second = bench.ask("units:3"), bench.ask()
    host.answer((await host.unit()).call, failure())
    with pytest.raises(Exception, match="it failed") as caught:
        await first
    assert getattr(caught.value, "status", None) == 500
    host.answer((await host.unit()).call)
    await second
    assert host.units.empty()
    assert bench.deployment.availability is Availability.READY


async def test_an_output_of_another_shape_is_an_internal_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `absorb` or `finish` refuses ends the request and gives everything back."""
    host = await bench.host()

    def absorb(*_: object) -> object:
        raise InternalError("not an answer")

    monkeypatch.setattr(bench.deployment.processor, "absorb", absorb)
    asked = bench.ask("units:2")
    host.answer((await host.unit()).call)
    with pytest.raises(InternalError):
        await asked
    assert host.units.empty()
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_host_with_other_files_is_left_alone(bench: Bench) -> None:
    """What this front would prepare does not fit its weights. 503 until another one comes."""
    first = await bench.host("1-a")
    bench.deployment.host_down(first.down())
    waiting = bench.ask()
    await bench.waiting(1)
    foreign = FakeHost(bench.zmq, "2-b")
    bench.hosts.append(foreign)
    bench.deployment.host_up(foreign.up(identity="foreign"))
    with pytest.raises(HostDied):
        await waiting
    assert bench.deployment.availability is Availability.FAILED
    statistics = bench.deployment.statistics()
    assert (statistics.last_death, statistics.identity) == ("these are other weights", "same")
    with pytest.raises(Unavailable):
        await bench.ask()
    assert foreign.hellos.empty()
    bench.deployment.host_down(foreign.down())
    host = await bench.host("3-c")
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked
    assert bench.held() == [(0, 0), (0, 0)]


async def test_families_that_tokenize_leave_the_loop_earlier(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body is prepared on the loop when that takes no longer than reading the largest one that is."""
    await bench.host()
    monkeypatch.setattr(fake_family.FakeProcessor, "PREPARE_WEIGHT", 16)
    asked = bench.ask("held", size=limits.INLINE_WORK_BYTES // 16 + 1)
    await until(fake_family.ENTERED.is_set, "a thread prepares")
    fake_family.GATE.set()
    bench.hosts[0].answer((await bench.hosts[0].unit()).call)
    await asked


def test_a_processor_is_told_its_path() -> None:
    """The table of models names it; without one it is None."""
    processor = fake_family.FakeProcessor({}, {}, "/somewhere")
    assert (processor.path, fake_family.FakeProcessor({}, {}).path) == ("/somewhere", None)


async def test_the_port_waits_for_the_first_words_of_warm_hosts(bench: Bench) -> None:
    """Whoever is let in finds health that says so."""
    server = Server(bench.loop, ServerLimits(), deployments={"m": bench.deployment})
    await server.hosts_greeted()  # nobody was dialled: there is nothing to wait for
    host = await bench.host(shy=True)
    waiting = asyncio.create_task(server.hosts_greeted())
    async with asyncio.timeout(GUARD_S):
        await host.hellos.get()
    assert not waiting.done()
    host.welcome()
    await waiting
    assert server.health() == (200, {"status": "ok", "models": {"m": "ready"}})
    server.pool.shutdown()


async def test_the_port_does_not_wait_for_a_host_that_hangs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its execution limit; the others are served meanwhile."""
    monkeypatch.setattr("frontend.serving.server.GREETING_S", 0.01)
    server = Server(bench.loop, ServerLimits(), deployments={"m": bench.deployment})
    await bench.host(shy=True)
    await server.hosts_greeted()
    assert bench.deployment.greeting
    server.pool.shutdown()
