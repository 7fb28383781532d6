"""One immutable deployment: family, processor, budgets, and one replica per host.

The question it answers: what is it to its name now, and is there a host? A name means one deployment at a time; what
was prepared for one runs there or ends, whatever its name means meanwhile. How a request is taken in is in `intake`,
and what it waits for in `waiting`.

    absent ─▶ a valid request waits ─▶ the front wants a host ─▶ loading ─▶ HOST_UP ─▶ prepared by what it reported

Life and death of the hosts are the replicas' affair; here is what they have in common.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
import zmq

from frontend.errors import Unavailable
from frontend.families.base import Processor
from frontend.families.native import HostView, NativeProfile
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.queueing import UnitQueue
from frontend.runtime.statistics import SchedulerStatistics
from frontend.serving.answer_cache import AnswerCache
from frontend.serving.devices import Devices
from frontend.serving.making import Made, Maker, Unusable
from frontend.serving.replica import Availability, Replica, unavailable_text
from frontend.serving.retention import Retention
from frontend.serving.shares import Shares
from frontend.serving.statistics import DeploymentStatistics
from frontend.serving.usage import Use
from protocol import families
from protocol.curve import Security
from protocol.messages import HostDown, HostUp
from protocol.models import Batch, DeploymentSpec, Standing
from protocol.states import Role

log = logging.getLogger("framehost.deployment")

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

    def judged(self, deployment: Deployment, up: HostUp, refusal: str) -> None:
        """What a host brings was looked at: it is dialled, or `refusal` says why it is left alone."""


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
        devices: Devices | None = None,
    ) -> None:
        """`row`: its row in the supervisor's table. `secure(public_key)`: how a host on another machine is dialled.
        `devices`: whose budgets its hosts keep things in; None: its own."""
        told, standing = msgspec.convert(row, DeploymentSpec), msgspec.convert(row, Standing)
        self.id, self.name, self.role = told.id, told.name, Role(standing.role)
        self.present = standing.present
        """Whether it has hosts, or they are being started, and are not about to be stopped for room."""
        self.refusal = standing.refusal
        """Why there cannot be a host, when that is certain."""
        self.keep_alive_s = None if told.pinned else told.keep_alive_s
        self.family = families.find(told.family)
        self.created = int(time.time())
        self.identity = ""
        """What the host calls its weights; equal exactly for equal answers."""
        self._loop, self._listener = loop, listener
        self._maker = Maker(loop, self.name, self.family, told.options, told.path, told.temperature)
        self._processor: Processor | None = None
        self.unusable = ""
        """Why there is no processor, when none could be made."""
        self._judging: dict[int, HostUp] = {}
        """Warm hosts that are not dialled yet, because a processor is being made of what they have reported."""
        self.closed = False
        self._cold = True
        """Whether the processor knows no host's facts, or a host that was stopped for room: nothing is queued."""
        self.on_demand = not self.present
        """Whether it has been absent, and no host has come since: a request for it waits, in every dialect."""
        self._native: tuple[Processor | None, NativeProfile] | None = None
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
        self.slot_shares = None if self.slots is None else Shares(self.slots)
        """What each key has of the slots."""
        devices = devices or Devices(loop)
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
                retention=Retention(self.name, f"{self.id}/{number}", devices),
            )
            for number in range(told.replicas)
        ]
        if not self.present:
            for replica in self.replicas:
                replica.availability = Availability.ABSENT
        self._maker.begin({}, self._made_of_the_folder)

    # What prepares for it

    @property
    def processor(self) -> Processor:
        """The present one. Raises `Unavailable` where there is none; `waiting.for_a_processor` waits for it."""
        if self._processor is None:
            why = self.unusable or "its files are being read"
            raise Unavailable(f"model {self.name!r} cannot be prepared for: {why}", retry_after=self.retry_after())
        return self._processor

    @property
    def prepares(self) -> bool:
        """Whether there is a processor."""
        return self._processor is not None

    @property
    def hopeless(self) -> bool:
        """Whether there will be no processor, as far as is known."""
        return bool(self.unusable) and not self._judging and self._processor is None

    def _made_of_the_folder(self, made: Made) -> None:
        if self._processor is not None or self.closed:
            return  # a host's facts were faster
        if isinstance(made, Unusable):
            self.unusable = str(made)
            log.warning("model %s: %s", self.name, made)
        else:
            self._processor = made
        self._has_changed()

    @property
    def native(self) -> NativeProfile:
        """The family's own dialect over the current processor; where there is none, it knows the family's limits and
        words and nothing else. Raises `LookupError` for a family without one."""
        if self._native is None or self._native[0] is not self._processor:
            if not self.family.native:
                raise LookupError(f"the family {self.family.name!r} has no native profile")
            self._native = self._processor, families.resolve(self.family.native)(self._processor)
        return self._native[1]

    def view(self, *, accepting: bool) -> HostView:
        """What a native health may say. `accepting`: whether the server takes requests at all."""
        statistics = self.last_output.get("statistics")
        return HostView(
            ready=accepting and self.availability is Availability.READY,
            facts={} if self._processor is None else self._processor.facts,
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
        """Take the role and the presence that the supervisor's table says, and wake those that wait for others."""
        standing = msgspec.convert(row, Standing)
        self.role, self.present, self.refusal = Role(standing.role), standing.present, standing.refusal
        if self.present:
            for replica in self.replicas:
                replica.begin_loading()
        else:
            self.on_demand = True
        for replica, host in zip(self.replicas, standing.hosts, strict=False):
            replica.assume(host, present=self.present)
        if not self.present and all(replica.availability is Availability.ABSENT for replica in self.replicas):
            self._cold = True
        self._has_changed()
        self._tell_when_drained()

    def begin_stop(self) -> None:
        """The server stops: no host is started any more, and a request that waits for one, prepared or not, is
        refused."""
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
        """Whether a request waits for a host whose start has not been asked for."""
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

    def host_up(self, up: HostUp) -> None:
        """Look at what a warm host has reported; then dial it, and prepare by that from now on, or leave it alone."""
        self.replicas[up.replica].check_free()
        self._judging[up.replica] = up
        self._maker.begin(up.facts, lambda made: self._judge(up, made))

    def _judge(self, up: HostUp, made: Made) -> None:
        if self._judging.get(up.replica) is not up or self.closed:
            return  # its process has ended meanwhile
        del self._judging[up.replica]
        replica = self.replicas[up.replica]
        refusal = str(made) if isinstance(made, Unusable) else self._dial(up, made)
        if refusal:
            self.unusable = refusal
            replica.refuse(up, refusal)
        if self._listener is not None:
            self._listener.judged(self, up, refusal)
        self._has_changed()

    def _dial(self, up: HostUp, processor: Processor) -> str:
        """Why it cannot be dialled, or nothing."""
        identity = str(up.facts.get("identity", ""))
        first = self._cold
        try:
            self.replicas[up.replica].host_up(up, identity)
        except (zmq.ZMQError, ValueError) as error:
            return f"its addresses are none: {error}"
        if first or identity != self.identity or len(self.replicas) == 1:
            if identity != self.identity:
                self.answers.clear()
            self.identity, self._processor, self.last_output = identity, processor, {}
        self.unusable = ""
        self._cold = self.on_demand = False
        if not self._users:
            self._last_used = self._loop.time()
            if self._listener is not None:
                self._listener.usage_changed(self)
        return ""

    def host_down(self, down: HostDown) -> None:
        """The process of one replica is gone."""
        # What is held or to leave is stopped on purpose: a request that comes meanwhile waits for what follows.
        wanted_gone = not self.present or self.role is Role.HELD
        if (judged := self._judging.get(down.replica)) is not None and judged.incarnation == down.incarnation:
            del self._judging[down.replica]
        self.replicas[down.replica].host_down(down, wanted_gone=wanted_gone)
        if not self.present and all(replica.availability is Availability.ABSENT for replica in self.replicas):
            self._cold = True

    def _overdue(self, incarnation: str, seconds: float) -> None:
        if self._listener is not None:
            self._listener.overdue(self, incarnation, seconds)

    def close(self, reason: str = "the server is stopping") -> None:
        """End every link for good: it was dropped, or the process ends. What runs and what waits ends with 503."""
        self.closed = True
        for replica in self.replicas:
            replica.close(reason)

    @property
    def greeting(self) -> bool:
        """Whether a warm host is here that has not answered yet, or is not dialled yet."""
        return bool(self._judging) or any(replica.greeting for replica in self.replicas)

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
