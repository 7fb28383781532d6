"""Signals: only the runtime makes them, in one order, and a refused request makes none."""

from __future__ import annotations

import asyncio

import pytest

from frontend.errors import Cancelled, DeadlineExceeded, Misuse
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.scheduler import EarlierWork, SerialScheduler
from frontend.runtime.signals import Admitted, Granted, Signal, Started
from tests.unit.runtime.fakes import FakeHost, admitted, new_context, request, spawn
from tests.virtual_time import settle, virtual, virtual_loop


class Trace:
    """Signals and what the test itself notes, in the order of their happening."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.signals: list[Signal] = []

    def __call__(self, signal: Signal) -> None:
        self.signals.append(signal)
        self.events.append(type(signal).__name__.lower())


@pytest.mark.parametrize("kind", [Signal, Admitted, Granted, Started])
def test_nobody_else_can_construct_a_signal(kind: type[Signal]) -> None:
    """Neither without a key, nor with a wrong one, nor by copying fields over."""
    with pytest.raises(Misuse):
        kind("model", 1)
    with pytest.raises(Misuse):
        kind("model", 1, object())


@virtual
async def test_nobody_else_can_make_a_dispatch_or_earlier_work() -> None:
    """The other two things that stand for the permit are minted by the scheduler as well."""
    scheduler = SerialScheduler("model")
    loop = asyncio.get_running_loop()
    with pytest.raises(Misuse):
        Dispatch(scheduler, 1, None, lambda _: None, loop, loop.create_future())
    with pytest.raises(Misuse):
        EarlierWork(scheduler)


@virtual
async def test_a_signal_is_frozen_and_names_its_unit() -> None:
    """Scheduler and unit number, for the log; a replaced copy is a construction and refused."""
    host, trace, scheduler = FakeHost(), Trace(), SerialScheduler("model")
    task = asyncio.create_task(request(scheduler, host, "a", observer=trace))
    await settle()
    host.answer("a")
    await task
    for signal in trace.signals:
        assert (signal.scheduler, signal.unit) == ("model", 1)
        with pytest.raises(AttributeError):
            signal.unit = 2  # type: ignore[misc]
        with pytest.raises(Misuse):
            type(signal)(signal.scheduler, 2)


@virtual
async def test_success_fires_admitted_granted_started_in_this_order_and_succeeds() -> None:
    """The start callable runs between granted and started, and the answer arrives all the same."""
    trace, scheduler = Trace(), SerialScheduler("model")
    units: list[Dispatch[str]] = []

    def start(dispatch: Dispatch[str]) -> None:
        trace.events.append("frame")
        assert dispatch.granted is trace.signals[-1]
        units.append(dispatch)

    with new_context(observer=trace) as context:
        assert context.admitted is None
        task = asyncio.create_task(scheduler.run_with_context(context, start))
        await settle()
        assert trace.events == ["admitted", "granted", "frame", "started"]
        assert context.admitted is trace.signals[0]
        units[0].complete("yes")
        assert await task == "yes"
    assert trace.events == ["admitted", "granted", "frame", "started"]


@virtual
async def test_a_unit_that_ends_inside_its_start_still_fires_in_order() -> None:
    """An immediate answer does not overtake the signals."""
    trace, scheduler = Trace(), SerialScheduler("model")
    with new_context(observer=trace) as context:
        assert await scheduler.run_with_context(context, lambda dispatch: dispatch.complete("yes")) == "yes"
    assert trace.events == ["admitted", "granted", "started"]


@virtual
async def test_admitted_means_queued_and_granted_means_its_turn() -> None:
    """A waiting request has announced its admission and nothing more."""
    host, trace, scheduler = FakeHost(), Trace(), SerialScheduler("model")
    first = spawn(scheduler, host, "first")
    await settle()
    second = asyncio.create_task(request(scheduler, host, "second", observer=trace))
    await settle()
    assert trace.events == ["admitted"]
    host.answer("first")
    assert trace.events == ["admitted", "granted", "started"]
    host.answer("second")
    await asyncio.gather(second, *first.values())


@virtual
async def test_a_request_of_several_units_is_admitted_once() -> None:
    """Granted and started are per unit, admitted is per request, for the first unit queued."""
    trace, scheduler = Trace(), SerialScheduler("model")
    with new_context(observer=trace) as context:
        for number in range(3):
            result = await scheduler.run_with_context(context, lambda dispatch, n=number: dispatch.complete(n))
            assert result == number
    assert trace.events == ["admitted", *["granted", "started"] * 3]
    assert [signal.unit for signal in trace.signals] == [1, 1, 1, 2, 2, 3, 3]


@virtual
async def test_a_request_refused_by_any_layer_fires_nothing() -> None:
    """Refused by the first or by the second layer: no signal, nothing queued, nothing left held."""
    slots, tokens = BoundedAdmission("slots", requests=1), BoundedAdmission("tokens", requests=9, cost=10)
    trace, scheduler = Trace(), SerialScheduler("model", layers=(slots, tokens))
    with admitted(slots), new_context(observer=trace):
        assert not slots.try_admit()
    with new_context(admitted(slots), observer=trace) as context:
        assert not tokens.try_admit(11)
        assert context.admitted is None
    assert trace.events == []
    assert slots.statistics().outstanding == tokens.statistics().outstanding == 0
    assert scheduler.statistics().waiting == 0


@pytest.mark.parametrize("retained", [(), (0,), (1,)])
@virtual
async def test_a_route_that_skipped_a_layer_cannot_run(retained: tuple[int, ...]) -> None:
    """Without a permit of every layer there is no token, no place in the queue and no frame."""
    layers = (BoundedAdmission("slots", requests=1), BoundedAdmission("tokens", requests=1))
    host, trace, scheduler = FakeHost(), Trace(), SerialScheduler("model", layers=layers)
    with new_context(*(admitted(layers[which]) for which in retained), observer=trace) as context:
        with pytest.raises(Misuse, match="without asking"):
            await scheduler.run_with_context(context, host.start("smuggled"))
        assert context.admitted is None
    assert (trace.events, host.sent) == ([], [])
    assert scheduler.statistics().waiting == 0


@virtual
async def test_a_permit_of_another_deployments_layer_does_not_count() -> None:
    """Same name, same size, other object: not this admission."""
    scheduler = SerialScheduler("model", layers=(BoundedAdmission("slots", requests=1),))
    stranger = BoundedAdmission("slots", requests=1)
    with new_context(admitted(stranger)) as context, pytest.raises(Misuse):
        await scheduler.run_with_context(context, FakeHost().start("smuggled"))


@virtual
async def test_a_dead_context_fires_nothing() -> None:
    """Cancelled or expired before queueing: the error, and not a single signal."""
    host, trace, scheduler = FakeHost(), Trace(), SerialScheduler("model")
    with new_context(observer=trace) as context:
        context.cancel()
        with pytest.raises(Cancelled):
            await scheduler.run_with_context(context, host.start("a"))
    with new_context(observer=trace, deadline=1.0) as context:
        virtual_loop().advance(1.0)
        with pytest.raises(DeadlineExceeded):
            await scheduler.run_with_context(context, host.start("b"))
    assert (trace.events, host.sent) == ([], [])
    assert scheduler.statistics().withdrawn == 0


@virtual
async def test_a_request_that_dies_in_the_queue_was_admitted_and_never_granted() -> None:
    """The trace stops at the last thing that was true."""
    host, trace, scheduler = FakeHost(), Trace(), SerialScheduler("model")
    first = spawn(scheduler, host, "first")
    await settle()
    with new_context(observer=trace) as context:
        second = asyncio.create_task(scheduler.run_with_context(context, host.start("second")))
        await settle()
        context.cancel()
        host.answer("first")
        with pytest.raises(Cancelled):
            await second
    assert trace.events == ["admitted"]
    assert host.sent == ["first"]
    await first["first"]


@virtual
async def test_a_start_that_raises_was_granted_and_never_started() -> None:
    """Started is a fact about a frame, not an intention."""
    trace, scheduler = Trace(), SerialScheduler("model")

    def start(dispatch: Dispatch[None]) -> None:
        raise OSError("no such host")

    with new_context(observer=trace) as context, pytest.raises(OSError, match="no such host"):
        await scheduler.run_with_context(context, start)
    assert trace.events == ["admitted", "granted"]
    assert scheduler.statistics().dispatched == 0


@virtual
async def test_run_makes_no_signals_and_asks_no_layers() -> None:
    """Warm-up and internal predict bypass the HTTP limits, and still wait their turn."""
    slots = BoundedAdmission("slots", requests=1)
    host, scheduler = FakeHost(), SerialScheduler("model", layers=(slots,))
    seen: list[ExecutionContext | None] = []
    task = asyncio.create_task(scheduler.run(host.start("warm-up")))
    await settle()
    seen.append(host.busy["warm-up"].context)
    assert isinstance(host.busy["warm-up"].granted, Granted)
    host.answer("warm-up")
    assert await task == "answer to warm-up"
    assert seen == [None]
    assert slots.statistics().admitted == 0


@pytest.mark.parametrize("kind", [Admitted, Granted, Started])
@virtual
async def test_an_observer_that_raises_is_reported_and_changes_nothing(kind: type[Signal]) -> None:
    """At each of the three moments: request answered, permit passed on, error told to the loop."""
    host, scheduler = FakeHost(), SerialScheduler("model")

    def observer(signal: Signal) -> None:
        if isinstance(signal, kind):
            raise RuntimeError(f"broken at {kind.__name__}")

    tasks = [asyncio.create_task(request(scheduler, host, name, observer=observer)) for name in "ab"]
    await settle()
    host.answer("a")
    host.answer("b")
    assert await asyncio.gather(*tasks) == ["answer to a", "answer to b"]
    assert host.sent == ["a", "b"]
    assert scheduler.statistics().running == scheduler.statistics().waiting == 0
    reported = virtual_loop().reported
    assert [str(context["exception"]) for context in reported] == [f"broken at {kind.__name__}"] * 2
    reported.clear()
