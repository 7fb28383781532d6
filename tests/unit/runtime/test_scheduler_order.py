"""SerialScheduler: FIFO, one at a time, handed over in the same step and without barging."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref

import pytest

from frontend.errors import Cancelled, DeadlineExceeded, InternalError, Misuse, TokensExceeded
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.scheduler import SerialScheduler
from frontend.runtime.statistics import SchedulerStatistics
from tests.unit.runtime.fakes import FakeHost, admitted, new_context, request, spawn
from tests.virtual_time import settle, virtual, virtual_loop


@virtual
async def test_units_run_one_at_a_time_in_order_of_arrival() -> None:
    """No early execution, whatever else the loop is doing."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, *"abcde")
    for position, name in enumerate("abcde"):
        await settle()
        assert host.sent == list("abcde"[: position + 1])
        host.answer(name)
    assert await asyncio.gather(*tasks.values()) == [f"answer to {name}" for name in "abcde"]
    assert host.most_busy == 1


@virtual
async def test_the_next_frame_is_sent_inside_the_call_that_completes() -> None:
    """When complete() returns the next start has been called; no turn of the loop lies in between."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    host.answer("a")
    assert host.sent == ["a", "b"]
    host.fail("b", RuntimeError("b failed"))
    assert host.sent == ["a", "b", "c"]
    host.answer("c")
    await asyncio.wait(tasks.values())
    assert isinstance(tasks["b"].exception(), RuntimeError)


@virtual
async def test_a_newcomer_cannot_pass_those_who_wait() -> None:
    """The slot moves to the chosen waiter in the step that frees it, so an arrival in that tick queues."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    newcomer = asyncio.create_task(request(scheduler, host, "newcomer"))
    host.answer("a")
    await settle()
    assert host.sent == ["a", "b"]
    host.answer("b")
    assert host.sent == ["a", "b", "newcomer"]
    host.answer("newcomer")
    await asyncio.gather(newcomer, *tasks.values())
    assert host.most_busy == 1


@virtual
async def test_run_and_run_with_context_share_one_queue() -> None:
    """Internal work waits in its turn like everybody else."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    first = spawn(scheduler, host, "a")
    await settle()
    internal = asyncio.create_task(scheduler.run(host.start("internal")))
    await settle()
    last = spawn(scheduler, host, "b")
    await settle()
    for name in ("a", "internal", "b"):
        host.answer(name)
    assert host.sent == ["a", "internal", "b"]
    await asyncio.gather(internal, *first.values(), *last.values())


@virtual
async def test_two_schedulers_are_independent() -> None:
    """One loaded executor being busy holds up nobody else's queue."""
    host, one, other = FakeHost(), SerialScheduler("one"), SerialScheduler("other")
    stuck = spawn(one, host, "stuck", "behind")
    free = spawn(other, host, "free")
    await settle()
    assert sorted(host.busy) == ["free", "stuck"]
    host.answer("free")
    await free["free"]
    assert one.statistics().running == 1 and other.statistics().running == 0
    host.answer("stuck")
    host.answer("behind")
    await asyncio.gather(*stuck.values())


@virtual
async def test_results_and_errors_reach_the_caller_unchanged() -> None:
    """The very same objects, and an error releases the permit."""
    scheduler = SerialScheduler("model")
    result, error = object(), ValueError("the host said no")
    assert await scheduler.run(lambda dispatch: dispatch.complete(result)) is result
    with pytest.raises(ValueError) as caught:
        await scheduler.run(lambda dispatch: dispatch.fail(error))
    assert caught.value is error
    assert await scheduler.run(lambda dispatch: dispatch.complete(None)) is None
    seen = scheduler.statistics()
    assert (seen.running, seen.completed, seen.failed, seen.dispatched) == (0, 2, 1, 3)


@virtual
async def test_what_the_executor_refuses_is_told_from_what_fails() -> None:
    """A text that the model cannot be asked is the client's mistake; both have ended in an error."""
    scheduler = SerialScheduler("model")
    for error in (TokensExceeded("too long"), InternalError("the host said no")):
        with pytest.raises(type(error)):
            await scheduler.run(lambda dispatch, error=error: dispatch.fail(error))
    seen = scheduler.statistics()
    assert (seen.failed, seen.refused) == (2, 1)


@virtual
async def test_a_start_that_raises_gives_the_turn_to_the_next() -> None:
    """Encode or send failed: its caller gets that error, permits go back, and the unit was not dispatched."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    tasks = spawn(scheduler, host, "a")
    await settle()

    def broken(dispatch: Dispatch[str]) -> None:
        raise OverflowError("frame too large")

    context = new_context(admitted(slots))
    failing = asyncio.create_task(scheduler.run_with_context(context, broken))
    await settle()
    tasks |= spawn(scheduler, host, "c")
    await settle()
    host.answer("a")
    assert host.sent == ["a", "c"]
    with pytest.raises(OverflowError, match="frame too large"):
        await failing
    context.close()
    host.answer("c")
    await asyncio.gather(*tasks.values())
    seen = scheduler.statistics()
    assert (seen.dispatched, seen.completed, seen.failed) == (2, 2, 1)
    assert slots.statistics().outstanding == 0


@pytest.mark.parametrize("error", [StopIteration("x"), KeyboardInterrupt()])
@virtual
async def test_any_error_of_a_start_ends_its_unit_only(error: BaseException) -> None:
    """Even those that asyncio treats specially: the permit moves on and the caller hears of it."""
    scheduler = SerialScheduler("model")

    def broken(dispatch: Dispatch[str]) -> None:
        raise error

    with pytest.raises((RuntimeError, KeyboardInterrupt)):
        await scheduler.run(broken)
    assert await scheduler.run(lambda dispatch: dispatch.complete("next")) == "next"


@virtual
async def test_a_start_that_ends_its_unit_and_then_raises_is_reported() -> None:
    """The first outcome stands; the error goes to the loop's handler and the turn passes on."""
    scheduler = SerialScheduler("model")

    def broken(dispatch: Dispatch[str]) -> None:
        dispatch.complete("done")
        raise RuntimeError("afterthought")

    assert await scheduler.run(broken) == "done"
    assert str(virtual_loop().reported.pop()["exception"]) == "afterthought"
    assert await scheduler.run(lambda dispatch: dispatch.complete("next")) == "next"


@virtual
async def test_a_second_end_is_misuse_and_changes_nothing() -> None:
    """complete and fail, in every combination, also after the next unit was granted."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a", "b", "c")
    await settle()
    for name in "abc":
        dispatch = host.busy[name]
        host.answer(name) if name != "b" else host.fail(name, RuntimeError("b"))
        before = scheduler.statistics()
        with pytest.raises(Misuse):
            dispatch.complete("again")
        with pytest.raises(Misuse):
            dispatch.fail(RuntimeError("again"))
        assert scheduler.statistics() == before
    results = await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert results[0] == "answer to a" and isinstance(results[1], RuntimeError) and results[2] == "answer to c"


@virtual
async def test_failing_with_something_that_is_no_exception_is_misuse() -> None:
    """The unit goes on and can still be ended properly."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    with pytest.raises(Misuse):
        host.busy["a"].fail(RuntimeError)  # type: ignore[arg-type]
    host.answer("a")
    assert await tasks["a"] == "answer to a"


@virtual
async def test_ten_thousand_units_that_end_at_once_do_not_recurse() -> None:
    """complete() inside start() inside complete() is a loop: it fits any stack."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    gate = asyncio.create_task(scheduler.run(host.start("gate")))
    await settle()
    depths: set[int] = set()
    order: list[int] = []

    def depth() -> int:
        frame, count = sys._getframe(), 0
        while frame.f_back is not None:
            frame, count = frame.f_back, count + 1
        return count

    def start(number: int) -> None:
        def run(dispatch: Dispatch[int]) -> None:
            order.append(number)
            depths.add(depth())
            dispatch.complete(number)

        waiting.append(asyncio.create_task(scheduler.run(run)))

    waiting: list[asyncio.Task[int]] = []
    for number in range(10_000):
        start(number)
    await settle()
    host.answer("gate")
    assert order == list(range(10_000))
    assert len(depths) == 1
    assert await asyncio.gather(*waiting) == order
    await gate


# The second check, on the far side of the wait


@virtual
async def test_a_context_cancelled_while_waiting_is_skipped_and_the_turn_passes_on() -> None:
    """Never dispatched; its caller gets Cancelled; the next unit runs in the same step."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    with new_context() as context:
        dead = asyncio.create_task(scheduler.run_with_context(context, host.start("dead")))
        await settle()
        tasks |= spawn(scheduler, host, "c")
        await settle()
        context.cancel()
        host.answer("a")
        assert host.sent == ["a", "c"]
        with pytest.raises(Cancelled):
            await dead
    host.answer("c")
    await asyncio.gather(*tasks.values())
    assert scheduler.statistics().withdrawn == 1


@virtual
async def test_the_slot_frees_exactly_at_a_deadline_and_nothing_expired_is_granted() -> None:
    """Cancelled, then expired, then the living: the first living one gets the slot."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    contexts = [new_context(deadline=deadline) for deadline in (90.0, 5.0, 5.0, 5.0, 90.0)]
    waiting = [
        asyncio.create_task(scheduler.run_with_context(context, host.start(f"w{index}")))
        for index, context in enumerate(contexts)
    ]
    await settle()
    contexts[0].cancel()
    contexts[1].cancel()
    virtual_loop().advance(5.0)
    host.answer("a")
    assert host.sent == ["a", "w4"]
    host.answer("w4")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Cancelled, Cancelled, DeadlineExceeded, DeadlineExceeded, str]
    for context in contexts:
        context.close()
    await tasks["a"]


@virtual
async def test_the_second_check_happens_before_start_also_without_a_wait() -> None:
    """An observer that finds the request dead at admission keeps it from being sent."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    with new_context(observer=lambda _: context.cancel()) as context, pytest.raises(Cancelled):
        await scheduler.run_with_context(context, host.start("a"))
    assert host.sent == []


@virtual
async def test_a_queued_deadline_acts_at_the_deadline_while_the_slot_is_still_held() -> None:
    """The 504 leaves at 0.05 s of virtual time; the slot is never freed; nothing else is disturbed."""
    slots = BoundedAdmission("slots", requests=9)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    holder = spawn(scheduler, host, "holder")
    await settle()
    with pytest.raises(TimeoutError):
        await request(scheduler, host, "late", deadline=0.05)
    assert virtual_loop().time() == 0.05
    assert host.sent == ["holder"]
    seen = scheduler.statistics()
    assert (seen.running, seen.waiting, seen.withdrawn) == (1, 0, 1)
    assert slots.statistics().outstanding == 1
    host.answer("holder")
    await holder["holder"]


@virtual
async def test_there_is_no_second_timeout_hidden_inside() -> None:
    """A request with ten minutes waits nearly all of them and is answered."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    holder = spawn(scheduler, host, "holder")
    await settle()
    patient = asyncio.create_task(request(scheduler, host, "patient", deadline=600.0))
    await asyncio.sleep(599.0)
    host.answer("holder")
    await asyncio.sleep(0.5)
    host.answer("patient")
    assert await patient == "answer to patient"
    await holder["holder"]


@virtual
async def test_a_broken_clock_ends_its_own_request_only() -> None:
    """The clock is foreign code; it fails at the grant and the turn passes on."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    ticks = iter([0.0])
    context = new_context(deadline=9.0)
    context._shared.clock = lambda: next(ticks)
    broken = asyncio.create_task(scheduler.run_with_context(context, host.start("broken")))
    await settle()
    tasks |= spawn(scheduler, host, "c")
    await settle()
    host.answer("a")
    assert host.sent == ["a", "c"]
    with pytest.raises(RuntimeError):
        await broken
    context.close()
    host.answer("c")
    await asyncio.gather(*tasks.values())


@virtual
async def test_a_closed_context_cannot_be_queued() -> None:
    """With and without layers it is misuse."""
    for layers in ((), (BoundedAdmission("slots", requests=1),)):
        context = new_context()
        context.close()
        with pytest.raises(Misuse):
            await SerialScheduler("model", layers=layers).run_with_context(context, FakeHost().start("a"))


# Who holds what, and for how long


@virtual
async def test_what_a_unit_captured_is_let_go_before_the_next_unit_starts() -> None:
    """Kept through the execution, dropped at its end: two payloads are never alive for one slot."""

    class Payload:
        pass

    scheduler = SerialScheduler("model")
    payload = Payload()
    alive = weakref.ref(payload)
    sent: list[Dispatch[str]] = []
    gone: list[bool] = []

    def capturing(dispatch: Dispatch[str], payload: Payload = payload) -> None:
        sent.append(dispatch)

    def looking(dispatch: Dispatch[str]) -> None:
        gone.append(alive() is None)
        dispatch.complete("x")

    caller = asyncio.create_task(scheduler.run(capturing))
    del payload, capturing
    await settle()
    following = asyncio.create_task(scheduler.run(looking))
    await settle()
    caller.cancel()
    await asyncio.wait([caller])
    assert alive() is not None
    sent[0].complete("late")
    assert gone == [True]
    await following


@virtual
async def test_an_error_does_not_keep_itself_alive() -> None:
    """No reference cycle per failed request: the error is gone when its caller lets it go."""

    class HostError(Exception):
        pass

    scheduler = SerialScheduler("model")
    gone: list[weakref.ref[BaseException]] = []

    def raising(dispatch: Dispatch[str]) -> None:
        raise HostError("send")

    def failing(dispatch: Dispatch[str]) -> None:
        dispatch.fail(HostError("host"))

    gc.disable()
    try:
        for start in (raising, failing):
            with new_context() as context:
                try:
                    await scheduler.run_with_context(context, start)
                except HostError as error:
                    gone.append(weakref.ref(error))
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


@virtual
async def test_the_numbers_of_units_are_the_runtimes_own_and_never_reused() -> None:
    """Two requests with one client id in a tick, also after a cancel, are different units."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    numbers: list[int] = []
    for _ in range(3):
        task = asyncio.create_task(request(scheduler, host, "same-id"))
        await settle()
        numbers.append(host.busy["same-id"].number)
        dispatch = host.busy.pop("same-id")
        task.cancel()
        await asyncio.wait([task])
        dispatch.complete("late")
        again = asyncio.create_task(request(scheduler, host, "same-id"))
        await settle()
        numbers.append(host.busy["same-id"].number)
        host.answer("same-id")
        assert await again == "answer to same-id"
    assert len(set(numbers)) == 6


@virtual
async def test_capacity_is_back_before_the_caller_hears_its_answer() -> None:
    """A client that reuses its id at once finds the permit free."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    tasks = spawn(scheduler, host, "a")
    await settle()
    host.answer("a")
    assert scheduler.statistics().running == 0
    assert not tasks["a"].done()
    await tasks["a"]


@virtual
async def test_a_scheduler_speaks() -> None:
    """Frozen statistics and a repr that is enough to understand it at night."""
    host, scheduler = FakeHost(), SerialScheduler("model")
    assert repr(scheduler) == "<SerialScheduler 'model' open waiting=0 dispatched=0>"
    tasks = spawn(scheduler, host, "a", "b")
    await settle()
    assert repr(scheduler) == "<SerialScheduler 'model' open running=#1 waiting=1 dispatched=1>"
    assert repr(host.busy["a"]) == "<Dispatch 'model' #1 dispatched>"
    tasks["a"].cancel()
    await settle()
    assert repr(scheduler) == "<SerialScheduler 'model' open running=#1 abandoned waiting=1 dispatched=1>"
    assert scheduler.statistics() == SchedulerStatistics(
        name="model",
        waiting=1,
        running=1,
        abandoned=1,
        held_for_earlier_front=False,
        suspended=False,
        dispatched=1,
        requeued=0,
        completed=0,
        failed=0,
        withdrawn=0,
        dropped_results=0,
    )
    host.answer("a")
    host.answer("b")
    await asyncio.wait(tasks.values())
