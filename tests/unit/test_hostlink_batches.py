"""Units that a batch scheduler grants together leave as one frame list, and each has its own end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zmq

from frontend.errors import HostDied, InternalError, Misuse
from frontend.runtime.batches import BatchScheduler
from frontend.runtime.context import ExecutionContext
from frontend.runtime.shape import BatchLimits, Shape
from frontend.serving.hostlink import HostLink, Outputs
from protocol import batches, limits
from protocol.messages import Execute, Failure, Result
from protocol.tensors import Blob
from tests.helpers.fake_host import GUARD_S, FakeHost, failure, until, zmq_context

UNITS = 8


class Batched:
    """A link, its host, and a scheduler that grants everything that waits at once."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.welcomed = asyncio.Event()
        self.host = FakeHost(context)
        self.link = HostLink(
            asyncio.get_running_loop(),
            context,
            incarnation=self.host.incarnation,
            control=self.host.control,
            data=self.host.data,
            epoch="front-1",
            pid=1,
            on_welcome=lambda _: self.welcomed.set(),
            on_idle=lambda: None,
            on_retiring=lambda: None,
        )
        self.scheduler = BatchScheduler("m", limits=BatchLimits(units=UNITS), flush=self.link.flush)

    def ask(self, payload: dict[str, Any] | None = None, budget_ms: int | None = None) -> asyncio.Task[Outputs]:
        """One unit; one that never ends fails the test."""
        fields = {"document": b"{}"} if payload is None else payload

        async def run() -> Outputs:
            async with asyncio.timeout(GUARD_S):
                with ExecutionContext(clock=asyncio.get_running_loop().time) as context:
                    return await self.scheduler.run_with_context(
                        context, lambda dispatch: self.link.collect(dispatch, fields, budget_ms), shape=Shape(key=0)
                    )

        return asyncio.get_running_loop().create_task(run())

    async def together(self, *payloads: dict[str, Any]) -> list[asyncio.Task[Outputs]]:
        """Units that are granted in one step: they wait until a first one is answered."""
        before = len(self.host.batches)
        first = self.ask()
        unit = await self.host.unit()
        assert len(self.host.batches) == before, "one alone is no batch"
        tasks = [self.ask(payload) for payload in payloads]
        await until(lambda: self.scheduler.statistics().waiting == len(payloads), "the queue")
        self.host.answer(unit.call)
        await first
        return tasks


@pytest.fixture
async def batched() -> AsyncIterator[Batched]:
    with zmq_context() as context:
        made = Batched(context)
        await made.welcomed.wait()
        yield made
        try:
            made.link.end(reason="the test is over", retry_after=1)
        except Misuse:
            pass
        made.host.close()


async def test_units_leave_in_one_frame_list_and_answers_may_share_one(batched: Batched) -> None:
    """In queue order, with rising calls above the batch's own; each caller gets its own answer."""
    tasks = await batched.together({"n": 1}, {"n": 2}, {"n": 3})
    units = [await batched.host.unit() for _ in tasks]
    assert [unit.message.payload for unit in units if isinstance(unit.message, Execute)] == [
        {"n": 1}, {"n": 2}, {"n": 3},
    ]  # fmt: skip
    ((batch, calls),) = batched.host.batches
    assert calls == [unit.call for unit in units] == sorted(calls)
    assert batch < calls[0]
    first, second, third = calls
    batched.host.answer_together(batch, [(first, Result(outputs={"x": 1}, elapsed_us=1)), (third, failure())])
    assert (await tasks[0]).values == {"x": 1}
    with pytest.raises(InternalError):
        await tasks[2]
    assert batched.link.statistics().outstanding == 1
    batched.host.answer(second)
    assert (await tasks[1]).values == {"call": second}


async def test_a_unit_that_does_not_fit_the_wire_leaves_the_others_in_the_batch(batched: Batched) -> None:
    """Its caller has an error of its own."""
    deep: list[Any] = []
    for _ in range(limits.MAX_DEPTH):
        deep = [deep]
    tasks = await batched.together({"n": 1}, {"x": deep}, {"n": 3})
    with pytest.raises(InternalError, match="does not fit the wire"):
        await tasks[1]
    units = [await batched.host.unit(), await batched.host.unit()]
    assert len(batched.host.batches) == 1
    for unit, task in zip(units, (tasks[0], tasks[2]), strict=True):
        batched.host.answer(unit.call)
        assert (await task).values == {"call": unit.call}


async def test_units_that_are_too_much_for_one_frame_list_leave_one_by_one(batched: Batched) -> None:
    """Five of 256 buffers each: more frames than a batch has, none more than a message has."""
    large = {str(at): Blob(bytes(limits.OUT_OF_BAND_BYTES)) for at in range(limits.MAX_BUFFERS)}
    tasks = await batched.together(*[large] * 5)
    for task in tasks:
        unit = await batched.host.unit()
        batched.host.answer(unit.call)
        assert (await task).values == {"call": unit.call}
    assert batched.host.batches == []


async def test_a_batch_that_the_host_could_not_read_ends_all_its_units(batched: Batched) -> None:
    """The failure has the batch's own call; a unit that was answered before keeps its answer."""
    tasks = await batched.together({"n": 1}, {"n": 2}, {"n": 3})
    units = [await batched.host.unit() for _ in tasks]
    ((batch, _),) = batched.host.batches
    batched.host.answer(units[0].call)
    await tasks[0]
    batched.host.answer(batch, Failure(code="protocol", status=500, message="no batch", dispatched=False))
    for task in tasks[1:]:
        with pytest.raises(InternalError):
            await task
    assert batched.link.statistics().outstanding == 0


async def test_an_answer_that_cannot_be_read_is_one_units_or_the_whole_batchs(batched: Batched) -> None:
    """By what is broken: the body of one answer, or the envelope of all of them."""
    tasks = await batched.together({"n": 1}, {"n": 2})
    units = [await batched.host.unit() for _ in tasks]
    ((batch, _),) = batched.host.batches
    result = Result(outputs={}, elapsed_us=1)
    frames = _joined(batched.host.incarnation, batch, [(unit.call, result) for unit in units])
    batched.host.raw([*frames[:3], b"\xc1", frames[4]])
    with pytest.raises(InternalError, match="cannot be read"):
        await tasks[0]
    assert (await tasks[1]).values == {}

    tasks = await batched.together({"n": 1}, {"n": 2})
    units = [await batched.host.unit() for _ in tasks]
    batch, _ = batched.host.batches[-1]
    frames = _joined(batched.host.incarnation, batch, [(unit.call, result) for unit in units])
    batched.host.raw([*frames[:2], b"\xc1", *frames[3:]])
    for task in tasks:
        with pytest.raises(InternalError, match="cannot be read"):
            await task


async def test_of_a_dead_host_the_taken_units_end_and_the_others_keep_their_places(batched: Batched) -> None:
    """One number says it for a whole batch: what it took of it is all of it, or nothing."""
    tasks = await batched.together({"n": 1}, {"n": 2})
    units = [await batched.host.unit() for _ in tasks]
    batched.scheduler.suspend()
    batched.link.end(reason="dead", retry_after=1, taken={"front-1": units[-1].call})
    for task in tasks:
        with pytest.raises(HostDied) as caught:
            await task
        assert caught.value.dispatched is True


async def test_of_a_dead_host_that_had_not_taken_the_batch_all_of_it_waits_again(batched: Batched) -> None:
    """As a single unit would."""
    tasks = await batched.together({"n": 1}, {"n": 2})
    units = [await batched.host.unit() for _ in tasks]
    batched.scheduler.suspend()
    batched.link.end(reason="dead", retry_after=1, taken={"front-1": units[0].call - 2})
    assert batched.scheduler.statistics().waiting == 2
    batched.scheduler.fail_waiting(lambda: HostDied("over", dispatched=False, retry_after=1))
    for task in tasks:
        with pytest.raises(HostDied, match="over"):
            await task


async def test_a_caller_that_leaves_has_its_own_unit_cancelled(batched: Batched) -> None:
    """And no other of the batch."""
    tasks = await batched.together({"n": 1}, {"n": 2})
    units = [await batched.host.unit() for _ in tasks]
    tasks[1].cancel()
    assert await batched.host.cancelled() == units[1].call
    batched.host.answer(units[0].call)
    batched.host.answer(units[1].call, failure("cancelled", 503))
    assert (await tasks[0]).values == {"call": units[0].call}


def _joined(incarnation: str, batch: int, answers: list[tuple[int, Result]]) -> list[bytes]:
    parts = [batches.pack(message, call=call) for call, message in answers]
    return [bytes(frame) for frame in batches.join(parts, incarnation=incarnation, call=batch)]
