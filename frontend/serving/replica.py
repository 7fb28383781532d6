"""One of a deployment's hosts as the front sees it: its queue, the link to its present incarnation, its life.

A replica outlives the incarnations of its host: the queue stays, the link is replaced. It learns of life and death
from the supervisor alone.

    host_up ─▶ link dialled ─▶ WELCOME ─▶ scheduler resumes (or is held for an earlier front's unit)
    host_down ─▶ scheduler suspended ─▶ the link's unit fails (dispatched),  ─▶ the queue waits, or ends
                                        or is queued again if the dead host     when no host will come
                                        had not taken it
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import zmq

from frontend import limits
from frontend.errors import HostDied
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.batches import BatchScheduler
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.queueing import EarlierWork, UnitQueue
from frontend.runtime.scheduler import SerialScheduler
from frontend.runtime.shape import BatchLimits, Shape
from frontend.serving.hostlink import HostLink, Outputs
from frontend.serving.overdue import OverdueWatch
from frontend.serving.retention import Retention, Turn
from frontend.serving.statistics import ReplicaStatistics
from protocol.curve import Security
from protocol.exits import HostExit
from protocol.messages import HostDown, HostUp, Welcome
from protocol.models import Batch, HostStanding

log = logging.getLogger("framehost.replica")


class Availability(enum.Enum):
    """What health says about one model."""

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    ABSENT = "absent"
    """There is no host, and a request that needs one has it started."""


KEPT_COUNTS: Final = ("hits", "misses", "kept_tokens", "evicted", "bytes", "limit_bytes")

_FAILED: Final = Availability.FAILED  # see `frontend.runtime.admission`


class Replica:
    """One host's queue and link. All methods belong to the event loop's thread.

    `on_change()` is called whenever the availability has changed; `on_overdue(incarnation, seconds)` when the host
    has owed an answer for longer than the execution limit; `secure(public_key)` is how a host on another machine is
    dialled.
    """

    def __init__(
        self,
        name: str,
        number: int,
        *,
        loop: asyncio.AbstractEventLoop,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        epoch: str,
        layers: Sequence[BoundedAdmission],
        execution_limit_s: float | None,
        batch: Batch,
        look_ahead: bool,
        on_change: Callable[[], None],
        on_overdue: Callable[[str, float], None],
        secure: Callable[[str], Security | None],
        retention: Retention,
    ) -> None:
        self.number = number
        self.retention = retention
        self.availability = Availability.LOADING
        self.identity = ""
        """What its host calls its weights; equal exactly for equal answers."""
        self.last_death = ""
        self.last_used = 0
        """Rises with every request that chose it, over all replicas of the deployment."""
        self.back_at = math.inf
        """When the host is expected back, on the loop's clock."""
        self.greeting = False
        """Whether a warm host has been dialled and has not answered yet."""
        self._collects = batch.units > 1 or look_ahead
        self.scheduler: UnitQueue = SerialScheduler(name, layers=layers)
        if self._collects:
            measures = BatchLimits(
                units=batch.units, tokens=batch.tokens, size=batch.bytes, wait_s=batch.wait_ms / 1000
            )
            self.scheduler = BatchScheduler(
                name, layers=layers, limits=measures, look_ahead=look_ahead, flush=self._flush
            )
        self.scheduler.suspend()
        self._name = name
        self._loop, self._zmq, self._epoch = loop, zmq_context, epoch
        self._execution_limit_s = execution_limit_s
        self._on_change, self._on_overdue, self._secure = on_change, on_overdue, secure
        self._link: HostLink | None = None
        self._linked: HostUp | None = None
        self._earlier: EarlierWork | None = None
        self._kept: Mapping[str, int] = {}
        self._stopping = False

    @property
    def expected(self) -> bool:
        """Whether what waits here will get to a host, as far as is known: during a stop none is started any more."""
        if self._stopping:
            return self.availability is Availability.READY or self.greeting
        return self.availability is not _FAILED

    @property
    def load(self) -> int:
        """Units that wait or run here."""
        return self.scheduler.load

    # Life and death, as the supervisor tells them

    def host_up(self, up: HostUp, identity: str) -> None:
        """Dial a warm host. It gets its first unit when it has answered, not before.

        Raises `zmq.ZMQError` or `ValueError` for addresses that are none; nothing has changed then.
        """
        self.check_free()
        link = HostLink(
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
        device = str(up.facts.get("device", ""))
        self.retention.host_up(f"{device} of {self.retention.host}" if up.public_key else device, up.facts, link.evict)
        if self.identity and identity != self.identity:
            # What waits was prepared for another model and must not run on this one.
            ended = self.scheduler.fail_waiting(lambda: replaced(self._name))
            log.warning("model %s is now %s; %d waiting requests ended", self._name, identity, ended)
        self.identity = identity
        # It only has to say hello: a request that comes now waits for that.
        self.back_at = self._loop.time()
        self._linked = up
        self.greeting = True
        self._link = link
        self._kept = {}
        if self.availability in (Availability.FAILED, Availability.ABSENT):
            self.availability = Availability.RESTARTING
        self._on_change()

    def refuse(self, up: HostUp, why: str) -> None:
        """Leave a warm host alone whose weights are not those that this front would prepare for."""
        self.check_free()
        log.error("model %s: host %s is refused: %s", self._name, up.incarnation, why)
        self._linked = up
        self.availability, self.last_death = Availability.FAILED, why
        self.back_at = math.inf
        self._end_waiting()
        self._on_change()

    def host_down(self, down: HostDown, *, wanted_gone: bool) -> None:
        """The process is gone. Its unit fails at once, or is the first of the queue again if the host had not taken it;
        the queue stays if another host will come.

        `wanted_gone`: it was stopped to make room, which is no failure.
        """
        self.last_death = down.last_words
        if self._linked is not None and down.incarnation != self._linked.incarnation:
            return
        if down.will_restart:
            after = Availability.RESTARTING
        else:
            after = Availability.ABSENT if wanted_gone else Availability.FAILED
        if self.availability is Availability.READY:
            self._close_queue(after, down.retry_after_s)
        else:
            self.availability = after
            self.back_at = self._loop.time() + down.retry_after_s
        self._host_is_idle()
        self.greeting = False
        link, self._link, self._linked = self._link, None, None
        self.retention.host_down()
        if link is not None:
            link.end(
                reason=self.unavailable_text(),
                retry_after=self.retry_after(),
                lost=down.exit == HostExit.LOST,
                taken=down.taken,
            )
        if not down.will_restart:
            self._end_waiting()
        self._on_change()

    def assume(self, host: HostStanding, *, present: bool) -> None:
        """Where its host is, as the supervisor's whole table says. One that is linked is told of by HOST_DOWN alone.
        `present`: whether the deployment is to have hosts."""
        self.last_death = host.last_death or self.last_death
        if self._linked is not None or host.state == "ready":
            return
        before = self.availability
        if host.state == "failed":
            self.availability = Availability.FAILED
        elif host.state == "coming" and host.last_death:
            self.availability = Availability.RESTARTING
            if before is not Availability.RESTARTING:
                self.back_at = self._loop.time() + host.retry_after_s
        elif host.state == "coming" or present:
            self.availability = Availability.LOADING
        else:
            self.availability = Availability.ABSENT
        if self.availability is not before and self.availability in (Availability.FAILED, Availability.ABSENT):
            self._end_waiting()

    def begin_loading(self) -> None:
        """A host of an absent deployment is being started."""
        if self.availability is Availability.ABSENT:
            self.availability = Availability.LOADING
            self.back_at = math.inf

    def begin_stop(self) -> None:
        """The server stops: who waits for a host that is not there yet is refused, what a warm one has goes on."""
        self._stopping = True
        if not self.expected:
            self._end_waiting()

    def close(self, reason: str) -> None:
        """End the link for good. What runs and what waits ends with 503."""
        if self.availability is Availability.READY:
            self._close_queue(Availability.FAILED, math.inf)
        self.availability = Availability.FAILED
        link, self._link = self._link, None
        self.retention.close()
        if link is not None:
            link.end(reason=reason, retry_after=1)
        self.scheduler.fail_waiting(lambda: HostDied(reason, dispatched=False, retry_after=1))
        self._on_change()

    def check_free(self) -> None:
        """Raise `RuntimeError` when a host is linked whose end was not told."""
        if self._link is not None:
            raise RuntimeError(f"{self!r} has a host already; the supervisor must report its end first")

    def _welcomed(self, welcome: Welcome) -> None:
        if not self.greeting:
            return  # too late: its end has been asked for
        self.greeting = False
        self.retention.welcomed(welcome.held)
        if welcome.busy_epoch and welcome.busy_epoch != self._epoch and self._earlier is None:
            # It still computes for the front before this one: that unit holds the permit until it ends.
            self._earlier = self.scheduler.hold_for_earlier_front()
        if self.availability is not Availability.READY:
            self.availability = Availability.READY
            self.scheduler.resume()
            self._on_change()

    def _host_is_idle(self) -> None:
        if self._earlier is not None:
            earlier, self._earlier = self._earlier, None
            earlier.release()

    def _retiring(self) -> None:
        """The host reported a fatal failure and is on its way out: nothing more goes to it."""
        if self.availability is Availability.READY:
            self._close_queue(Availability.RESTARTING, limits.RESTART_WAIT_S)
            self._on_change()

    def _overdue(self, incarnation: str, seconds: float) -> None:
        """The host has held a unit, or our HELLO, for too long: it is about to be ended, nothing more goes to it."""
        log.error("model %s: host %s has not answered for %.1f s", self._name, incarnation, seconds)
        self.greeting = False
        self._retiring()
        self._on_overdue(incarnation, seconds)

    def _close_queue(self, availability: Availability, back_in_s: float) -> None:
        self.availability = availability
        self.back_at = self._loop.time() + back_in_s
        self.scheduler.suspend()

    def _end_waiting(self) -> None:
        self.scheduler.fail_waiting(self._nobody_will_come)

    def _nobody_will_come(self) -> HostDied:
        return HostDied(self.unavailable_text(), dispatched=False, retry_after=self.retry_after())

    # One unit

    async def run(
        self,
        fields: dict[str, Any],
        context: ExecutionContext,
        request_id: str,
        check: Callable[[], None] = lambda: None,
        *,
        shape: Shape | None = None,
        digest: Callable[[], bytes | None] | None = None,
        turn: Turn | None = None,
    ) -> Outputs:
        """Queue one unit of these payload `fields`, have the host execute it, and return what it answers, which is
        read and never written: equal units get the same. Errors and cancellation are those of
        `UnitQueue.run_with_context`, as `shape` and `digest` are; `HostDied` when no host will come. `check` is called
        at the grant, and what it raises ends the unit unsent. `turn`: what its request may keep in the host."""
        if not self.expected:
            raise self._nobody_will_come()

        def start(dispatch: Dispatch[Outputs]) -> None:
            check()
            # The link is looked up at the grant: the host may be another incarnation than when we queued.
            link = self._link
            assert link is not None, "the scheduler grants only while a host is linked"
            remaining = context.remaining() if not context.closed else None
            budget_ms = None if remaining is None else max(1, int(remaining * 1000))
            send = link.collect if self._collects else link.send
            send(dispatch, fields, budget_ms, request_id, turn)

        outputs = await self.scheduler.run_with_context(context, start, shape=shape, digest=digest)
        if "statistics" in outputs.values:
            self._kept = kept_counts(outputs.values["statistics"])
        return outputs

    def _flush(self) -> None:
        """Send the batch that was collected, to the host that it was collected for: all of it is one step."""
        assert self._link is not None
        self._link.flush()

    def retry_after(self) -> int:
        """Whole seconds until a new try makes sense, within the bounds of the header."""
        if not self.expected:
            return limits.RETRY_AFTER_SECONDS[1]  # only an operator can change it: as rarely as may be said
        least, most = limits.RETRY_AFTER_SECONDS
        left = self.back_at - self._loop.time()
        # One that should have been back long ago: it is not known.
        return most if -left > limits.RESTART_WAIT_S else max(least, min(most, math.ceil(min(left, 60.0))))

    def unavailable_text(self) -> str:
        """Why nothing can be executed here, for the client."""
        return unavailable_text(self._name, self.availability, stopping=self._stopping)

    def ask_host(self) -> None:
        """Have the host say how it is; the answer is in a later `statistics()`. Waits for nothing."""
        if self._link is not None:
            self._link.ask()

    def statistics(self) -> ReplicaStatistics:
        """Counts and states, for health, status and tests."""
        return ReplicaStatistics(
            replica=self.number,
            availability=self.availability.value,
            incarnation="" if self._linked is None else self._linked.incarnation,
            identity=self.identity,
            last_death=self.last_death,
            scheduler=self.scheduler.statistics(),
            link=None if self._link is None else self._link.statistics(),
            host={} if self._link is None else self._link.report,
            kept={} if self._link is None else self._kept,
        )

    def __repr__(self) -> str:
        return f"<Replica {self._name!r} {self.number} {self.availability.value} {self.scheduler!r}>"


def kept_counts(statistics: object) -> Mapping[str, int]:
    """The counts of kept prefixes in a host's statistics, as `backbones.kept` makes them. What is no count is left out:
    it is a host that says so."""
    kept = statistics.get("kept") if isinstance(statistics, Mapping) else None
    if not isinstance(kept, Mapping):
        return {}
    return {name: kept[name] for name in KEPT_COUNTS if type(kept.get(name)) is int and kept[name] >= 0}


def unavailable_text(name: str, availability: Availability, *, stopping: bool) -> str:
    """What a client is told of a model that cannot answer."""
    if stopping:
        return f"the server is stopping and starts no host of model {name!r}"
    if availability is Availability.FAILED:
        return f"model {name!r} has failed and is not started again"
    return f"model {name!r} is {availability.value}"


def replaced(name: str) -> HostDied:
    """What a request is told that was prepared for something that its name does not mean any more."""
    return HostDied(f"model {name!r} was replaced by another one", dispatched=False, retry_after=1)
