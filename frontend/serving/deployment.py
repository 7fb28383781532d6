"""One immutable deployment: family, processor, admission, and one replica per host.

The question it answers: may this request go in, and to whom? A name means one deployment at a time; what was
prepared for one runs there or ends, whatever its name means meanwhile.

    absent ─▶ a valid request waits ─▶ the front wants a host ─▶ loading ─▶ HOST_UP ─▶ prepared by what it reported

Life and death of the hosts are the replicas' affair; here is what they have in common.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol, TypeVar

import zmq

from frontend import limits
from frontend.errors import Unavailable
from frontend.families.base import AssetError, Decision, Prepared, Processor
from frontend.families.native import HostView, NativeProfile
from frontend.observation.record import RequestRecord
from frontend.requests.answers import Answer
from frontend.requests.questions import DecisionRequest
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.context import ExecutionContext
from frontend.runtime.scheduler import SchedulerStatistics, SerialScheduler
from frontend.serving import compute
from frontend.serving.absorbing import Absorbing, Telling
from frontend.serving.assets import unpacked
from frontend.serving.refusals import permit
from frontend.serving.replica import Availability, Replica, replaced, unavailable_text
from frontend.serving.statistics import DeploymentStatistics
from frontend.serving.usage import Use
from protocol import families
from protocol import limits as protocol_limits
from protocol.curve import Security
from protocol.messages import HostDown, HostUp
from protocol.states import Role

T = TypeVar("T")

# As names of the module: see `frontend.runtime.admission`.
_READY: Final = Availability.READY
_HELD: Final = Role.HELD
_RETIRED: Final = Role.RETIRED


class Moved(Exception):
    """The name means another deployment now, and nothing was prepared for this one: look again, and ask that."""


class Listener(Protocol):
    """Who wants to know what a deployment is used for."""

    def drained(self, deployment: Deployment) -> None:
        """It may be stopped: no request that needs its hosts is left, and none will come as long as it is held,
        retired, or to leave."""

    def usage_changed(self, deployment: Deployment) -> None:
        """It has become idle, or the first request waits for its host, or none does any more."""

    def overdue(self, deployment: Deployment, incarnation: str, seconds: float) -> None:
        """A host of it has owed an answer for longer than the execution limit."""


class Deployment:
    """One deployment as the front sees it. All methods belong to the event loop's thread."""

    def __init__(
        self,
        row: Mapping[str, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        epoch: str,
        pool: Executor,
        listener: Listener | None = None,
        secure: Callable[[str], Security | None] = lambda public_key: None,
    ) -> None:
        """`row`: its row in the supervisor's table. `secure(public_key)`: how a host on another machine is dialled."""
        self.id: str = row["id"]
        self.name: str = row["name"]
        self.role = Role(row["role"])
        self.present: bool = row.get("present", True)
        """Whether it has hosts, or they are being started, and are not about to be stopped for room."""
        self.refusal: str = row.get("refusal", "")
        """Why there cannot be a host, when somebody is sure of that."""
        self.keep_alive_s: float | None = row.get("keep_alive_s")
        self.family = families.find(row["family"])
        self.created = int(time.time())
        self.identity = ""
        """What the host calls its weights; equal exactly for equal answers."""
        self._loop, self._pool, self._listener = loop, pool, listener
        self._options: Mapping[str, object] = row["options"]
        self._path: str | None = row.get("path")
        self.processor = self._make_processor({})
        self._cold = True
        """Whether the processor knows no host's facts, or a host that was stopped for room: nothing is queued."""
        self.on_demand = not self.present
        """Whether it has been absent, and no host has come since: whoever asks for it waits, in every dialect."""
        self._native: tuple[Processor, NativeProfile] | None = None
        self._last_output: Mapping[str, Any] = {}
        self._users = self._waiting = self._choices = 0
        self.in_use = Use(self._begin_use, self._end_use)
        """`with` this, a request is prepared, queued, executed or finished here: until it is over, the deployment
        stays."""
        self._stopping = False
        self._last_used = loop.time()
        self._changed = asyncio.Event()
        """Set, and replaced, when the role or the state of a host has changed."""
        requests: int | None = row["max_requests"]
        cost: int | None = row["max_cost"]
        self._slots = None if requests is None else BoundedAdmission(f"{self.name} requests", requests=requests)
        self._cost = (
            None if cost is None else BoundedAdmission(f"{self.name} cost", requests=requests or 2**31, cost=cost)
        )
        self._layers = tuple(layer for layer in (self._slots, self._cost) if layer is not None)
        self._replicas = [
            Replica(
                self.name,
                number,
                loop=loop,
                zmq_context=zmq_context,
                epoch=epoch,
                layers=self._layers,
                execution_limit_s=row.get("execution_limit_s"),
                on_change=self._has_changed,
                on_overdue=self._overdue,
                secure=secure,
            )
            for number in range(row.get("replicas", 1))
        ]
        if not self.present:
            for replica in self._replicas:
                replica.availability = Availability.ABSENT

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

    @property
    def availability(self) -> Availability:
        """Of the best replica: one that is ready is enough."""
        if len(self._replicas) == 1:  # every request asks
            return self._replicas[0].availability
        states = [replica.availability for replica in self._replicas]
        order = (Availability.READY, Availability.RESTARTING, Availability.LOADING, Availability.ABSENT)
        return next((state for state in order if state in states), Availability.FAILED)

    @property
    def scheduler(self) -> SerialScheduler:
        """The first replica's queue."""
        return self._replicas[0].scheduler

    @property
    def last_death(self) -> str:
        """Of the replica that says most: why there is no host, or why there was none."""
        return next((replica.last_death for replica in self._replicas if replica.last_death), "")

    # What it is to its name, and to the room there is

    def assume(self, row: Mapping[str, Any]) -> None:
        """Take the role and the presence that the supervisor's table says, and wake whoever waits for others."""
        self.refusal = row.get("refusal", "")
        self.role = Role(row["role"])
        self.present = row.get("present", True)
        if self.present:
            for replica in self._replicas:
                replica.begin_loading()
        else:
            self.on_demand = True
        self._has_changed()
        self._tell_when_drained()

    def begin_stop(self) -> None:
        """The server stops: no host is started any more, and whoever waits for one, prepared or not, is refused."""
        self._stopping = True
        for replica in self._replicas:
            replica.begin_stop()
        self._has_changed()

    async def moved(self) -> None:
        """Until the role, or the state of a host, is another one. Cancelling it changes nothing."""
        await self._changed.wait()

    def _has_changed(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _begin_use(self) -> None:
        self._users += 1

    def _end_use(self) -> None:
        self._users -= 1
        if not self._users:
            self._last_used = self._loop.time()
            if self._listener is not None:
                self._listener.usage_changed(self)
        self._tell_when_drained()

    def _tell_when_drained(self) -> None:
        # Who only waits for a host needs none of those there are.
        leaving = not self.present or self.role is _HELD or self.role is _RETIRED
        if leaving and self._users == self._waiting and self._listener is not None:
            self._listener.drained(self)

    @property
    def wanted(self) -> bool:
        """Whether a request waits for a host that nobody has been asked to start."""
        return bool(self._waiting) and not self.present and self.role is Role.CURRENT and not self.refusal

    @property
    def idle_s(self) -> float | None:
        """How long no request has been here, in seconds; None while one is."""
        return None if self._users else self._loop.time() - self._last_used

    @property
    def cold(self) -> bool:
        """Whether a request has to wait for a host before it can be prepared."""
        return self._cold or not self.present

    async def arrival(self, prepared: Prepared, context: ExecutionContext, record: RequestRecord) -> None:
        """Wait until there is a host that requests can be prepared for; the front has one started meanwhile.

        The request was found valid, as `prepared` shows, and is inside `in_use`. Raises what admission would refuse
        it with: nothing is loaded for that. Raises `Unavailable` when no host will come, or none has come in the
        request's time, or the server stops; `Moved` when the name means another deployment, or is about to.
        """
        for layer, cost in self._layers_after_preparation(prepared, record):
            permit(layer, cost).release()
        self._waiting += 1
        try:
            if self._waiting == 1 and self._listener is not None:
                self._listener.usage_changed(self)
            self._tell_when_drained()
            with record.waiting_for_host():
                while self.cold:
                    if self.role is not Role.CURRENT:
                        raise Moved
                    if self._stopping:
                        raise Unavailable("the server is stopping and loads no models", retry_after=5)
                    if self.refusal:
                        raise Unavailable(f"model {self.name!r} cannot be loaded: {self.refusal}", retry_after=5)
                    if self.present and self.availability in (Availability.FAILED, Availability.RESTARTING):
                        self.refuse_unless_expected(context)
                    await self._changed.wait()
        except asyncio.CancelledError:
            remaining = None if context.closed else context.remaining()
            if remaining is not None and remaining <= limits.TIMER_SLACK_S:
                # Its time is over. There was never a host to run out of time on.
                text = f"model {self.name!r} could not be loaded within the request's time: it is "
                raise Unavailable(f"{text}{self.availability.value}", retry_after=self._retry_after()) from None
            raise
        finally:
            self._waiting -= 1
            if not self._waiting and self._listener is not None:
                self._listener.usage_changed(self)

    # Life and death of hosts, as the supervisor tells them

    def host_up(self, up: HostUp) -> str:
        """Dial a warm host, and prepare by what it has reported from now on; why it cannot be served, or ""."""
        replica = self._replicas[up.replica]
        try:
            processor = self._make_processor(up.facts)
        except AssetError as error:
            replica.refuse(up, str(error))
            return str(error)[: protocol_limits.MAX_TEXT_CHARS]
        identity = str(up.facts.get("identity", ""))
        first = self._cold
        replica.host_up(up, identity)
        if first or identity != self.identity or len(self._replicas) == 1:
            self.identity, self.processor, self._last_output = identity, processor, {}
        self._cold = self.on_demand = False
        if not self._users:
            self._last_used = self._loop.time()
            if self._listener is not None:
                self._listener.usage_changed(self)
        self._has_changed()
        return ""

    def host_down(self, down: HostDown) -> None:
        """The process of one replica is gone."""
        # What is held or to leave is stopped on purpose: whoever comes meanwhile waits for what follows.
        wanted_gone = not self.present or self.role is Role.HELD
        self._replicas[down.replica].host_down(down, wanted_gone=wanted_gone)
        if not self.present and all(replica.availability is Availability.ABSENT for replica in self._replicas):
            self._cold = True

    def _overdue(self, incarnation: str, seconds: float) -> None:
        if self._listener is not None:
            self._listener.overdue(self, incarnation, seconds)

    def close(self, reason: str = "the server is stopping") -> None:
        """End every link for good: it was dropped, or the process ends. What runs and what waits ends with 503."""
        for replica in self._replicas:
            replica.close(reason)

    # One request

    def take_slot(self, context: ExecutionContext) -> None:
        """Admit the request to this model; nothing when `context` holds its slot already. Raises `QueueFull`."""
        slots = self._slots
        if slots is not None and not context.holds(slots):
            context.retain(permit(slots, 0))

    async def decide(
        self,
        request: DecisionRequest,
        body_bytes: int,
        context: ExecutionContext,
        record: RequestRecord,
        on_answer: Callable[[str, Answer], None] | None = None,
    ) -> Decision:
        """Validate, admit, execute and finish one request; every permit it takes is retained by `context`.

        `on_answer(question, answer)` is told what is settled before the end, where the family can say it.

        Raises `RequestError` for everything the client should be told, and `Moved` before anything was executed.
        Cancellation before dispatch leaves nothing behind; after it, the host's answer or death gives the permits
        back.
        """
        with self.in_use:
            self.take_slot(context)
            processor, identity = self.processor, self.identity
            size = body_bytes * processor.PREPARE_WEIGHT
            if compute.fits_inline(size):  # as `computed` would, without a coroutine for each step of a small request
                prepared = processor.prepare(request)
            else:
                prepared = await compute.in_pool(self._pool, context, lambda: processor.prepare(request))
            if self.cold:
                # It is valid by what is in the folder. The host's facts decide how it is rendered.
                await self.arrival(prepared, context, record)
                processor, identity = self.processor, self.identity
                prepared = await self.computed(context, size, lambda: processor.prepare(request))
            record.prepared()
            family: Absorbing = processor if on_answer is None else Telling(processor, on_answer)
            outputs = await self.execute(family, identity, prepared, context, record)
            if compute.fits_inline(prepared.work):
                decision = processor.finish(prepared, outputs)
            else:
                decision = await compute.in_pool(self._pool, context, lambda: processor.finish(prepared, outputs))
            record.input_tokens = decision.input_tokens
            return decision

    async def computed(self, context: ExecutionContext, size: int, work: Callable[[], T]) -> T:
        """What `work` on `size` bytes returns: done here when small, else in the pool (`compute.in_pool`)."""
        return work() if compute.fits_inline(size) else await compute.in_pool(self._pool, context, work)

    async def execute(
        self, family: Absorbing, identity: str, prepared: Prepared, context: ExecutionContext, record: RequestRecord
    ) -> list[object]:
        """Admit a prepared request's cost and run its units; one output each. The slot is the caller's affair.

        `identity`: of the weights it was prepared for, which must still be these. All units go to one replica.
        Errors and cancellation as `decide`.
        """
        for layer, cost in self._layers_after_preparation(prepared, record):
            context.retain(permit(layer, cost))
        self.refuse_unless_expected(context)
        replica = self._choose(identity)
        outputs: list[object] = []
        for index, unit in enumerate(prepared.units):
            if replica is None or replica.identity != identity:
                raise replaced(self.name)
            output = await replica.run(unit, context, record.request_id)
            record.unit_done()
            self._last_output = output.values
            outputs.append(family.absorb(prepared, index, output.values))
        return outputs

    def _choose(self, identity: str) -> Replica | None:
        """The least loaded replica that is ready, else that may be again; of equals the one that was chosen last the
        longest time ago. None when none has these weights."""
        fit = [replica for replica in self._replicas if replica.identity == identity and replica.expected]
        if not fit:
            return None
        if len(fit) == 1:
            return fit[0]
        chosen = min(
            fit,
            key=lambda replica: (
                replica.availability is not Availability.READY,
                replica.load,
                replica.last_used,
            ),
        )
        self._choices += 1
        chosen.last_used = self._choices
        return chosen

    def _layers_after_preparation(
        self, prepared: Prepared, record: RequestRecord
    ) -> Sequence[tuple[BoundedAdmission, int]]:
        """What refuses a request by what it turned out to be, with what it asks of each."""
        if self._cost is None and record.account is None:
            return ()
        layers = [] if self._cost is None else [(self._cost, prepared.cost)]
        if record.account is not None:
            if record.account.requests is not None:
                layers.append((record.account.requests, 0))
            if record.account.cost is not None:
                layers.append((record.account.cost, prepared.cost))
        return layers

    def refuse_unless_expected(self, context: ExecutionContext) -> None:
        """Raise `Unavailable` when there is no host and none is expected soon enough for this request."""
        availability = self.availability
        if availability is _READY:
            return
        wait = self._back_at() - self._loop.time()
        remaining = context.remaining()
        patience = limits.RESTART_WAIT_S if remaining is None else min(limits.RESTART_WAIT_S, remaining)
        # Late by as much as we would have waited for it: nobody knows when it comes, if it does.
        late = -wait > limits.RESTART_WAIT_S
        if wait > patience or late or not any(replica.expected for replica in self._replicas):
            raise Unavailable(
                f"{self._unavailable_text()}: the request was not started", retry_after=self._retry_after()
            )

    @property
    def greeting(self) -> bool:
        """Whether a warm host has been dialled and has not answered yet."""
        return any(replica.greeting for replica in self._replicas)

    def refuse_unless_ready(self) -> None:
        """Raise `Unavailable` unless a warm host is there, for dialects that do not wait for one to come back.

        One that a new front has only to say hello to is there: nobody is to notice that the front is new.
        """
        if self.availability is not Availability.READY and not self.greeting:
            raise Unavailable(self._unavailable_text(), retry_after=self._retry_after())

    def _back_at(self) -> float:
        return min(replica.back_at for replica in self._replicas)

    def _retry_after(self) -> int:
        return min(replica.retry_after() for replica in self._replicas)

    def _unavailable_text(self) -> str:
        return unavailable_text(self.name, self.availability, stopping=self._stopping)

    def ask_host(self) -> None:
        """Have the hosts say how they are; the answers are in a later `statistics()`. Waits for nothing."""
        for replica in self._replicas:
            replica.ask_host()

    def statistics(self) -> DeploymentStatistics:
        """Counts and states, for health, status and tests."""
        replicas = tuple(replica.statistics() for replica in self._replicas)
        first = replicas[0]
        return DeploymentStatistics(
            id=self.id,
            name=self.name,
            role=self.role.value,
            present=self.present,
            requests=self._users,
            waiting_for_host=self._waiting,
            idle_s=self.idle_s,
            family=self.family.name,
            availability=self.availability.value,
            incarnation=first.incarnation,
            identity=self.identity,
            last_death=self.last_death,
            scheduler=SchedulerStatistics.sum([replica.scheduler for replica in replicas]),
            admissions=tuple(layer.statistics() for layer in self._layers),
            link=first.link,
            host=first.host,
            replicas=replicas,
        )

    def __repr__(self) -> str:
        return f"<Deployment {self.id!r} {self.role.value} {self.availability.value} {self._replicas!r}>"
