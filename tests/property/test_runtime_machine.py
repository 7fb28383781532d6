"""The request runtime against random lists of events.

Two deployments with both admission layers, requests of one or several units with and
without deadlines, internal work without a context, callers that leave, time that passes,
hosts that answer, fail, die with a unit or without having taken it, and come back, queues
that are given up, fronts that restart. The loop turns only when a rule says so, so events
also meet within one tick.

What is checked after every step is derived from what the test did, not from the runtime's
own counters:

* permits in use equal live holders;
* at most one unit is dispatched per scheduler, and none while suspended or held for an earlier front;
* a free permit and a waiting unit never exist together;
* nobody is dispatched before a living unit that arrived earlier;
* every request ends exactly once, and its signals came in order;
* idle means all zeros.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from frontend.errors import ExecutionStopped
from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.scheduler import EarlierWork, SerialScheduler
from frontend.runtime.signals import Signal
from tests.virtual_time import VirtualTimeLoop

Manner = Literal["later", "at once", "fails at once", "raises"]
MANNERS: tuple[Manner, ...] = ("later", "later", "later", "at once", "fails at once", "raises")

models = st.sampled_from([0, 0, 0, 1])
"""Mostly one of the two: a queue has to form before anything can go wrong in it."""

rarely = st.sampled_from([True, False, False])
"""Outages last until their end is drawn; were they as frequent, nothing else would happen."""


class HostError(Exception):
    """Whatever a host, a link or a deployment tells a caller."""


@dataclass(eq=False)
class Request:
    """One request and what the test knows about it from the outside."""

    units: int
    cost: int
    deadline: float | None
    manner: Manner
    internal: bool
    context: ExecutionContext | None = None
    task: asyncio.Task[None] | None = None
    holding: bool = False
    """Its own owner of the context is open."""

    told: bool = False
    """Its waiting unit was ended from outside (fail_waiting)."""

    outcome: str | None = None
    trace: list[str] = field(default_factory=list)

    def observe(self, signal: Signal) -> None:
        self.trace.append(type(signal).__name__[0])

    def dead(self, now: float) -> bool:
        """Whether nobody waits for it any more, so that others may pass it."""
        assert self.task is not None
        context = self.context
        stopped = context is not None and (context.closed or context.stopped() is not None)
        return self.task.cancelling() > 0 or self.told or stopped


class Model:
    """One deployment with its host, and the test's own books about both."""

    def __init__(self, name: str) -> None:
        self.slots = BoundedAdmission(f"{name} slots", requests=5)
        self.tokens = BoundedAdmission(f"{name} tokens", requests=5, cost=12)
        self.scheduler = SerialScheduler(name, layers=(self.slots, self.tokens))
        self.requests: list[Request] = []
        self.line: list[Request] = []
        self.running: tuple[Request, Dispatch[str]] | None = None
        self.earlier: EarlierWork | None = None
        self.suspended = False
        self.queued = 0
        self.requeued = 0

    def alive(self) -> list[Request]:
        return [request for request in self.requests if request.outcome is None]


class RuntimeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.models = (Model("one"), Model("other"))
        self.violations: list[str] = []
        """What was found wrong inside a start callable, where raising would only fail that request."""

    # The caller's side

    async def drive(self, model: Model, request: Request) -> None:
        """A request from admission to its one end, as a handler does it."""
        outcome = "nothing"
        try:
            outcome = await (self.internal(model, request) if request.internal else self.external(model, request))
        except TimeoutError:
            outcome = "expired"
        except ExecutionStopped:
            outcome = "stopped"
        except HostError:
            outcome = "failed"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            assert request.outcome is None, "a request ended twice"
            request.outcome = outcome

    async def external(self, model: Model, request: Request) -> str:
        slot = model.slots.try_admit()
        if not isinstance(slot, Permit):
            return "refused"
        with slot:
            tokens = model.tokens.try_admit(request.cost)
            if not isinstance(tokens, Permit):
                return "refused"
            context = ExecutionContext(clock=self.loop.time, deadline=request.deadline, observer=request.observe)
            context.retain(slot)
            context.retain(tokens)
        request.context, request.holding = context, True
        try:
            with context.cancel_on_exit() as guard:
                async with asyncio.timeout_at(request.deadline):
                    for _ in range(request.units):
                        await self.unit(model, request)
                guard.disarm()
                return "answered"
        finally:
            context.close()
            request.holding = False

    async def internal(self, model: Model, request: Request) -> str:
        await self.unit(model, request)
        return "answered"

    async def unit(self, model: Model, request: Request) -> None:
        def start(dispatch: Dispatch[str]) -> None:
            self.check_turn(model, request)
            model.line.remove(request)
            if request.manner == "raises":
                raise HostError("no link")
            model.running = (request, dispatch)
            if request.manner != "later":
                self.end(model, dispatch, well=request.manner == "at once")

        context = request.context
        model.line.append(request)
        model.queued += context is None or context.stopped() is None
        try:
            if context is None:
                answer = await model.scheduler.run(start)
            else:
                answer = await model.scheduler.run_with_context(context, start)
            assert answer == "answer"
        finally:
            if request in model.line:
                model.line.remove(request)

    def check_turn(self, model: Model, request: Request) -> None:
        now = self.loop.time()
        ahead = model.line[: model.line.index(request)]
        wrong = {
            "two units dispatched": model.running is not None,
            "granted while the host is not ours": model.suspended or model.earlier is not None,
            "dispatched a unit that nobody waits for": request.dead(now),
            "passed a living unit": not all(other.dead(now) for other in ahead),
        }
        self.violations += [what for what, happened in wrong.items() if happened]

    def end(self, model: Model, dispatch: Dispatch[str], *, well: bool) -> None:
        model.running = None
        if well:
            dispatch.complete("answer")
        else:
            dispatch.fail(HostError("execution failed"))

    # What happens

    @rule(
        which=models,
        burst=st.lists(
            st.tuples(
                st.sampled_from([1, 1, 2, 3]),
                st.sampled_from([0, 1, 2, 3, 6, 14]),
                st.sampled_from([None, 0.0, 1.0, 2.0, 5.0]),
                st.sampled_from(MANNERS),
                st.sampled_from([False, False, False, True]),
            ),
            min_size=1,
            max_size=4,
        ),
        turns=st.integers(0, 2),
    )
    def arrive(self, which: int, burst: list[tuple[int, int, float | None, Manner, bool]], turns: int) -> None:
        model = self.models[which]
        for units, cost, patience, manner, internal in burst:
            deadline = None if patience is None else self.loop.time() + patience
            request = Request(units, cost, deadline, manner, internal)
            model.requests.append(request)
            request.task = self.loop.create_task(self.drive(model, request))
        self.turn(turns)

    @rule(turns=st.integers(1, 4))
    def turn(self, turns: int) -> None:
        """Let the loop run what is ready, this many times."""
        for _ in range(turns):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        """Timers come due; they run in the next turn, so a slot may free in between."""
        self.loop.advance(seconds)

    @rule(which=models, pick=st.integers(0, 9))
    def caller_leaves(self, which: int, pick: int) -> None:
        # A task that has not begun is never driven: it would end without an outcome of its own.
        begun = [request for request in self.models[which].alive() if request.holding or request.internal]
        begun = [request for request in begun if request in self.models[which].line or request.holding]
        if begun:
            task = begun[pick % len(begun)].task
            assert task is not None
            task.cancel()

    @rule(which=models, pick=st.integers(0, 9))
    def request_is_cancelled(self, which: int, pick: int) -> None:
        """Somebody else says that nobody waits; the caller is still there."""
        holding = [request for request in self.models[which].requests if request.holding]
        if holding:
            context = holding[pick % len(holding)].context
            assert context is not None
            context.cancel()

    @rule(which=models, well=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=3))
    def host_answers(self, which: int, well: list[bool]) -> None:
        """Several in one tick: a host may be faster than the callers' tasks."""
        model = self.models[which]
        for outcome in well:
            if model.running is not None:
                self.end(model, model.running[1], well=outcome)

    @rule(which=models, happens=rarely)
    def host_dies(self, which: int, happens: bool) -> None:
        model = self.models[which]
        if not happens:
            return
        self.suspend(model)
        if model.running is not None:
            self.end(model, model.running[1], well=False)

    @rule(replaced=st.sampled_from([True, True, False]))
    def hosts_die_before_they_take(self, replaced: bool) -> None:
        """What was sent to them is requeued; mostly a successor is there at once, or nothing else would happen."""
        for which, model in enumerate(self.models):
            if model.running is None:
                continue
            self.suspend(model)
            (request, dispatch), model.running = model.running, None
            model.requeued += 1
            if request.outcome is None:
                model.line.insert(0, request)
            dispatch.requeue()
            self.permits_in_use_equal_live_holders()
            if replaced:
                self.host_returns(which)

    def suspend(self, model: Model) -> None:
        if not model.suspended:
            model.suspended = True
            model.scheduler.suspend()

    @rule(which=models)
    def host_returns(self, which: int) -> None:
        model = self.models[which]
        if model.suspended:
            model.suspended = False
            model.scheduler.resume()

    @rule(which=models, happens=rarely)
    def queue_is_given_up(self, which: int, happens: bool) -> None:
        model = self.models[which]
        if not happens:
            return
        waiting = list(model.line)
        errors: list[HostError] = []

        def error() -> HostError:
            errors.append(HostError("other identity"))
            return errors[-1]

        told = model.scheduler.fail_waiting(error)
        assert told <= len(waiting) and len(set(map(id, errors))) == len(errors)
        for request in waiting:
            request.told = True
        model.line.clear()
        assert model.scheduler.statistics().waiting == 0

    @rule(which=models, happens=rarely)
    def front_restarts(self, which: int, happens: bool) -> None:
        model = self.models[which]
        if happens and model.running is None and model.earlier is None:
            model.earlier = model.scheduler.hold_for_earlier_front()

    @rule(which=models)
    def orphan_ends(self, which: int) -> None:
        model = self.models[which]
        if model.earlier is not None:
            earlier, model.earlier = model.earlier, None
            earlier.release()

    # What is always true

    @invariant()
    def nothing_went_wrong_on_the_way(self) -> None:
        assert not self.violations, self.violations
        for model in self.models:
            for request in model.requests:
                task = request.task
                if task is not None and task.done() and not task.cancelled():
                    assert task.exception() is None, task

    @invariant()
    def permits_in_use_equal_live_holders(self) -> None:
        for model in self.models:
            dispatched = None if model.running is None else model.running[0]
            holders = [
                request
                for request in model.requests
                if request.holding or (request is dispatched and not request.internal)
            ]
            assert model.slots.statistics().outstanding == len(holders)
            assert model.tokens.statistics().outstanding == len(holders)
            assert model.tokens.statistics().held == sum(request.cost for request in holders)
            assert model.tokens.statistics().held <= 12

    @invariant()
    def the_books_balance(self) -> None:
        for model in self.models:
            seen = model.scheduler.statistics()
            assert seen.running == (model.running is not None)
            assert (seen.suspended, seen.held_for_earlier_front) == (model.suspended, model.earlier is not None)
            # A unit that was skipped at a grant leaves the test's line when its caller has run.
            living = [request for request in model.line if not request.dead(self.loop.time())]
            assert len(living) <= seen.waiting <= len(model.line)
            assert model.queued == seen.waiting + seen.running + seen.completed + seen.failed + seen.withdrawn
            assert seen.dropped_results <= seen.completed + seen.failed
            assert seen.requeued == model.requeued

    @invariant()
    def a_free_permit_and_a_waiting_unit_never_exist_together(self) -> None:
        for model in self.models:
            if model.running is None and not model.suspended and model.earlier is None:
                assert model.scheduler.statistics().waiting == 0

    @invariant()
    def signals_come_in_order(self) -> None:
        for model in self.models:
            for request in model.requests:
                trace = "".join(request.trace)
                # Admitted once, then grants and starts in turn; a grant without a start ends the trace. Only what was
                # started is requeued, and then it is granted anew.
                assert re.fullmatch(r"(A(GSR?)*G?)?", trace), trace
                if request.outcome == "refused":
                    assert trace == ""
                if request.outcome == "answered" and not request.internal:
                    assert trace.replace("GSR", "") == "A" + "GS" * request.units

    def teardown(self) -> None:
        try:
            self.wind_down()
        finally:
            self.loop.close()

    def wind_down(self) -> None:
        """Everything comes to its end by itself once the hosts are back and answer."""
        for which in range(len(self.models)):
            self.orphan_ends(which)
            self.host_returns(which)
        for _ in range(1_000):
            if not any(model.alive() or model.running for model in self.models):
                break
            for which in range(len(self.models)):
                self.host_answers(which, well=[True])
            self.turn(1)
        self.turn(2)
        self.nothing_went_wrong_on_the_way()
        for model in self.models:
            assert not model.alive(), "a request never ended"
            seen = model.scheduler.statistics()
            assert (seen.waiting, seen.running, seen.abandoned, seen.held_for_earlier_front) == (0, 0, 0, False)
            for layer in (model.slots, model.tokens):
                assert (layer.statistics().outstanding, layer.statistics().held) == (0, 0)
        assert not asyncio.all_tasks(self.loop)
        assert not self.loop.reported, self.loop.reported


TestRuntimeMachine = RuntimeMachine.TestCase
TestRuntimeMachine.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    # Many steps find nothing to act on; that is part of a random list of events.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
