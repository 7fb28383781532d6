"""One immutable deployment: family, processor, budgets, and one replica per host.

The question it answers: what is it to its name now, and is there a host? A name means one deployment at a time; what
was prepared for one runs there or ends, whatever its name means meanwhile. How a request is taken in is in `intake`,
and what it waits for in `waiting`.

    absent ─▶ a valid request waits ─▶ the front wants a host ─▶ loading ─▶ HOST_UP ─▶ prepared by what it reported

Life and death of the hosts are the replicas' affair; here is what they have in common.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
import zmq

from frontend.families.base import AssetError, Processor
from frontend.families.native import HostView, NativeProfile
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.queueing import UnitQueue
from frontend.runtime.statistics import SchedulerStatistics
from frontend.serving.answer_cache import AnswerCache
from frontend.serving.assets import unpacked
from frontend.serving.replica import Availability, Replica, unavailable_text
from frontend.serving.statistics import DeploymentStatistics
from frontend.serving.usage import Use
from protocol import families
from protocol import limits as protocol_limits
from protocol.curve import Security
from protocol.messages import HostDown, HostUp
from protocol.models import Batch, DeploymentSpec, Standing
from protocol.states import Role

# As names of the module: see `frontend.runtime.admission`.
_HELD: Final = Role.HELD
_RETIRED: Final = Role.RETIRED


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
        listener: Listener | None = None,
        secure: Callable[[str], Security | None] = lambda public_key: None,
    ) -> None:
        """`row`: its row in the supervisor's table. `secure(public_key)`: how a host on another machine is dialled."""
        told, standing = msgspec.convert(row, DeploymentSpec), msgspec.convert(row, Standing)
        self.id, self.name, self.role = told.id, told.name, Role(standing.role)
        self.present = standing.present
        """Whether it has hosts, or they are being started, and are not about to be stopped for room."""
        self.refusal = standing.refusal
        """Why there cannot be a host, when somebody is sure of that."""
        self.keep_alive_s = None if told.pinned else told.keep_alive_s
        self.family = families.find(told.family)
        self.created = int(time.time())
        self.identity = ""
        """What the host calls its weights; equal exactly for equal answers."""
        self._loop, self._listener = loop, listener
        self._options, self._path = told.options, told.path
        self.processor = self._make_processor({})
        self._cold = True
        """Whether the processor knows no host's facts, or a host that was stopped for room: nothing is queued."""
        self.on_demand = not self.present
        """Whether it has been absent, and no host has come since: whoever asks for it waits, in every dialect."""
        self._native: tuple[Processor, NativeProfile] | None = None
        self.last_output: Mapping[str, Any] = {}
        self._users = self._waiting = 0
        self.in_use = Use(self._begin_use, self._end_use)
        """`with` this, a request is prepared, queued, executed or finished here: until it is over, the deployment
        stays."""
        self.awaiting_host = Use(self._begin_wait, self._end_wait)
        """`with` this, inside `in_use`, a request waits for a host to be prepared for, and has one started."""
        self.stopping = False
        """Whether the server stops: no host is started any more."""
        self._last_used = loop.time()
        self._changed = asyncio.Event()
        """Set, and replaced, when the role or the state of a host has changed."""
        self.joins = self.family.pure and told.join
        """Whether equal work that is there at the same time is done once."""
        self.answers = AnswerCache(int(told.answer_cache_mb * 2**20) if self.family.pure else 0)
        self.shares = self.joins or self.answers.on
        """Whether it matters what a unit is equal to."""
        batch = told.batch or Batch(units=1)
        self.batches = batch.units > 1
        """Whether it matters what a unit is to a batch."""
        requests, cost = told.max_requests, told.max_cost
        self.slots = None if requests is None else BoundedAdmission(f"{self.name} requests", requests=requests)
        self.cost = (
            None if cost is None else BoundedAdmission(f"{self.name} cost", requests=requests or 2**31, cost=cost)
        )
        self._layers = tuple(layer for layer in (self.slots, self.cost) if layer is not None)
        self.replicas = [
            Replica(
                self.name,
                number,
                loop=loop,
                zmq_context=zmq_context,
                epoch=epoch,
                layers=self._layers,
                execution_limit_s=told.execution_limit_s,
                batch=batch,
                look_ahead=bool(told.look_ahead),
                on_change=self._has_changed,
                on_overdue=self._overdue,
                secure=secure,
            )
            for number in range(told.replicas)
        ]
        if not self.present:
            for replica in self.replicas:
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
        statistics = self.last_output.get("statistics")
        return HostView(
            ready=accepting and self.availability is Availability.READY,
            facts=self.processor.facts,
            statistics=statistics if isinstance(statistics, Mapping) else {},
        )

    @property
    def availability(self) -> Availability:
        """Of the best replica: one that is ready is enough."""
        if len(self.replicas) == 1:  # every request asks
            return self.replicas[0].availability
        states = [replica.availability for replica in self.replicas]
        order = (Availability.READY, Availability.RESTARTING, Availability.LOADING, Availability.ABSENT)
        return next((state for state in order if state in states), Availability.FAILED)

    @property
    def scheduler(self) -> UnitQueue:
        """The first replica's queue."""
        return self.replicas[0].scheduler

    @property
    def last_death(self) -> str:
        """Of the replica that says most: why there is no host, or why there was none."""
        return next((replica.last_death for replica in self.replicas if replica.last_death), "")

    # What it is to its name, and to the room there is

    def assume(self, row: Mapping[str, Any]) -> None:
        """Take the role and the presence that the supervisor's table says, and wake whoever waits for others."""
        standing = msgspec.convert(row, Standing)
        self.role, self.present, self.refusal = Role(standing.role), standing.present, standing.refusal
        if self.present:
            for replica in self.replicas:
                replica.begin_loading()
        else:
            self.on_demand = True
        self._has_changed()
        self._tell_when_drained()

    def begin_stop(self) -> None:
        """The server stops: no host is started any more, and whoever waits for one, prepared or not, is refused."""
        self.stopping = True
        for replica in self.replicas:
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

    def _begin_wait(self) -> None:
        self._waiting += 1
        if self._waiting == 1 and self._listener is not None:
            self._listener.usage_changed(self)
        self._tell_when_drained()

    def _end_wait(self) -> None:
        self._waiting -= 1
        if not self._waiting and self._listener is not None:
            self._listener.usage_changed(self)

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

    # Life and death of hosts, as the supervisor tells them

    def host_up(self, up: HostUp) -> str:
        """Dial a warm host, and prepare by what it has reported from now on; why it cannot be served, or ""."""
        replica = self.replicas[up.replica]
        try:
            processor = self._make_processor(up.facts)
        except AssetError as error:
            replica.refuse(up, str(error))
            return str(error)[: protocol_limits.MAX_TEXT_CHARS]
        identity = str(up.facts.get("identity", ""))
        first = self._cold
        replica.host_up(up, identity)
        if first or identity != self.identity or len(self.replicas) == 1:
            if identity != self.identity:
                self.answers.clear()
            self.identity, self.processor, self.last_output = identity, processor, {}
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
        self.replicas[down.replica].host_down(down, wanted_gone=wanted_gone)
        if not self.present and all(replica.availability is Availability.ABSENT for replica in self.replicas):
            self._cold = True

    def _overdue(self, incarnation: str, seconds: float) -> None:
        if self._listener is not None:
            self._listener.overdue(self, incarnation, seconds)

    def close(self, reason: str = "the server is stopping") -> None:
        """End every link for good: it was dropped, or the process ends. What runs and what waits ends with 503."""
        for replica in self.replicas:
            replica.close(reason)

    @property
    def greeting(self) -> bool:
        """Whether a warm host has been dialled and has not answered yet."""
        return any(replica.greeting for replica in self.replicas)

    @property
    def expected(self) -> bool:
        """Whether a host is there, or will come by what is known."""
        return any(replica.expected for replica in self.replicas)

    def back_in_s(self) -> float:
        """In how many seconds the first host is expected back; negative: that long ago."""
        return min(replica.back_at for replica in self.replicas) - self._loop.time()

    def retry_after(self) -> int:
        """Whole seconds until a new try makes sense, within the bounds of the header."""
        return min(replica.retry_after() for replica in self.replicas)

    def unavailable_text(self) -> str:
        """Why nothing can be executed here, for the client."""
        return unavailable_text(self.name, self.availability, stopping=self.stopping)

    def ask_host(self) -> None:
        """Have the hosts say how they are; the answers are in a later `statistics()`. Waits for nothing."""
        for replica in self.replicas:
            replica.ask_host()

    def statistics(self) -> DeploymentStatistics:
        """Counts and states, for health, status and tests."""
        replicas = tuple(replica.statistics() for replica in self.replicas)
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
            answers=self.answers.statistics(),
        )

    def __repr__(self) -> str:
        return f"<Deployment {self.id!r} {self.role.value} {self.availability.value} {self.replicas!r}>"
