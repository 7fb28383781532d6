"""A deployment without hosts, one that is about to lose them, and one that its name does not mean any more."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frontend.errors import HostDied, RequestTooLarge, Unavailable, UsageError
from frontend.serving.replica import Availability
from protocol import families
from tests.helpers import fake_family
from tests.helpers.fake_host import FakeHost, until, zmq_context
from tests.unit.test_deployment import Bench


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)


def row(**changes: Any) -> dict[str, Any]:
    """What the table says of it now."""
    return {"role": "current", "present": True, "refusal": "", **changes}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with zmq_context() as context:
        made = Bench(context, max_requests=10, max_cost=100)
        yield made
        made.close()


@pytest.fixture
async def absent(bench: Bench) -> Bench:
    """A deployment that has no host."""
    bench.deployment.assume(row(present=False))
    for replica in bench.deployment.replicas:
        replica.availability = Availability.ABSENT
    bench.told.clear()
    return bench


async def waits(bench: Bench, number: int = 1) -> None:
    await until(lambda: bench.deployment.statistics().waiting_for_host == number, f"{number} wait for a host")


async def test_a_valid_request_wants_a_host_once_and_is_prepared_by_what_it_reports(absent: Bench) -> None:
    """Nothing is queued or costs anything before there is a host; then it is prepared anew and executed."""
    first, second = absent.ask(), absent.ask()
    await waits(absent, 2)
    assert absent.deployment.wanted
    assert absent.told.count("wanted") == 1
    assert absent.held() == [(2, 0), (0, 0)], "a slot, and no cost"
    absent.deployment.assume(row())
    assert not absent.deployment.wanted
    host = await absent.host()
    for _ in range(2):
        host.answer((await host.unit()).call)
    await first
    await second
    assert absent.told[-1] == "idle"
    assert absent.held() == [(0, 0), (0, 0)]


async def test_a_bad_request_wants_nothing(absent: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by what is in the folder alone."""

    def prepare(_: object) -> object:
        raise UsageError("this family does not")

    monkeypatch.setattr(absent.deployment.processor, "prepare", prepare)
    with pytest.raises(UsageError):
        await absent.ask()
    assert "wanted" not in absent.told


async def test_a_request_that_admission_would_refuse_wants_nothing(absent: Bench) -> None:
    """Too costly for ever: 413, and no model is loaded to find that out."""
    with pytest.raises(RequestTooLarge):
        await absent.ask("cost:101")
    assert "wanted" not in absent.told
    assert absent.held() == [(0, 0), (0, 0)]


async def test_who_leaves_does_not_want_any_more(absent: Bench) -> None:
    """The last one takes the wish back."""
    asked = absent.ask()
    await waits(absent)
    asked.cancel()
    await asyncio.wait([asked])
    assert not absent.deployment.wanted
    assert absent.told[0] == "wanted"
    assert "idle" in absent.told
    assert absent.held() == [(0, 0), (0, 0)]


async def test_a_request_whose_time_is_over_before_there_is_a_host_is_told_so(absent: Bench) -> None:
    """503 with Retry-After, and not 504: it was never taken."""
    with pytest.raises(Unavailable, match="could not be loaded within the request's time") as caught:
        await absent.ask(timeout=0.05)
    assert caught.value.retry_after
    assert not absent.deployment.wanted


async def test_a_refusal_ends_who_waits_and_whoever_comes(absent: Bench) -> None:
    """There cannot be room: 503 with the reason, at once."""
    asked = absent.ask()
    await waits(absent)
    absent.deployment.assume(row(present=False, refusal="it is too large"))
    with pytest.raises(Unavailable, match="it is too large"):
        await asked
    with pytest.raises(Unavailable, match="it is too large"):
        await absent.ask()


async def test_a_host_that_cannot_be_started_ends_who_waits(absent: Bench) -> None:
    """The supervisor gives up: 503, and whoever comes then does not wait."""
    asked = absent.ask()
    await waits(absent)
    absent.deployment.assume(row())
    host = FakeHost(absent.zmq)
    absent.hosts.append(host)
    absent.deployment.host_down(host.down(will_restart=False))
    with pytest.raises(Unavailable, match="has failed"):
        await asked
    with pytest.raises(Unavailable):
        await absent.ask()


async def test_one_that_is_stopped_for_its_successor_has_not_failed(bench: Bench) -> None:
    """In the middle of a stop-first swap health is not told of a failure: whoever comes waits."""
    host = await bench.host()
    bench.deployment.assume(row(role="held"))
    bench.deployment.host_down(host.down(will_restart=False))
    assert bench.deployment.availability is Availability.ABSENT
    bench.deployment.assume(row(role="held"))
    assert bench.deployment.availability is Availability.LOADING
    await bench.host("2-b")
    assert bench.deployment.availability is Availability.READY


@pytest.mark.parametrize("role", ["held", "retired"])
async def test_who_waits_for_a_host_goes_along_when_the_name_moves(absent: Bench, role: str) -> None:
    """Nothing was prepared: the caller looks again what the name means. The deployment counts as drained meanwhile."""
    asked = absent.ask()
    await waits(absent)
    absent.told.clear()
    successor = Bench(absent.zmq)
    host = await successor.host()
    if role == "retired":
        absent.server.deployments["m"] = successor.deployment
    absent.deployment.assume(row(present=False, role=role))
    assert absent.told == ["drained"], "who only waits needs no host"
    if role == "held":
        await waits(absent, 0)
        assert not asked.done(), "it waits at the name"
        absent.server.deployments["m"] = successor.deployment
        absent.deployment.assume(row(present=False, role="retired"))
    host.answer((await host.unit()).call)
    await asked
    successor.close()


async def test_one_that_is_to_leave_finishes_what_it_has_and_takes_nobody(bench: Bench) -> None:
    """Drained is said when the last request that needs the host has ended, and not before; newcomers want a host."""
    host = await bench.host("1-a")
    asked = bench.ask()
    unit = await host.unit()
    bench.told.clear()
    bench.deployment.assume(row(present=False))
    assert "drained" not in bench.told
    newcomer = bench.ask()
    await waits(bench)
    assert bench.deployment.wanted
    host.answer(unit.call)
    await asked
    assert "drained" in bench.told
    assert host.units.empty()
    bench.deployment.host_down(host.down(will_restart=False))
    assert bench.deployment.availability is Availability.ABSENT
    bench.deployment.assume(row())
    assert bench.deployment.availability is Availability.LOADING
    successor = await bench.host("2-b")
    successor.answer((await successor.unit()).call)
    await newcomer


async def test_a_retired_deployment_is_drained_when_its_last_request_has_ended(bench: Bench) -> None:
    """Also one that it had before; told again after every table, for a supervisor that waits."""
    host = await bench.host()
    first, second = bench.ask(), bench.ask()
    unit = await host.unit()
    await bench.waiting(1)
    bench.told.clear()
    bench.deployment.assume(row(role="retired"))
    host.answer(unit.call)
    await first
    assert "drained" not in bench.told
    host.answer((await host.unit()).call)
    await second
    assert bench.told.count("drained") == 1
    bench.deployment.assume(row(role="retired"))
    assert bench.told.count("drained") == 2


async def test_the_least_loaded_ready_replica_is_chosen_and_one_death_leaves_the_other() -> None:
    """Units of one request stay together, equals take turns, a dead one gets nobody new, and its queue waits for it."""
    with zmq_context() as context:
        two = Bench(context, replicas=2)
        hosts = []
        for number in range(2):
            host = FakeHost(context, f"{number + 1}-a")
            two.hosts.append(host)
            hosts.append(host)
            two.deployment.host_up(dataclasses.replace(host.up(), replica=number))
        replicas = two.deployment.replicas
        await until(lambda: all(replica.availability is Availability.READY for replica in replicas), "both")
        work = [two.ask("units:2"), two.ask(), two.ask()]
        units = [await host.unit() for host in hosts]
        await until(lambda: [replica.load for replica in two.deployment.replicas] == [2, 1], "a third behind the first")
        two.deployment.host_down(dataclasses.replace(hosts[0].down(), replica=0))
        with pytest.raises(HostDied):
            await work[0]
        assert two.deployment.availability is Availability.READY
        late = [two.ask(), two.ask()]
        await until(lambda: [replica.load for replica in replicas] == [1, 3], "behind the living one")
        hosts[1].answer(units[1].call)
        for _ in late:
            hosts[1].answer((await hosts[1].unit()).call)
        await asyncio.gather(work[1], *late)
        assert not work[2].done()
        successor = FakeHost(context, "3-a")
        two.hosts.append(successor)
        two.deployment.host_up(dataclasses.replace(successor.up(), replica=0))
        successor.answer((await successor.unit()).call)
        await work[2]
        two.close()


async def test_a_stop_ends_the_queue_of_a_host_that_is_not_there(bench: Bench) -> None:
    """No host is started during a stop: 503 at once for who waits for the next one, and for who is prepared then."""
    host = await bench.host()
    bench.deployment.host_down(host.down())
    waiting = bench.ask()
    await bench.waiting(1)
    bench.deployment.begin_stop()
    with pytest.raises(HostDied, match="the server is stopping and starts no host of model 'm'") as caught:
        await waiting
    assert (caught.value.dispatched, caught.value.retry_after) == (False, 5)
    with pytest.raises(Unavailable, match="the server is stopping"):
        await bench.ask()
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_stop_leaves_a_warm_host_its_queue(bench: Bench) -> None:
    """Also one that the front has only to greet: what was prepared for it is executed."""
    host = await bench.host(shy=True)
    waiting = bench.ask()
    await bench.waiting(1)
    bench.deployment.begin_stop()
    late = bench.ask()
    await bench.waiting(2)
    await until(lambda: not host.hellos.empty(), "the greeting")
    host.welcome()
    for asked in (waiting, late):
        host.answer((await host.unit()).call)
        await asked


async def test_a_stop_ends_the_queue_of_a_dead_replica_and_of_no_other() -> None:
    """The living one serves its own queue to the end, and whoever was not queued yet."""
    with zmq_context() as context:
        two = Bench(context, replicas=2)
        two.hosts += [FakeHost(context, f"{number + 1}-a") for number in range(2)]
        for number, host in enumerate(two.hosts):
            two.deployment.host_up(dataclasses.replace(host.up(), replica=number))
        replicas = two.deployment.replicas
        await until(lambda: all(replica.availability is Availability.READY for replica in replicas), "both")
        work = [two.ask() for _ in range(4)]
        units = [await host.unit() for host in two.hosts]
        await until(lambda: [replica.load for replica in replicas] == [2, 2], "one queued behind each")
        two.deployment.host_down(dataclasses.replace(two.hosts[0].down(), replica=0))
        two.deployment.begin_stop()
        ended = await asyncio.gather(work[0], work[2], return_exceptions=True)
        assert [(type(error), getattr(error, "dispatched", None)) for error in ended] == [
            (HostDied, True),
            (HostDied, False),
        ]
        late = two.ask()
        await until(lambda: replicas[1].load == 3, "behind the living one")
        for _ in range(2):
            two.hosts[1].answer(units[1].call)
            units[1] = await two.hosts[1].unit()
        two.hosts[1].answer(units[1].call)
        await asyncio.gather(work[1], work[3], late)
        two.close()


async def test_a_request_between_two_units_does_not_wait_for_a_host_that_will_not_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next unit would be queued after the queue has been ended: 503 instead, at once."""
    host = await bench.host()

    def absorb(*_: object) -> object:
        bench.deployment.host_down(host.down(will_restart=False))
        return None

    monkeypatch.setattr(bench.deployment.processor, "absorb", absorb)
    asked = bench.ask("units:2")
    host.answer((await host.unit()).call)
    with pytest.raises(HostDied) as caught:
        await asked
    assert caught.value.dispatched is False
    assert bench.held() == [(0, 0), (0, 0)]


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize(
    ("host", "availability"),
    [
        ({"state": "coming"}, "loading"),
        ({"state": "coming", "last_death": "killed", "retry_after_s": 2.0}, "restarting"),
        ({"state": "failed", "last_death": "killed"}, "failed"),
        ({"state": "none"}, None),
    ],
)
async def test_the_table_says_where_each_host_is_whatever_was_said_before(
    bench: Bench, host: dict[str, Any], availability: str | None, present: bool
) -> None:
    """States and no steps: a front that knew something else, or nothing, knows the truth after it."""
    replica = bench.deployment.replicas[0]
    for before in (Availability.LOADING, Availability.RESTARTING, Availability.FAILED, Availability.ABSENT):
        replica.availability = before
        bench.deployment.assume(row(present=present, hosts=[host]))
        assert replica.availability.value == (availability or ("loading" if present else "absent"))
    assert bench.deployment.last_death == host.get("last_death", "")


async def test_a_host_that_is_there_stays_whatever_the_table_says(bench: Bench) -> None:
    """Its end is told by HOST_DOWN, with what it had taken."""
    await bench.host()
    bench.deployment.assume(row(hosts=[{"state": "failed", "last_death": "killed"}]))
    assert bench.deployment.availability is Availability.READY
