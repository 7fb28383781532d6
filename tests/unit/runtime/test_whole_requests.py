"""Requests from admission to the last permit: several units, both layers, ten thousand of them."""

from __future__ import annotations

import asyncio
import random

import pytest

from frontend.errors import Cancelled, DeadlineExceeded
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.scheduler import SerialScheduler
from tests.unit.runtime.fakes import FakeHost, admitted, new_context, request
from tests.virtual_time import settle, virtual, virtual_loop


class Deployment:
    """A model with both layers: a slot before preparation, tokens after it."""

    def __init__(self, *, slots: int = 100, tokens: int = 1_000) -> None:
        self.slots = BoundedAdmission("slots", requests=slots)
        self.tokens = BoundedAdmission("tokens", requests=slots, cost=tokens)
        self.host = FakeHost()
        self.scheduler = SerialScheduler("model", layers=(self.slots, self.tokens))
        self.projected: list[str] = []

    async def ask(
        self, name: str, units: int, *, cost: int = 10, deadline: float | None = None, poison: int | None = None
    ) -> list[str]:
        """The driver of a family with one unit per question: unit k is projected before unit k+1 asks."""
        with new_context(admitted(self.slots), deadline=deadline) as context, context.cancel_on_exit() as guard:
            context.retain(admitted(self.tokens, cost))
            answers = []
            async with asyncio.timeout_at(deadline):
                for number in range(units):
                    unit = f"{name}{number}"
                    answers.append(await self.scheduler.run_with_context(context, self.host.start(unit)))
                    self.projected.append(unit)
                    if number == poison:
                        raise ArithmeticError("a logit is not finite")
            guard.disarm()
            return answers

    def held(self) -> tuple[int, int]:
        return self.slots.statistics().outstanding, self.tokens.statistics().held

    def assert_idle(self) -> None:
        seen = self.scheduler.statistics()
        assert (seen.waiting, seen.running, seen.abandoned) == (0, 0, 0)
        assert self.held() == (0, 0)


@virtual
async def test_units_of_several_requests_take_turns() -> None:
    """Each unit gives the permit up before the next question asks, so two requests interleave."""
    model = Deployment()
    tasks = [asyncio.create_task(model.ask(name, 3)) for name in "xy"]
    for unit in ("x0", "y0", "x1", "y1", "x2", "y2"):
        await settle()
        model.host.answer(unit)
    answers = await asyncio.gather(*tasks)
    assert answers[0] == ["answer to x0", "answer to x1", "answer to x2"]
    assert model.projected == ["x0", "y0", "x1", "y1", "x2", "y2"]
    assert model.host.most_busy == 1
    model.assert_idle()


@virtual
async def test_after_a_cancel_at_unit_k_no_further_unit_is_queued() -> None:
    """The running one keeps its permit and the request's reservations until the host has answered."""
    model = Deployment()
    leaver = asyncio.create_task(model.ask("x", 3))
    await settle()
    model.host.answer("x0")
    await settle()
    other = asyncio.create_task(model.ask("y", 1))
    await settle()
    leaver.cancel()
    await asyncio.wait([leaver])
    await settle()
    assert model.host.sent == ["x0", "x1"]
    assert model.held() == (2, 20)
    model.host.answer("x1")
    assert model.host.sent == ["x0", "x1", "y0"]
    assert model.held() == (1, 10)
    model.host.answer("y0")
    await other
    assert model.projected == ["x0", "y0"]
    model.assert_idle()


@virtual
async def test_after_a_deadline_at_unit_k_no_further_unit_is_queued() -> None:
    """Once while unit k runs, once while it waits for its turn."""
    model = Deployment()
    late = asyncio.create_task(model.ask("x", 3, deadline=5.0))
    await settle()
    model.host.answer("x0")
    with pytest.raises(TimeoutError):
        await late
    assert virtual_loop().time() == 5.0
    assert model.held() == (1, 10)
    queued = asyncio.create_task(model.ask("y", 3, deadline=7.0))
    with pytest.raises(TimeoutError):
        await queued
    assert model.held() == (1, 10)
    model.host.answer("x1")
    assert model.host.sent == ["x0", "x1"]
    model.assert_idle()


@virtual
async def test_after_a_failure_at_unit_k_no_further_unit_is_queued() -> None:
    """A failing host and a projection that finds a bad number both stop the request there."""
    model = Deployment()
    failing = asyncio.create_task(model.ask("x", 3))
    await settle()
    model.host.answer("x0")
    await settle()
    model.host.fail("x1", RuntimeError("executor"))
    with pytest.raises(RuntimeError, match="executor"):
        await failing
    poisoned = asyncio.create_task(model.ask("y", 3, poison=0))
    await settle()
    model.host.answer("y0")
    with pytest.raises(ArithmeticError):
        await poisoned
    assert model.host.sent == ["x0", "x1", "y0"]
    model.assert_idle()


@virtual
async def test_a_dead_request_cannot_queue_another_unit() -> None:
    """A driver that forgets to look is stopped by the first check: cancelled, or out of time."""
    model = Deployment()
    with new_context(admitted(model.slots), admitted(model.tokens), deadline=5.0) as context:
        await model.scheduler.run_with_context(context, lambda dispatch: dispatch.complete("fine"))
        virtual_loop().advance(5.0)
        with pytest.raises(DeadlineExceeded):
            await model.scheduler.run_with_context(context, model.host.start("x"))
        context.cancel()
        with pytest.raises(Cancelled):
            await model.scheduler.run_with_context(context, model.host.start("x"))
    assert model.host.sent == []
    model.assert_idle()


@virtual
async def test_a_refusal_of_the_second_layer_gives_the_first_one_back() -> None:
    """The slot is back before the refusal reaches anybody else, on every way out."""
    model = Deployment(tokens=10)
    with pytest.raises(AssertionError, match="permanent=True"):
        await model.ask("x", 1, cost=11)
    assert model.held() == (0, 0)
    assert model.host.sent == []


@virtual
async def test_reservations_are_held_exactly_as_long_as_anybody_owns_them() -> None:
    """The request's owner and the unit's clone, whichever is last."""
    model = Deployment()
    context = new_context(admitted(model.slots), admitted(model.tokens, 10))
    task = asyncio.create_task(model.scheduler.run_with_context(context, model.host.start("x")))
    await settle()
    context.close()
    assert model.held() == (1, 10)
    model.host.answer("x")
    assert model.held() == (0, 0)
    assert await task == "answer to x"


@virtual
async def test_ten_thousand_mixed_requests_leave_zeros() -> None:
    """Answered, failed, cancelled, expired and refused, in a fixed random order: every book is balanced."""
    dice = random.Random(20_240)
    model = Deployment(slots=50, tokens=10_000)
    outcomes: dict[str, int] = {}

    async def one(name: str) -> None:
        deadline = virtual_loop().time() + dice.choice([0.5, 2.0, 60.0])
        try:
            await model.ask(name, dice.choice([1, 1, 1, 3]), deadline=deadline)
            outcome = "answered"
        except AssertionError:  # what `admitted` makes of a refusal
            outcome = "refused"
        except TimeoutError:
            outcome = "expired"
        except RuntimeError:
            outcome = "failed"
        except asyncio.CancelledError:
            outcome = "cancelled"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    alive: dict[str, asyncio.Task[None]] = {}  # oldest first: a set would make the order an accident
    for number in range(10_000):
        name = f"r{number}-"
        alive[name] = asyncio.create_task(one(name), name=name)
        alive[name].add_done_callback(lambda task: alive.pop(task.get_name()))
        await asyncio.sleep(dice.choice([0.0, 0.0, 0.01]))
        if dice.random() < 0.2 and alive:
            dice.choice(list(alive.values())).cancel()
        if model.host.busy and dice.random() < 0.7:
            unit = next(iter(model.host.busy))
            if dice.random() < 0.1:
                model.host.fail(unit, RuntimeError("executor"))
            else:
                model.host.answer(unit)
    while model.host.busy or alive:
        for name in list(model.host.busy):
            model.host.answer(name)
        await settle()
    seen = model.scheduler.statistics()
    assert sum(outcomes.values()) == 10_000
    assert set(outcomes) == {"answered", "failed", "cancelled", "expired", "refused"}, outcomes
    assert seen.dispatched == seen.completed + seen.failed
    assert model.host.most_busy == 1
    model.assert_idle()


@virtual
async def test_single_requests_through_both_helpers_leave_zeros() -> None:
    """The documented way in: admission, context, guard, deadline, unit."""
    model = Deployment()
    task = asyncio.create_task(request(model.scheduler, model.host, "x", deadline=9.0))
    await settle()
    assert model.held()[0] == 1
    model.host.answer("x")
    assert await task == "answer to x"
    model.assert_idle()
