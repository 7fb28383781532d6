"""One immutable deployment: family, processor, scheduler, admission, and the link to its current host.

The question it answers: may this request go in, and to whom? A deployment outlives the incarnations of its
host: the queue stays, the link is replaced. It learns of life and death from the supervisor alone. A name means
one deployment at a time; what was prepared for one runs there or ends, whatever its name means meanwhile.

    host_up ─▶ link dialled ─▶ WELCOME ─▶ scheduler resumes (or is occupied by an earlier front's unit)
    host_down ─▶ scheduler suspended ─▶ the link's unit fails (dispatched) ─▶ the queue waits, or ends
                                                                              when no host will come
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import zmq

from frontend import compute, limits
from frontend.assets import unpacked
from frontend.errors import HostDied, QueueFull, RequestError, RequestTooLarge, Unavailable
from frontend.families.base import AssetError, Decision, Prepared, Processor
from frontend.families.native import HostView, NativeProfile
from frontend.hostlink import HostLink, LinkStatistics, Outputs
from frontend.keys import Account
from frontend.overdue import OverdueWatch
from frontend.questions import DecisionRequest
from frontend.requests import RequestRecord
from frontend.runtime.admission import AdmissionStatistics, BoundedAdmission, Refusal
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.scheduler import Occupation, SchedulerStatistics, SerialScheduler
from protocol import families
from protocol.curve import Security
from protocol.exits import HostExit
from protocol.messages import HostDown, HostUp, Welcome
from protocol.payloads import Payload
from protocol.states import Role

T = TypeVar("T")

log = logging.getLogger("framehost.deployment")


class Absorbing(Protocol):
    """Whoever wants to see each output before the next unit asks for the executor."""

    def absorb(self, prepared: Prepared, index: int, output: object) -> object: ...


class Availability(enum.Enum):
    """What health says about one model."""

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DeploymentStatistics:
    """One reading of everything countable about a deployment."""

    id: str
    name: str
    role: str
    requests: int
    """Open requests that have come as far as this deployment."""
    family: str
    availability: str
    incarnation: str
    identity: str
    last_death: str
    scheduler: SchedulerStatistics
    admissions: tuple[AdmissionStatistics, ...]
    link: LinkStatistics | None
    host: Mapping[str, Any]
    """What the host last said of itself; empty until it was asked."""


class Deployment:
    """One deployment as the front sees it. All methods belong to the event loop's thread."""

    def __init__(
        self,
        model: Mapping[str, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        epoch: str,
        pool: Executor,
        on_drained: Callable[[str], None] = lambda drained: None,
        on_overdue: Callable[[str, float], None] = lambda incarnation, seconds: None,
        secure: Callable[[str], Security | None] = lambda public_key: None,
    ) -> None:
        """`model`: its row in the supervisor's table. `on_drained(id)`: it is held or retired, and unused.
        `on_overdue(incarnation, seconds)`: its host has owed an answer for longer than the execution limit.
        `secure(public_key)`: how a host on another machine is dialled."""
        self.id: str = model["id"]
        self.name: str = model["name"]
        self.role = Role(model["role"])
        self._on_drained = on_drained
        self._users = 0
        self._moved = asyncio.Event()
        """Set, and replaced, when the role changes."""
        self.family = families.find(model["family"])
        self._loop, self._zmq, self._epoch, self._pool = loop, zmq_context, epoch, pool
        self._options: Mapping[str, object] = model["options"]
        self._path: str | None = model.get("path")
        self._execution_limit_s: float | None = model.get("execution_limit_s")
        self._on_overdue = on_overdue
        self._secure = secure
        self.processor = self._make_processor({})
        requests: int | None = model["max_requests"]
        cost: int | None = model["max_cost"]
        self._slots = None if requests is None else BoundedAdmission(f"{self.name} requests", requests=requests)
        self._cost = (
            None if cost is None else BoundedAdmission(f"{self.name} cost", requests=requests or 2**31, cost=cost)
        )
        self._layers = tuple(layer for layer in (self._slots, self._cost) if layer is not None)
        self.scheduler = SerialScheduler(self.name, layers=self._layers)
        self.scheduler.suspend()
        self.availability = Availability.LOADING
        self.last_death = ""
        self.identity = ""
        """What the host calls its weights; equal exactly for equal answers."""
        self.created = int(time.time())
        self._native: tuple[Processor, NativeProfile] | None = None
        self._last_output: Mapping[str, Any] = {}
        self._link: HostLink | None = None
        self._linked: HostUp | None = None
        self._greeting = False
        """Whether a warm host has been dialled and has not answered yet."""
        self._orphan: Occupation | None = None
        self._back_at = math.inf
        """When the host is expected back, on the loop's clock."""

    def _make_processor(self, facts: Mapping[str, object]) -> Processor:
        with unpacked(facts) as folder:
            made: Processor = families.resolve(self.family.processor)(facts, self._options, folder or self._path)
        return made

    @property
    def native(self) -> NativeProfile:
        """The family's own dialect over the current processor. Raises `LookupError` for a family without one."""
        if self._native is None or self._native[0] is not self.processor:
            if not self.family.native:
                raise LookupError(f"the family {self.family.name!r} has no native profile")
            self._native = self.processor, families.resolve(self.family.native)(self.processor)
        return self._native[1]

    def view(self, *, accepting: bool) -> HostView:
        """What a native health may say. `accepting`: whether the server takes requests at all."""
        statistics = self._last_output.get("statistics")
        return HostView(
            ready=accepting and self.availability is Availability.READY,
            facts=self.processor.facts,
            statistics=statistics if isinstance(statistics, Mapping) else {},
        )

    # What it is to its name

    def assume(self, role: Role) -> None:
        """Take the role that the supervisor's table says, and wake whoever waits for another one."""
        if role is not self.role:
            self.role = role
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
        self._tell_when_drained()

    async def moved(self) -> None:
        """Until the role is another one. Cancelling it changes nothing."""
        await self._moved.wait()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A request is prepared, queued, executed or finished here: until it is over, the deployment stays."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._tell_when_drained()

    def _tell_when_drained(self) -> None:
        if not self._users and self.role in (Role.HELD, Role.RETIRED):
            self._on_drained(self.id)

    # Life and death of hosts, as the supervisor tells them

    def host_up(self, up: HostUp) -> None:
        """Dial a warm host. It gets its first unit when it has answered, not before."""
        if self._link is not None:
            raise RuntimeError(f"{self!r} has a host already; the supervisor must report its end first")
        try:
            processor = self._make_processor(up.facts)
        except AssetError as error:
            self._refuse(up, str(error))
            return
        identity = str(up.facts.get("identity", ""))
        if self.identity and identity != self.identity:
            # What waits was prepared for another model and must not run on this one.
            ended = self.scheduler.fail_waiting(self._replaced)
            log.warning("model %s is now %s; %d waiting requests ended", self.name, identity, ended)
        self.identity = identity
        self.processor = processor
        self._last_output = {}
        # It only has to say hello: whoever comes now waits for that.
        self._back_at = self._loop.time()
        if self.availability is Availability.FAILED:
            self.availability = Availability.RESTARTING
        self._linked = up
        self._greeting = True
        self._link = HostLink(
            self._loop,
            self._zmq,
            incarnation=up.incarnation,
            control=up.control,
            data=up.data,
            epoch=self._epoch,
            pid=os.getpid(),
            on_welcome=self._welcomed,
            on_idle=self._host_is_idle,
            on_retiring=self._retiring,
            security=self._secure(up.public_key),
            watch=OverdueWatch(self._loop, self._execution_limit_s, lambda owed: self._overdue(up.incarnation, owed)),
        )

    def _refuse(self, up: HostUp, why: str) -> None:
        """Leave a warm host alone whose weights are not those that this front would prepare for."""
        log.error("model %s: host %s is refused: %s", self.name, up.incarnation, why)
        self._linked = up
        self.availability, self.last_death = Availability.FAILED, why
        self._back_at = math.inf
        self.scheduler.fail_waiting(
            lambda: HostDied(self._unavailable_text(), dispatched=False, retry_after=self._retry_after())
        )

    def _welcomed(self, welcome: Welcome) -> None:
        if not self._greeting:
            return  # too late: its end has been asked for
        self._greeting = False
        if welcome.busy_epoch and welcome.busy_epoch != self._epoch and self._orphan is None:
            # It still computes for the front before this one: that unit holds the permit until it ends.
            self._orphan = self.scheduler.occupy()
        if self.availability is not Availability.READY:
            self.availability = Availability.READY
            self.scheduler.resume()

    def _host_is_idle(self) -> None:
        if self._orphan is not None:
            orphan, self._orphan = self._orphan, None
            orphan.release()

    def _retiring(self) -> None:
        """The host reported a fatal failure and is on its way out: nothing more goes to it."""
        if self.availability is Availability.READY:
            self._close_queue(Availability.RESTARTING, limits.RESTART_WAIT_S)

    def _overdue(self, incarnation: str, seconds: float) -> None:
        """The host has held a unit, or our HELLO, for too long: it is about to be ended, nothing more goes to it."""
        log.error("model %s: host %s has not answered for %.1f s", self.name, incarnation, seconds)
        self._greeting = False
        self._retiring()
        self._on_overdue(incarnation, seconds)

    def host_down(self, down: HostDown) -> None:
        """The process is gone. Its unit fails at once; the queue stays if another host will come."""
        self.last_death = down.last_words
        if self._linked is None or down.incarnation == self._linked.incarnation:
            after = Availability.RESTARTING if down.will_restart else Availability.FAILED
            if self.availability is Availability.READY:
                self._close_queue(after, down.retry_after_s)
            else:
                self.availability = after
                self._back_at = self._loop.time() + down.retry_after_s
            self._host_is_idle()
            self._greeting = False
            link, self._link, self._linked = self._link, None, None
            if link is not None:
                link.end(
                    reason=self._unavailable_text(),
                    retry_after=self._retry_after(),
                    lost=down.exit == HostExit.LOST,
                )
            if not down.will_restart:
                self.scheduler.fail_waiting(
                    lambda: HostDied(self._unavailable_text(), dispatched=False, retry_after=self._retry_after())
                )

    def _close_queue(self, availability: Availability, back_in_s: float) -> None:
        self.availability = availability
        self._back_at = self._loop.time() + back_in_s
        self.scheduler.suspend()

    def close(self, reason: str = "the server is stopping") -> None:
        """End the link for good: it was dropped, or the process ends. What runs and what waits ends with 503."""
        if self.availability is Availability.READY:
            self._close_queue(Availability.FAILED, math.inf)
        self.availability = Availability.FAILED
        link, self._link = self._link, None
        if link is not None:
            link.end(reason=reason, retry_after=1)
        self.scheduler.fail_waiting(lambda: HostDied(reason, dispatched=False, retry_after=1))

    # One request

    def take_slot(self, context: ExecutionContext) -> None:
        """Admit the request to this model; nothing when `context` holds its slot already. Raises `QueueFull`."""
        if self._slots is not None and not context.holds(self._slots):
            self._admit(self._slots, 0, context)

    async def decide(
        self, request: DecisionRequest, body_bytes: int, context: ExecutionContext, record: RequestRecord
    ) -> Decision:
        """Validate, admit, execute and finish one request; every permit it takes is retained by `context`.

        Raises `RequestError` for everything the client should be told. Cancellation before dispatch leaves
        nothing behind; after it, the host's answer or death gives the permits back.
        """
        with self.in_use():
            self.take_slot(context)
            processor, identity = self.processor, self.identity
            size = body_bytes * processor.PREPARE_WEIGHT
            prepared = await self.computed(context, size, lambda: processor.prepare(request))
            record.prepared()
            outputs = await self.execute(processor, identity, prepared, context, record)
            decision = await self.computed(context, prepared.work, lambda: processor.finish(prepared, outputs))
            record.input_tokens = decision.input_tokens
            return decision

    async def computed(self, context: ExecutionContext, size: int, work: Callable[[], T]) -> T:
        """What `work` on `size` bytes returns: done here when small, else in the pool (`compute.in_pool`)."""
        return work() if compute.fits_inline(size) else await compute.in_pool(self._pool, context, work)

    async def execute(
        self, family: Absorbing, identity: str, prepared: Prepared, context: ExecutionContext, record: RequestRecord
    ) -> list[object]:
        """Admit a prepared request's cost and run its units; one output each. The slot is the caller's affair.

        `identity`: of the weights it was prepared for, which must still be these. Errors and cancellation as
        `decide`.
        """
        if self._cost is not None:
            self._admit(self._cost, prepared.cost, context)
        if record.account is not None:
            self._admit_account(record.account, prepared.cost, context)
        self.refuse_unless_expected(context)
        outputs: list[object] = []
        for index, unit in enumerate(prepared.units):
            if self.identity != identity:
                raise self._replaced()
            output = await self.scheduler.run_with_context(context, self._sender(unit, context, record.request_id))
            record.unit_done()
            self._last_output = output.values
            outputs.append(family.absorb(prepared, index, output.values))
        return outputs

    def _sender(self, unit: object, context: ExecutionContext, request_id: str) -> Callable[[Dispatch[Outputs]], None]:
        payload: Payload = unit  # type: ignore[assignment]
        fields = payload.to_wire()

        def start(dispatch: Dispatch[Outputs]) -> None:
            # The link is looked up at the grant: the host may be another incarnation than when we queued.
            link = self._link
            assert link is not None, "the scheduler grants only while a host is linked"
            remaining = context.remaining() if not context.closed else None
            link.send(dispatch, fields, None if remaining is None else max(1, int(remaining * 1000)), request_id)

        return start

    def _admit_account(self, account: Account, cost: int, context: ExecutionContext) -> None:
        if account.requests is not None:
            self._admit(account.requests, 0, context)
        if account.cost is not None:
            self._admit(account.cost, cost, context)

    @staticmethod
    def _admit(layer: BoundedAdmission, cost: int, context: ExecutionContext) -> None:
        verdict = layer.try_admit(cost)
        if isinstance(verdict, Refusal):
            raise refused(verdict)
        context.retain(verdict)

    def refuse_unless_expected(self, context: ExecutionContext) -> None:
        """Raise `Unavailable` when there is no host and none is expected soon enough for this request."""
        if self.availability is Availability.READY:
            return
        wait = self._back_at - self._loop.time()
        remaining = context.remaining()
        patience = limits.RESTART_WAIT_S if remaining is None else min(limits.RESTART_WAIT_S, remaining)
        if self.availability is Availability.FAILED or wait > patience:
            raise Unavailable(
                f"{self._unavailable_text()}: the request was not started", retry_after=self._retry_after()
            )

    def refuse_unless_ready(self) -> None:
        """Raise `Unavailable` unless a warm host is there, for dialects that do not wait for one.

        One that a new front has only to say hello to is there: nobody is to notice that the front is new.
        """
        if self.availability is not Availability.READY and not self._greeting:
            raise Unavailable(self._unavailable_text(), retry_after=self._retry_after())

    def _retry_after(self) -> int:
        if self.availability is Availability.FAILED:
            return limits.RETRY_AFTER_SECONDS[1]  # only an operator can change it: as rarely as may be said
        return max(1, min(limits.RETRY_AFTER_SECONDS[1], math.ceil(min(self._back_at - self._loop.time(), 60.0))))

    def _replaced(self) -> HostDied:
        return HostDied(f"model {self.name!r} was replaced by another one", dispatched=False, retry_after=1)

    def _unavailable_text(self) -> str:
        if self.availability is Availability.FAILED:
            return f"model {self.name!r} has failed and is not started again"
        return f"model {self.name!r} is {self.availability.value}"

    def ask_host(self) -> None:
        """Have the host say how it is; the answer is in a later `statistics()`. Waits for nothing."""
        if self._link is not None:
            self._link.ask()

    def statistics(self) -> DeploymentStatistics:
        """Counts and states, for health, status and tests."""
        return DeploymentStatistics(
            id=self.id,
            name=self.name,
            role=self.role.value,
            requests=self._users,
            family=self.family.name,
            availability=self.availability.value,
            incarnation="" if self._linked is None else self._linked.incarnation,
            identity=self.identity,
            last_death=self.last_death,
            scheduler=self.scheduler.statistics(),
            admissions=tuple(layer.statistics() for layer in self._layers),
            link=None if self._link is None else self._link.statistics(),
            host={} if self._link is None else self._link.report,
        )

    def __repr__(self) -> str:
        return f"<Deployment {self.id!r} {self.role.value} {self.availability.value} {self.scheduler!r}>"


def refused(refusal: Refusal) -> RequestError:
    """The client's answer to a refusal: which budget, what was asked, what is in use, what the bound is."""
    text = (
        f"the budget {refusal.admission!r} refused this request: {refusal.limit} requested {refusal.requested}, "
        f"in use {refusal.used}, limit {refusal.bound}"
    )
    if refusal.permanent:
        return RequestTooLarge(text)
    return QueueFull(text, retry_after=1)
