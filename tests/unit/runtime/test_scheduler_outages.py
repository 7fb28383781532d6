"""The host is down, gone for good, or still busy for an earlier front: suspend, fail_waiting, hold."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from frontend.errors import HostDied, Misuse
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.scheduler import SerialScheduler
from tests.unit.runtime.fakes import FakeHost, request, spawn
from tests.virtual_time import settle, virtual, virtual_loop


@virtual
async def test_suspended_nothing_is_granted_and_the_queue_keeps_its_order() -> None:
    """Those who waited go first when the host is back, in the very step of the resume."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    scheduler.suspend()
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    assert host.sent == [] and scheduler.statistics().waiting == 3
    scheduler.resume()
    assert host.sent == ["a"]
    for name in "abc":
        host.answer(name)
    assert host.sent == ["a", "b", "c"]
    await asyncio.gather(*tasks.values())


@virtual
async def test_a_host_death_ends_the_dispatched_unit_and_keeps_the_queued_ones() -> None:
    """Suspend, fail the running one, resume with the next incarnation: only one caller hears of it."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    scheduler.suspend()
    host.fail("a", HostDied("host died", dispatched=True, retry_after=1))
    with pytest.raises(HostDied) as lost:
        await tasks["a"]
    assert lost.value.dispatched
    assert (scheduler.statistics().running, scheduler.statistics().waiting) == (0, 2)
    assert host.sent == ["a"]
    await asyncio.sleep(3.0)
    scheduler.resume()
    host.answer("b")
    host.answer("c")
    assert await asyncio.gather(tasks["b"], tasks["c"]) == ["answer to b", "answer to c"]
    assert slots.statistics().outstanding == 0


@virtual
async def test_deadlines_and_cancels_act_while_suspended() -> None:
    """Waiting for a restart is waiting: it ends at the deadline, and a client may leave."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    scheduler.suspend()
    tasks = spawn(scheduler, host, "leaver")
    await settle()
    tasks["leaver"].cancel()
    with pytest.raises(TimeoutError):
        await request(scheduler, host, "late", deadline=2.0)
    assert virtual_loop().time() == 2.0
    assert scheduler.statistics().waiting == 0
    scheduler.resume()
    assert host.sent == []


@virtual
async def test_the_running_unit_may_finish_while_suspended() -> None:
    """Suspending is about grants: what is running ends as it would have, and nobody follows yet."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    scheduler.suspend()
    host.answer("a")
    assert await tasks["a"] == "answer to a"
    assert host.sent == ["a"]
    scheduler.resume()
    host.answer("b")
    await tasks["b"]


@virtual
async def test_suspending_or_resuming_twice_is_misuse() -> None:
    """A host transition that is told twice means another one was lost."""
    scheduler = SerialScheduler("model")
    with pytest.raises(Misuse):
        scheduler.resume()
    scheduler.suspend()
    with pytest.raises(Misuse):
        scheduler.suspend()
    assert scheduler.statistics().suspended
    scheduler.resume()
    with pytest.raises(Misuse):
        scheduler.resume()
    assert not scheduler.statistics().suspended


@virtual
async def test_a_start_that_suspends_stops_the_line_behind_it() -> None:
    """The link finds the host dead while sending: its unit fails and nothing else is granted."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    gate = spawn(scheduler, host, "gate")
    await settle()

    def dead_end(dispatch: object) -> None:
        scheduler.suspend()
        raise HostDied("gone", dispatched=False, retry_after=1)

    failing = asyncio.create_task(scheduler.run(dead_end))
    await settle()
    tasks = spawn(scheduler, host, "behind")
    await settle()
    host.answer("gate")
    with pytest.raises(HostDied):
        await failing
    assert host.sent == ["gate"] and scheduler.statistics().waiting == 1
    scheduler.resume()
    host.answer("behind")
    await asyncio.gather(*gate.values(), *tasks.values())


@virtual
async def test_fail_waiting_ends_every_waiting_unit_with_an_error_of_its_own() -> None:
    """At once, each its own instance, the running one untouched, and the scheduler usable afterwards."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    tasks = spawn(scheduler, host, "a", "b", "c", "d")
    await settle()
    serial = count(1)
    assert scheduler.fail_waiting(lambda: HostDied(f"no {next(serial)}", dispatched=False, retry_after=1)) == 3
    assert scheduler.statistics().waiting == 0
    errors = [tasks[name] for name in "bcd"]
    await asyncio.wait(errors)
    assert [str(task.exception()).partition(":")[0] for task in errors] == ["no 1", "no 2", "no 3"]
    assert slots.statistics().outstanding == 1
    assert scheduler.fail_waiting(lambda: RuntimeError("nobody")) == 0
    tasks |= spawn(scheduler, host, "e")
    await settle()
    host.answer("a")
    host.answer("e")
    assert host.sent == ["a", "e"]
    assert await asyncio.gather(tasks["a"], tasks["e"]) == ["answer to a", "answer to e"]
    assert scheduler.statistics().withdrawn == 3


@virtual
async def test_fail_waiting_ends_all_even_if_its_factory_raises() -> None:
    """Each unit ends with what the factory did for it; none is left behind."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    scheduler.suspend()
    tasks = spawn(scheduler, host, "a", "b")
    await settle()

    def broken() -> BaseException:
        raise ZeroDivisionError

    assert scheduler.fail_waiting(broken) == 2
    await asyncio.wait(tasks.values())
    assert all(isinstance(task.exception(), ZeroDivisionError) for task in tasks.values())
    assert scheduler.statistics().waiting == 0


@virtual
async def test_a_held_scheduler_grants_nothing_until_the_host_is_free() -> None:
    """A restarted front over a warm host that is still busy: the first frame leaves with the release."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    orphan = scheduler.hold_for_earlier_front()
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    seen = scheduler.statistics()
    assert (seen.held_for_earlier_front, seen.running, seen.waiting) == (True, 0, 2)
    assert "held for an earlier front" in repr(scheduler)
    orphan.release()
    assert host.sent == ["a"]
    with pytest.raises(Misuse):
        orphan.release()
    assert host.most_busy == 1
    host.answer("a")
    host.answer("b")
    await asyncio.gather(*tasks.values())


@virtual
async def test_only_an_idle_scheduler_can_be_held() -> None:
    """Not while a unit runs, not from inside a start, not twice."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    with pytest.raises(Misuse):
        scheduler.hold_for_earlier_front()
    host.answer("a")
    await tasks["a"]

    def start(dispatch: object) -> None:
        scheduler.hold_for_earlier_front()

    with pytest.raises(Misuse):
        await scheduler.run(start)
    orphan = scheduler.hold_for_earlier_front()
    with pytest.raises(Misuse):
        scheduler.hold_for_earlier_front()
    orphan.release()
    scheduler.hold_for_earlier_front().release()


@virtual
async def test_old_work_cannot_release_a_newer_hold() -> None:
    """The permit goes back through the object that holds it."""
    scheduler = SerialScheduler("model")
    old = scheduler.hold_for_earlier_front()
    old.release()
    new = scheduler.hold_for_earlier_front()
    with pytest.raises(Misuse):
        old.release()
    assert scheduler.statistics().held_for_earlier_front
    new.release()


@virtual
async def test_held_and_suspended_both_have_to_end() -> None:
    """The busy host died: release, then resume, in either order, and only then is anything granted."""
    for release_first in (True, False):
        host, scheduler = FakeHost(), SerialScheduler("model")
        scheduler.suspend()
        tasks = spawn(scheduler, host, "a")
        await settle()
        orphan = scheduler.hold_for_earlier_front()
        first, second = (orphan.release, scheduler.resume) if release_first else (scheduler.resume, orphan.release)
        first()
        assert host.sent == []
        second()
        assert host.sent == ["a"]
        host.answer("a")
        await tasks["a"]
