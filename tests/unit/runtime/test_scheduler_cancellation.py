"""What is left behind if the caller is cancelled here: while waiting, after dispatch, in the same tick."""

from __future__ import annotations

import asyncio

import pytest

from frontend.errors import Cancelled
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.scheduler import SerialScheduler
from tests.unit.runtime.fakes import FakeHost, admitted, new_context, request, spawn
from tests.virtual_time import settle, virtual, virtual_loop


def model() -> tuple[FakeHost, SerialScheduler, BoundedAdmission]:
    slots = BoundedAdmission("slots", requests=10_000)
    return FakeHost(), SerialScheduler("model", layers=(slots,)), slots


def assert_idle(scheduler: SerialScheduler, *layers: BoundedAdmission) -> None:
    """An idle system shows zeros, and its books add up."""
    seen = scheduler.statistics()
    assert (seen.waiting, seen.running, seen.abandoned, seen.held_for_earlier_front) == (0, 0, 0, False), scheduler
    for layer in layers:
        assert (layer.statistics().outstanding, layer.statistics().held) == (0, 0), layer


@virtual
async def test_cancelled_while_waiting_is_removed_at_once_and_never_dispatched() -> None:
    """The queue is shorter in that tick, nothing is held, and the one behind runs in its place."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    tasks["b"].cancel()
    await settle()
    assert scheduler.statistics().waiting == 1
    assert slots.statistics().outstanding == 2
    host.answer("a")
    host.answer("c")
    await asyncio.wait(tasks.values())
    assert tasks["b"].cancelled()
    assert host.sent == ["a", "c"]
    assert scheduler.statistics().withdrawn == 1
    assert_idle(scheduler, slots)


@virtual
async def test_the_head_of_the_queue_may_leave_without_holding_up_the_line() -> None:
    """All but the last of many waiters leave, in both directions; the last one is served."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, *(str(number) for number in range(100)))
    await settle()
    for number in [*range(1, 50), *reversed(range(50, 99))]:
        tasks[str(number)].cancel()
    await settle()
    host.answer("0")
    assert host.sent == ["0", "99"]
    host.answer("99")
    await asyncio.wait(tasks.values())
    assert_idle(scheduler, slots)


@virtual
async def test_cancelled_after_dispatch_the_permit_stays_with_the_work() -> None:
    """The caller is gone, the host is not: permits in use stay 1 until it answers, and only then the next runs."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    tasks["a"].cancel()
    await asyncio.wait([tasks["a"]])
    await settle()
    seen = scheduler.statistics()
    assert (seen.running, seen.abandoned, seen.waiting, seen.dropped_results) == (1, 1, 1, 0)
    assert host.busy["a"].abandoned
    assert slots.statistics().outstanding == 2
    assert host.sent == ["a"]
    host.answer("a")
    assert host.sent == ["a", "b"]
    assert slots.statistics().outstanding == 1
    seen = scheduler.statistics()
    assert (seen.completed, seen.dropped_results, seen.abandoned) == (1, 1, 0)
    host.answer("b")
    assert await tasks["b"] == "answer to b"
    assert_idle(scheduler, slots)


@virtual
async def test_the_dispatched_work_hears_that_its_caller_is_gone() -> None:
    """Its own clone of the context is cancelled by the caller's guard, and still open."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a")
    await settle()
    clone = host.busy["a"].context
    assert clone is not None and not clone.cancelled
    tasks["a"].cancel()
    await asyncio.wait([tasks["a"]])
    assert clone.cancelled and clone.holds(slots)
    host.fail("a", Cancelled("the host stopped it"))
    assert clone.closed
    seen = scheduler.statistics()
    assert (seen.failed, seen.dropped_results) == (1, 1)
    assert_idle(scheduler, slots)


@virtual
async def test_a_deadline_after_dispatch_answers_the_client_and_keeps_the_slot() -> None:
    """The 504 leaves while the host still computes; its late result is dropped and the next one is right."""
    host, scheduler, slots = model()
    late = asyncio.create_task(request(scheduler, host, "late", deadline=1.0))
    await settle()
    following = spawn(scheduler, host, "following")
    with pytest.raises(TimeoutError):
        await late
    assert virtual_loop().time() == 1.0
    assert (scheduler.statistics().running, slots.statistics().outstanding) == (1, 2)
    host.answer("late")
    host.answer("following")
    assert await following["following"] == "answer to following"
    assert_idle(scheduler, slots)


@virtual
async def test_release_then_cancel_in_one_tick_dispatches_and_orphans() -> None:
    """Chosen, then cancelled: the unit was sent, keeps the permit, and the turn is not lost."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    host.answer("a")
    tasks["b"].cancel()
    assert host.sent == ["a", "b"]
    await settle()
    assert host.busy["b"].abandoned
    assert scheduler.statistics().abandoned == 1
    host.answer("b")
    assert host.sent == ["a", "b", "c"]
    host.answer("c")
    await asyncio.wait(tasks.values())
    assert tasks["b"].cancelled()
    assert_idle(scheduler, slots)


@virtual
async def test_cancel_then_release_in_one_tick_passes_the_turn_on() -> None:
    """The caller has not run yet and is gone all the same: its unit is skipped in the same step."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    tasks["b"].cancel()
    host.answer("a")
    assert host.sent == ["a", "c"]
    host.answer("c")
    await asyncio.wait(tasks.values())
    assert tasks["b"].cancelled()
    assert scheduler.statistics().withdrawn == 1
    assert_idle(scheduler, slots)


@virtual
async def test_an_answer_and_a_cancel_in_one_tick_end_the_unit_once() -> None:
    """In both orders: one release, one dropped result, CancelledError for the caller."""
    for cancel_first in (True, False):
        host, scheduler, slots = model()
        tasks = spawn(scheduler, host, "a")
        await settle()
        if cancel_first:
            tasks["a"].cancel()
            host.answer("a")
        else:
            host.answer("a")
            tasks["a"].cancel()
        await asyncio.wait(tasks.values())
        assert tasks["a"].cancelled()
        seen = scheduler.statistics()
        assert (seen.completed, seen.dropped_results) == (1, 1)
        assert_idle(scheduler, slots)


@virtual
async def test_a_death_and_a_cancel_in_one_tick_release_once() -> None:
    """In both orders, and the error that nobody asks for is not reported as forgotten."""
    for cancel_first in (True, False):
        host, scheduler, slots = model()
        tasks = spawn(scheduler, host, "a")
        await settle()
        if cancel_first:
            tasks["a"].cancel()
            host.fail("a", RuntimeError("host died"))
        else:
            host.fail("a", RuntimeError("host died"))
            tasks["a"].cancel()
        await asyncio.wait(tasks.values())
        assert tasks["a"].cancelled()
        seen = scheduler.statistics()
        assert (seen.failed, seen.dropped_results) == (1, 1)
        assert_idle(scheduler, slots)


@virtual
async def test_a_queued_death_and_a_cancel_in_one_tick_are_one_withdrawal() -> None:
    """fail_waiting tells a caller that is cancelled before it could listen."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    tasks["c"].cancel()
    assert scheduler.fail_waiting(lambda: RuntimeError("host died")) == 1
    tasks["b"].cancel()
    host.answer("a")
    await asyncio.wait(tasks.values())
    assert tasks["b"].cancelled() and tasks["c"].cancelled()
    seen = scheduler.statistics()
    assert (seen.withdrawn, seen.dropped_results) == (2, 0)
    assert_idle(scheduler, slots)


@virtual
async def test_a_result_that_races_the_timeout_is_never_swallowed() -> None:
    """An outer cancel in the tick of the result still cancels; a result without one arrives."""
    for cancel in (True, False):
        host, scheduler, slots = model()
        task = asyncio.create_task(request(scheduler, host, "a", deadline=9.0))
        await settle()
        host.answer("a")
        if cancel:
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() is cancel
        assert_idle(scheduler, slots)


@virtual
async def test_a_coroutine_that_is_closed_leaves_like_one_that_is_cancelled() -> None:
    """Waiting: withdrawn. Dispatched: abandoned, and its error later disturbs nobody."""
    host, scheduler, slots = model()
    for name in ("a", "b"):
        context = new_context(admitted(slots))
        coroutine = scheduler.run_with_context(context, host.start(name))
        coroutine.send(None)
        if name == "a":
            left = coroutine
        else:
            coroutine.close()
        context.close()
    left.close()
    seen = scheduler.statistics()
    assert (seen.waiting, seen.withdrawn, seen.abandoned) == (0, 1, 1)
    host.fail("a", RuntimeError("late"))
    assert scheduler.statistics().dropped_results == 1
    assert_idle(scheduler, slots)


# on_abandoned: the link sends its CANCEL from here


@virtual
async def test_leaving_after_dispatch_calls_back_once_in_that_step() -> None:
    """Called before the caller's CancelledError gets any further, and never again."""
    host, scheduler, slots = model()
    cancels: list[str] = []
    order: list[str] = []

    async def caller() -> None:
        try:
            await request(scheduler, host, "a")
        finally:
            order.append("caller out")

    task = asyncio.create_task(caller())
    await settle()
    host.busy["a"].on_abandoned(lambda: (cancels.append("first"), order.append("cancel sent"))[0])
    host.busy["a"].on_abandoned(lambda: cancels.append("second"))
    task.cancel()
    await settle()
    assert cancels == ["first", "second"]
    assert order == ["cancel sent", "caller out"]
    host.answer("a")
    assert cancels == ["first", "second"]
    assert_idle(scheduler, slots)


@virtual
async def test_registering_after_the_caller_left_calls_back_at_once() -> None:
    """The link may be slow to register; the cancel is not lost."""
    host, scheduler, _ = model()
    tasks = spawn(scheduler, host, "a")
    await settle()
    tasks["a"].cancel()
    await settle()
    cancels: list[str] = []
    host.busy["a"].on_abandoned(lambda: cancels.append("cancel"))
    assert cancels == ["cancel"]
    host.answer("a")


@virtual
async def test_registering_between_the_cancel_and_its_delivery_calls_back_once() -> None:
    """The task is cancelled and has not run: the callback comes with its departure."""
    host, scheduler, _ = model()
    tasks = spawn(scheduler, host, "a")
    await settle()
    tasks["a"].cancel()
    cancels: list[str] = []
    host.busy["a"].on_abandoned(lambda: cancels.append("cancel"))
    await settle()
    assert cancels == ["cancel"]
    host.answer("a")


@virtual
async def test_nothing_calls_back_for_a_unit_that_has_ended() -> None:
    """Success, or an end in the tick of the cancel: there is nothing left to withdraw."""
    host, scheduler, _ = model()
    cancels: list[str] = []
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    dispatch = host.busy["a"]
    dispatch.on_abandoned(lambda: cancels.append("a"))
    host.answer("a")
    dispatch.on_abandoned(lambda: cancels.append("a, late"))
    host.busy["b"].on_abandoned(lambda: cancels.append("b"))
    tasks["b"].cancel()
    host.answer("b")
    await asyncio.wait(tasks.values())
    assert cancels == []


@virtual
async def test_a_callback_that_raises_is_reported_and_the_others_are_called() -> None:
    """The caller gets its CancelledError, the permit stays with the unit."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a")
    await settle()
    cancels: list[str] = []
    host.busy["a"].on_abandoned(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    host.busy["a"].on_abandoned(lambda: cancels.append("sent"))
    tasks["a"].cancel()
    await asyncio.wait(tasks.values())
    assert tasks["a"].cancelled() and cancels == ["sent"]
    assert isinstance(virtual_loop().reported.pop()["exception"], ZeroDivisionError)
    assert scheduler.statistics().running == 1
    host.answer("a")
    assert_idle(scheduler, slots)


@virtual
async def test_a_callback_may_end_its_unit() -> None:
    """The link knows its host is dead: the unit ends there, the next one starts, once."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    cancels: list[str] = []
    host.busy["a"].on_abandoned(lambda: host.fail("a", RuntimeError("dead")))
    host.busy["a"].on_abandoned(lambda: cancels.append("too late"))
    tasks["a"].cancel()
    await settle()
    assert host.sent == ["a", "b"] and cancels == []
    host.answer("b")
    await asyncio.wait(tasks.values())
    assert_idle(scheduler, slots)


@virtual
async def test_two_thousand_waiters_are_neither_slow_to_leave_nor_in_the_way_of_a_release() -> None:
    """Every other one leaves; one release is seen by the next living waiter in the same step."""
    host, scheduler, slots = model()
    tasks = spawn(scheduler, host, *(str(number) for number in range(2_000)))
    await settle()
    for number in range(1, 2_000, 2):
        tasks[str(number)].cancel()
    await settle()
    assert scheduler.statistics().waiting == 999
    for number in range(0, 2_000, 2):
        assert host.sent[-1] == str(number)
        host.answer(str(number))
    await asyncio.wait(tasks.values())
    assert_idle(scheduler, slots)
