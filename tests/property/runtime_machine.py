"""The request runtime against random lists of events, and the test's own books about it.

Two deployments with both admission layers, requests of one or several units with and
without deadlines, internal work without a context, callers that leave, time that passes,
hosts that answer, fail, die with a unit or without having taken it, and come back, queues
that are given up, fronts that restart. The loop turns only when a rule says so, so events
also meet within one tick.

What is checked after every step is derived from what the test did, not from the runtime's
own counters:

* permits in use equal live holders;
* what is dispatched together is one batch within its limits, and nothing is while suspended or held for an
  earlier front;
* nobody is dispatched before a living unit that arrived earlier, but in a batch, and then `overtakes` times at most;
* equal work is in the host once, and the host is told when nobody waits for it any more, and not before;
* every request ends exactly once, and its signals came in order;
* idle means all zeros.

A `Party` is what the runtime has one place for: a request's unit, and the units of others that are equal to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from frontend.errors import ExecutionStopped
from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.queueing import EarlierWork, UnitQueue
from frontend.runtime.scheduler import SerialScheduler
from frontend.runtime.shape import BatchLimits, Shape
from frontend.runtime.signals import Requeued, Signal
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
    shape: Shape | None
    digest: bytes | None
    context: ExecutionContext | None = None
    task: asyncio.Task[None] | None = None
    holding: bool = False
    """Its own owner of the context is open."""

    told: bool = False
    """Its waiting unit was ended from outside (fail_waiting)."""

    outcome: str | None = None
    trace: list[str] = field(default_factory=list)

    def observe(self, signal: Signal) -> None:
        self.trace.append("R" if isinstance(signal, Requeued) else type(signal).__name__[0])

    def dead(self, now: float) -> bool:
        """Whether nobody waits for it any more, so that others may pass it."""
        assert self.task is not None
        context = self.context
        stopped = context is not None and (context.closed or context.stopped() is not None)
        return self.task.cancelling() > 0 or self.told or stopped


@dataclass(eq=False)
class Party:
    """Requests that wait for one unit: one, or several that are equal."""

    place: int
    digest: bytes | None
    shape: Shape | None
    members: list[Request] = field(default_factory=list)
    leader: Request | None = None
    """Whose start callable was called, once it is in the host."""

    dispatch: Dispatch[str] | None = None
    passed: int = 0
    host_told: bool = False
    """The host was told that nobody waits for it any more."""

    def dead(self, now: float) -> bool:
        return all(member.dead(now) for member in self.members)


class Model:
    """One deployment with its host, and the test's own books about both."""

    def __init__(self, name: str, make: Callable[[Model, str], UnitQueue], limits: BatchLimits, ahead: bool) -> None:
        self.slots = BoundedAdmission(f"{name} slots", requests=8)
        self.tokens = BoundedAdmission(f"{name} tokens", requests=8, cost=16)
        self.limits, self.ahead = limits, ahead
        self.scheduler = make(self, name)
        self.requests: list[Request] = []
        self.places = 0
        self.line: list[Party] = []
        self.filling: list[Party] = []
        self.running: list[Party] = []
        self.staged: list[Party] = []
        self.sent_ahead = False
        self.vanished = False
        """A unit of the batch that is being filled has ended inside its start callable."""
        self.earlier: EarlierWork | None = None
        self.suspended = False
        self.queued = 0
        self.requeued = 0
        self.log: list[str] = []

    def alive(self) -> list[Request]:
        return [request for request in self.requests if request.outcome is None]

    def in_hand(self) -> list[Party]:
        return [*self.running, *self.staged, *self.filling]

    def flush(self) -> None:
        """The batch is complete and leaves."""
        self.vanished = False
        sent, self.filling = self.filling, []
        if not self.running:
            self.running = sent
        else:
            self.staged, self.sent_ahead = sent, bool(sent)

    def settle(self) -> None:
        """The running batch has ended: what was staged is begun with, unless the host is gone."""
        if not self.running:
            self.sent_ahead = False
            if not self.suspended and self.earlier is None:
                self.running, self.staged = self.staged, []

    def forget(self, party: Party) -> None:
        for batch in (self.running, self.staged, self.filling):
            if party in batch:
                batch.remove(party)


class RuntimeMachine(RuleBasedStateMachine):
    """Subclasses say which scheduler is driven, and what it may do."""

    LIMITS: ClassVar[BatchLimits] = BatchLimits()
    AHEAD: ClassVar[bool] = False
    EQUALS: ClassVar[bool] = False
    SIGNALS: ClassVar[str] = r"(A(GSR?)*G?)?"
    """Admitted once, then grants and starts in turn; a grant without a start ends the trace. Only what was started is
    requeued, and then it is granted anew."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.models = tuple(Model(name, self.make, self.LIMITS, self.AHEAD) for name in ("one", "other"))
        self.violations: list[str] = []
        """What was found wrong inside a start callable, where raising would only fail that request."""

    def make(self, model: Model, name: str) -> UnitQueue:
        """The scheduler under test. Its batches are told to `model.flush`."""
        return SerialScheduler(name, layers=(model.slots, model.tokens))

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
            model.log.append(f"{model.requests.index(request)} {outcome}")

    async def external(self, model: Model, request: Request) -> str:
        slot = model.slots.try_admit()
        if not isinstance(slot, Permit):
            return "refused"
        with slot:
            tokens = model.tokens.try_admit(request.cost)
            if not isinstance(tokens, Permit):
                return "refused"

            def observe(signal: Signal) -> None:
                request.observe(signal)
                model.log.append(f"{model.requests.index(request)} {request.trace[-1]}")

            context = ExecutionContext(clock=self.loop.time, deadline=request.deadline, observer=observe)
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
            party = next(each for each in model.line if request in each.members)
            self.check_turn(model, party, request)
            model.line.remove(party)
            party.leader, party.dispatch = request, dispatch
            dispatch.on_abandoned(lambda: self.tell_host(party))
            if request.manner == "raises":
                model.vanished = True
                raise HostError("no link")
            model.filling.append(party)
            if type(model.scheduler) is SerialScheduler:
                model.flush()
            if request.manner != "later":
                model.vanished = True
                self.end(model, party, well=request.manner == "at once")

        context = request.context
        admitted = context is None or context.stopped() is None
        model.queued += admitted
        party = self.party(model, request)
        try:
            if context is None:
                answer = await model.scheduler.run(start)
            else:
                answer = await model.scheduler.run_with_context(
                    context,
                    start,
                    shape=request.shape,
                    digest=None if request.digest is None else lambda: request.digest,
                )
            assert answer == "answer"
        finally:
            party.members.remove(request)
            if party in model.line and not party.members:
                model.line.remove(party)

    def party(self, model: Model, request: Request) -> Party:
        """Where its unit waits: with equals, unless the host was told already to forget them; else behind all."""
        if request.digest is not None and not request.internal and not request.dead(self.loop.time()):
            for party in (*model.line, *model.in_hand()):
                if party.digest == request.digest and party.members:
                    party.members.append(request)
                    return party
        model.places += 1
        known = (None, None) if request.internal else (request.digest, request.shape)
        party = Party(model.places, *known)
        party.members.append(request)
        model.line.append(party)
        return party

    def tell_host(self, party: Party) -> None:
        self.violations += ["the host was told twice"] if party.host_told else []
        party.host_told = True

    def check_turn(self, model: Model, party: Party, request: Request) -> None:
        now, limits = self.loop.time(), model.limits
        ahead = [other for other in model.line[: model.line.index(party)] if not other.dead(now)]
        company = [*model.filling]
        batched = bool(company) or (model.vanished and limits.units > 1)
        for other in ahead:
            other.passed += 1
        shapes = [other.shape for other in (*company, party)]
        together = [shape for shape in shapes if shape is not None]
        padded = sum(shape.rows for shape in together) * max((shape.longest for shape in together), default=0)
        crowded = len(company) + 1 > limits.units or (len(shapes) > 1 and len(together) < len(shapes))
        wrong = {
            "two batches dispatched": bool(model.running) and not model.ahead,
            "a third batch sent": bool(model.running) and bool(model.staged or model.sent_ahead),
            "granted while the host is not ours": model.suspended or model.earlier is not None,
            "dispatched a unit that nobody waits for": request.dead(now),
            "dispatched somebody else than the first of its equals": any(
                not other.dead(now) for other in party.members[: party.members.index(request)]
            ),
            "passed a living unit": bool(ahead) and not batched,
            "passed a living unit too often": any(other.passed > limits.overtakes for other in ahead),
            "a batch of what does not fit": crowded or len({shape.key for shape in together}) > 1,
            "a batch above its limits": len(together) > 1
            and (padded > limits.tokens or sum(shape.size for shape in together) > limits.size),
            "equal work is in the host twice": party.digest is not None
            and any(other.digest == party.digest and other.members for other in model.in_hand()),
        }
        self.violations += [what for what, happened in wrong.items() if happened]

    def end(self, model: Model, party: Party, *, well: bool) -> None:
        model.forget(party)
        model.settle()
        assert party.dispatch is not None
        if well:
            party.dispatch.complete("answer")
        else:
            party.dispatch.fail(HostError("execution failed"))

    # What happens

    @rule(
        which=models,
        burst=st.lists(
            st.tuples(
                st.sampled_from([1, 1, 2, 3]),
                st.sampled_from([0, 1, 2, 3, 6, 18]),
                st.sampled_from([None, 0.0, 1.0, 2.0, 5.0]),
                st.sampled_from(MANNERS),
                st.sampled_from([False, False, False, True]),
                st.sampled_from([("a", 1, 2), ("a", 2, 3), ("b", 1, 4), ("a", 1, 8), None]),
                st.sampled_from([None, None, b"x", b"y"]),
            ),
            min_size=1,
            max_size=4,
        ),
        turns=st.integers(0, 2),
    )
    def arrive(self, which: int, burst: list[tuple[Any, ...]], turns: int) -> None:
        model = self.models[which]
        for units, cost, patience, manner, internal, measures, digest in burst:
            deadline = None if patience is None else self.loop.time() + patience
            shape = None if measures is None else Shape(measures[0], measures[1], measures[2], size=measures[1])
            equal = digest if self.EQUALS else None
            if equal is not None:
                # Equal payloads have equal shapes, and meet the same fate.
                shape, manner = Shape("a", 1, 2, size=1), "later"
            request = Request(units, cost, deadline, manner, internal, shape, equal)
            model.requests.append(request)
            request.task = self.loop.create_task(self.drive(model, request))
        self.turn(turns)

    @rule(turns=st.integers(1, 4))
    def turn(self, turns: int) -> None:
        """Let the loop run what is ready, this many times."""
        for _ in range(turns):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            for model in self.models:
                model.vanished = False

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        """Timers come due; they run in the next turn, so a slot may free in between."""
        self.loop.advance(seconds)

    @rule(which=models, pick=st.integers(0, 9))
    def caller_leaves(self, which: int, pick: int) -> None:
        # A task that has not begun is never driven: it would end without an outcome of its own.
        model = self.models[which]
        waiting = [member for party in (*model.line, *model.in_hand()) for member in party.members]
        begun = [request for request in model.alive() if request.holding or request in waiting]
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

    @rule(which=models, well=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=4))
    def host_answers(self, which: int, well: list[bool]) -> None:
        """Several in one tick: a host may be faster than the callers' tasks."""
        model = self.models[which]
        for outcome in well:
            if model.running:
                self.end(model, model.running[0], well=outcome)

    @rule(which=models, happens=rarely)
    def host_dies(self, which: int, happens: bool) -> None:
        model = self.models[which]
        if not happens:
            return
        self.suspend(model)
        for party in model.in_hand():
            self.end(model, party, well=False)

    @rule(replaced=st.sampled_from([True, True, False]), taken=st.integers(0, 2))
    def hosts_die_before_they_take(self, replaced: bool, taken: int) -> None:
        """What was sent to them is requeued; mostly a successor is there at once, or nothing else would happen."""
        for which, model in enumerate(self.models):
            if not model.running:
                continue
            self.suspend(model)
            # A host takes a batch or none of it, so the units it has taken are the whole of the first one.
            for party in (*model.running,) if taken == 2 else ():
                self.end(model, party, well=False)
            lost = model.in_hand()
            for party in lost:
                model.forget(party)
                model.requeued += 1
                assert party.dispatch is not None
                if party.members:
                    self.put_back(model, party)
                # What it is told now has nothing to do with the next grant.
                party.host_told = False
                party.dispatch.requeue()
            self.permits_in_use_equal_live_holders()
            if replaced:
                self.host_returns(which)

    def put_back(self, model: Model, party: Party) -> None:
        """In its place: before all that came later."""
        at = next((index for index, other in enumerate(model.line) if other.place > party.place), len(model.line))
        model.line.insert(at, party)

    @rule(which=models, pick=st.integers(0, 9))
    def host_withdraws(self, which: int, pick: int) -> None:
        """What was sent ahead is not begun with, when the host has been told in time that nobody waits for it."""
        model = self.models[which]
        forgotten = [party for party in model.staged if party.host_told]
        if forgotten:
            party = forgotten[pick % len(forgotten)]
            model.forget(party)
            assert party.dispatch is not None
            party.dispatch.withdraw()

    def suspend(self, model: Model) -> None:
        if not model.suspended:
            model.suspended = True
            model.scheduler.suspend()

    @rule(which=models)
    def host_returns(self, which: int) -> None:
        model = self.models[which]
        if model.suspended:
            model.suspended = False
            model.settle()
            model.scheduler.resume()

    @rule(which=models, happens=rarely)
    def queue_is_given_up(self, which: int, happens: bool) -> None:
        model = self.models[which]
        if not happens:
            return
        waiting = [member for party in model.line for member in party.members]
        errors: list[HostError] = []

        def error() -> HostError:
            errors.append(HostError("other identity"))
            return errors[-1]

        told = model.scheduler.fail_waiting(error)
        assert told <= len(waiting)
        assert len(set(map(id, errors))) == len(errors)
        for request in waiting:
            request.told = True
        model.line.clear()
        assert model.scheduler.statistics().waiting == 0

    @rule(which=models, happens=rarely)
    def front_restarts(self, which: int, happens: bool) -> None:
        model = self.models[which]
        if happens and not model.in_hand() and model.earlier is None:
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
            dispatched = [party.leader for party in model.in_hand()]
            holders = [
                request
                for request in model.requests
                if request.holding or (request in dispatched and not request.internal)
            ]
            assert model.slots.statistics().outstanding == len(holders)
            assert model.tokens.statistics().outstanding == len(holders)
            assert model.tokens.statistics().held == sum(request.cost for request in holders)
            assert model.tokens.statistics().held <= 16

    @invariant()
    def the_host_is_told_when_nobody_waits(self) -> None:
        for model in self.models:
            for party in model.in_hand():
                assert party.host_told == (not party.members)

    @invariant()
    def the_books_balance(self) -> None:
        for model in self.models:
            seen = model.scheduler.statistics()
            assert (seen.running, seen.staged) == (len(model.running), len(model.staged))
            assert (seen.suspended, seen.held_for_earlier_front) == (model.suspended, model.earlier is not None)
            # A unit that was skipped at a grant leaves the test's line when its caller has run.
            line = [member for party in model.line for member in party.members]
            living = [request for request in line if not request.dead(self.loop.time())]
            followers = [member for party in model.in_hand() for member in party.members if member is not party.leader]
            stays = [member for member in followers if not member.dead(self.loop.time())]
            assert len(living) + len(stays) <= seen.waiting + seen.joined <= len(line) + len(followers)
            ended = seen.completed + seen.failed + seen.withdrawn
            assert model.queued == seen.waiting + seen.joined + seen.running + seen.staged + ended
            assert seen.dropped_results <= seen.completed + seen.failed
            assert seen.requeued == model.requeued

    @invariant()
    def a_free_permit_and_a_waiting_unit_never_exist_together(self) -> None:
        for model in self.models:
            if not model.running and not model.suspended and model.earlier is None:
                assert model.scheduler.statistics().waiting == 0

    @invariant()
    def signals_come_in_order(self) -> None:
        for model in self.models:
            for request in model.requests:
                trace = "".join(request.trace)
                assert re.fullmatch(self.SIGNALS, trace), trace
                if request.outcome == "refused":
                    assert trace == ""
                if request.outcome == "answered" and not request.internal:
                    assert re.sub("GS?R", "", trace) == "A" + "GS" * request.units

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
            if not any(model.alive() or model.in_hand() for model in self.models):
                break
            for which in range(len(self.models)):
                self.host_answers(which, well=[True])
            self.turn(1)
        self.turn(2)
        self.nothing_went_wrong_on_the_way()
        for model in self.models:
            assert not model.alive(), "a request never ended"
            seen = model.scheduler.statistics()
            assert (seen.waiting, seen.running, seen.staged, seen.joined, seen.abandoned) == (0, 0, 0, 0, 0)
            assert not seen.held_for_earlier_front
            for layer in (model.slots, model.tokens):
                assert (layer.statistics().outstanding, layer.statistics().held) == (0, 0)
        assert not asyncio.all_tasks(self.loop)
        assert not self.loop.reported, self.loop.reported
