"""A unit that was sent to a host which died before it had taken it: it waits again, before all others."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from frontend.errors import DeadlineExceeded, HostDied, Misuse
from frontend.observation.record import RequestTable
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.scheduler import SerialScheduler
from frontend.runtime.signals import Granted, Signal
from protocol.states import RequestEvent, RequestState
from tests.unit.runtime.fakes import FakeHost, request, spawn
from tests.virtual_time import settle, virtual, virtual_loop


@virtual
async def test_a_unit_that_is_requeued_is_the_next_to_be_sent() -> None:
    """Before those that waited behind it, once, with the permit and every reservation as they were."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    scheduler.suspend()
    host.requeue("a")
    seen = scheduler.statistics()
    assert (seen.running, seen.waiting, seen.requeued, seen.withdrawn) == (0, 3, 1, 0)
    assert slots.statistics().outstanding == 3
    await settle()
    assert host.sent == ["a"] and not any(task.done() for task in tasks.values())
    scheduler.resume()
    assert host.sent == ["a", "a"]
    for name in "abc":
        host.answer(name)
    assert host.sent == ["a", "a", "b", "c"]
    assert await asyncio.gather(*tasks.values()) == ["answer to a", "answer to b", "answer to c"]
    seen = scheduler.statistics()
    assert (seen.dispatched, seen.requeued, seen.completed, seen.failed) == (4, 1, 3, 0)
    assert slots.statistics().outstanding == 0


@virtual
async def test_it_may_be_requeued_again_and_again() -> None:
    """As often as hosts die without having taken it."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    for _ in range(3):
        scheduler.suspend()
        host.requeue("a")
        scheduler.resume()
    host.answer("a")
    assert await tasks["a"] == "answer to a"
    assert host.sent == ["a"] * 4 and host.most_busy == 1


@virtual
async def test_a_caller_that_has_left_takes_its_unit_along() -> None:
    """Nobody waits for it: it is withdrawn in the same step, its reservation goes back, and it is not sent again."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    tasks["a"].cancel()
    await settle()
    assert slots.statistics().outstanding == 2
    scheduler.suspend()
    host.requeue("a")
    seen = scheduler.statistics()
    assert (seen.running, seen.waiting, seen.withdrawn, slots.statistics().outstanding) == (0, 1, 1, 1)
    scheduler.resume()
    host.answer("b")
    await tasks["b"]
    assert host.sent == ["a", "b"]
    seen = scheduler.statistics()
    assert (seen.completed, seen.failed, seen.withdrawn, seen.dropped_results) == (1, 0, 1, 0)


@virtual
async def test_a_caller_that_is_leaving_in_this_very_tick_takes_it_along_too() -> None:
    """Its task is cancelled and has not run since."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    scheduler.suspend()
    tasks["a"].cancel()
    host.requeue("a")
    assert (scheduler.statistics().waiting, scheduler.statistics().withdrawn) == (0, 1)
    with pytest.raises(asyncio.CancelledError):
        await tasks["a"]
    scheduler.resume()
    assert host.sent == ["a"]


@virtual
async def test_a_caller_that_leaves_afterwards_leaves_the_queue() -> None:
    """It waits like any other."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    told = []
    tasks = spawn(scheduler, host, "a")
    await settle()
    host.busy["a"].on_abandoned(lambda: told.append("the dead host"))
    scheduler.suspend()
    host.requeue("a")
    tasks["a"].cancel()
    await settle()
    assert (scheduler.statistics().waiting, scheduler.statistics().withdrawn) == (0, 1)
    assert slots.statistics().outstanding == 0
    scheduler.resume()
    assert (host.sent, told) == (["a"], [])


@virtual
async def test_a_caller_that_leaves_the_next_host_is_told_to_that_one_alone() -> None:
    """What its former host had to be told of a cancellation is forgotten."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    told = []
    tasks = spawn(scheduler, host, "a")
    await settle()
    host.busy["a"].on_abandoned(lambda: told.append("the dead host"))
    scheduler.suspend()
    host.requeue("a")
    scheduler.resume()
    host.busy["a"].on_abandoned(lambda: told.append("the next host"))
    tasks["a"].cancel()
    await settle()
    assert told == ["the next host"]
    host.answer("a")


@virtual
async def test_its_deadline_goes_on() -> None:
    """It ends at its time while it waits for a host, and is not sent if the time is over at the grant."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    waits = asyncio.create_task(request(scheduler, host, "waits", deadline=2.0))
    await settle()
    scheduler.suspend()
    host.requeue("waits")
    with pytest.raises(TimeoutError):
        await waits
    assert virtual_loop().time() == 2.0
    scheduler.resume()
    late = asyncio.create_task(request(scheduler, host, "late", deadline=3.0))
    await settle()
    scheduler.suspend()
    host.requeue("late")
    virtual_loop().advance(1.0)
    scheduler.resume()
    with pytest.raises(DeadlineExceeded):
        await late
    assert host.sent == ["waits", "late"]
    assert scheduler.statistics().withdrawn == 2


@virtual
async def test_it_ends_with_the_queue() -> None:
    """No host will come, or another model does: it was not executed, and is told what the others are told."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    scheduler.suspend()
    host.requeue("a")
    assert scheduler.fail_waiting(lambda: HostDied("gone", dispatched=False, retry_after=1)) == 2
    for name in "ab":
        with pytest.raises(HostDied, match="was not started"):
            await tasks[name]
    assert host.sent == ["a"]


@virtual
async def test_its_signals_say_that_it_began_anew() -> None:
    """Requeued, granted and started again, with a token of its own for each grant; admitted once."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    heard: list[Signal] = []
    task = asyncio.create_task(request(scheduler, host, "a", observer=heard.append))
    await settle()
    unit = host.busy["a"]
    token = unit.granted
    scheduler.suspend()
    host.requeue("a")
    with pytest.raises(Misuse):
        _ = unit.granted
    scheduler.resume()
    assert unit.granted is not token
    host.answer("a")
    await task
    names = [type(signal).__name__ for signal in heard]
    assert names == ["Admitted", "Granted", "Started", "Requeued", "Granted", "Started"]
    assert {(signal.scheduler, signal.unit) for signal in heard} == {("model", 1)}
    assert [signal for signal in heard if isinstance(signal, Granted)] == [token, unit.granted]


@virtual
async def test_the_record_counts_the_time_at_the_dead_host_as_waiting() -> None:
    """Queued 1 s, 2 s at a host that never took it, 4 s without one, executed 8 s."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    record = RequestTable(virtual_loop().time).begin("id")
    record.prepared()
    scheduler.suspend()
    task = asyncio.create_task(request(scheduler, host, "a", observer=record.observe))
    await asyncio.sleep(1.0)
    scheduler.resume()
    assert record.state is RequestState.RUNNING
    await asyncio.sleep(2.0)
    scheduler.suspend()
    host.requeue("a")
    assert record.state is RequestState.QUEUED
    await asyncio.sleep(4.0)
    scheduler.resume()
    assert record.state is RequestState.RUNNING
    await asyncio.sleep(8.0)
    host.answer("a")
    await task
    record.unit_done()
    record.end(RequestEvent.ANSWER)
    assert (record.queued_s, record.executed_s) == (7.0, 8.0)
    assert not virtual_loop().reported


@virtual
async def test_internal_work_is_requeued_as_well() -> None:
    """Without a context there is nobody to tell, and the place is the same."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    task = asyncio.create_task(scheduler.run(host.start("warm-up")))
    await settle()
    scheduler.suspend()
    host.requeue("warm-up")
    scheduler.resume()
    host.answer("warm-up")
    assert await task == "answer to warm-up"


@virtual
async def test_what_was_captured_lives_until_the_unit_ends() -> None:
    """It is needed once more; after the end nothing keeps it."""

    class Payload:
        pass

    host, scheduler = FakeHost(), SerialScheduler("model")

    def run(payload: Payload) -> asyncio.Task[str]:
        send = host.start("a")

        def start(dispatch: Dispatch[str]) -> None:
            assert payload is not None
            send(dispatch)

        return asyncio.create_task(scheduler.run(start))

    payload = Payload()
    alive = weakref.ref(payload)
    task = run(payload)
    del payload
    await settle()
    scheduler.suspend()
    host.requeue("a")
    gc.collect()
    assert alive() is not None
    scheduler.resume()
    host.answer("a")
    await task
    gc.collect()
    assert alive() is None


@virtual
async def test_only_a_dispatched_unit_of_a_suspended_scheduler_can_be_requeued() -> None:
    """Else it would be granted to its dead host in the same step, or it is somebody else's already."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    task = spawn(scheduler, host, "a")["a"]
    await settle()
    unit = host.busy["a"]
    with pytest.raises(Misuse, match="dead host"):
        unit.requeue()
    scheduler.suspend()
    unit.requeue()
    for once_more in (unit.requeue, lambda: unit.complete("x"), lambda: unit.fail(OSError())):
        with pytest.raises(Misuse):
            once_more()
    scheduler.resume()
    host.answer("a")
    with pytest.raises(Misuse):
        unit.requeue()
    await task

    def start(dispatch: Dispatch[None]) -> None:
        scheduler.suspend()
        dispatch.requeue()

    with pytest.raises(Misuse, match="dead host"):
        await scheduler.run(start)
    assert (scheduler.statistics().waiting, scheduler.statistics().running) == (0, 0)
