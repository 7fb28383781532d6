"""One record per HTTP request: where it is, how long each part took, and its one end.

The record is the single place that ends a request, whatever ends it. The table's counters, the metrics and the log
are all told by it, so that they cannot disagree about traffic.

    received ──upload──▶ uploaded ──prepare──▶ prepared ──queue──▶ granted ──execute──▶ unit done ──finish──▶ answered
                                                   ▲                │           │
                                                   ├─── requeued ───┘           │
                                                   └────── per further unit ────┘
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from frontend.configuration.keys import Account
from frontend.runtime.signals import Admitted, Granted, Requeued, Signal, Started
from protocol.states import REQUEST, Machine, RequestEvent, RequestState

# As names of the module: see `frontend.runtime.admission`.
_RECEIVED: Final = RequestState.RECEIVED
_QUEUED: Final = RequestState.QUEUED
_RUNNING: Final = RequestState.RUNNING
_PREPARE: Final = RequestEvent.PREPARE
_ADMIT: Final = RequestEvent.ADMIT
_START: Final = RequestEvent.START
_UNIT_DONE: Final = RequestEvent.UNIT_DONE
_ANSWER: Final = RequestEvent.ANSWER


@dataclass(frozen=True, slots=True)
class RequestStatistics:
    """`open` counts now; `ended` counts since the start, by final state."""

    open: int
    ended: dict[str, int]


class RequestTable:
    """All requests of this front. An idle table has `open == 0`."""

    __slots__ = ("_clock", "_ended", "_idle", "_open")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open = 0
        self._ended: Counter[RequestState] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, request_id: str, dialect: str = "systemone") -> RequestRecord:
        """A new request has arrived; its record must be ended exactly once."""
        self._open += 1
        self._idle.clear()
        return RequestRecord(self, request_id, dialect, self._clock)

    def ended(self, state: RequestState) -> None:
        """Called by a record at its end."""
        self._open -= 1
        self._ended[state] += 1
        if not self._open:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no request is open. Cancelling it changes nothing."""
        await self._idle.wait()

    def statistics(self) -> RequestStatistics:
        """Counts, for health, status and tests."""
        return RequestStatistics(self._open, {state.value: count for state, count in self._ended.items()})

    def __repr__(self) -> str:
        return f"<RequestTable open={self._open} ended={sum(self._ended.values())}>"


class RequestRecord(Machine[RequestState, RequestEvent]):
    """The life of one request as its state table allows it; a second end raises `BadTransition`.

    Times are on the table's clock, in seconds, and None for a part that the request did not get to. `queued_s` and
    `executed_s` sum over the request's units; what a family computes in the front between two units counts as waiting.
    `loaded_s` is the wait for a model that was not there: being loaded, or in the middle of a swap.
    A request that ends in a part has that part until its end.
    """

    __slots__ = (
        "_clock",
        "_mark",
        "_table_of_requests",
        "account",
        "dialect",
        "executed_s",
        "finished_s",
        "input_tokens",
        "joined",
        "known",
        "loaded_s",
        "model",
        "prepared_s",
        "queued_s",
        "received",
        "request_id",
        "session",
        "spans",
        "total_s",
        "uploaded_s",
        "waits_for",
    )

    uploaded_s: float | None
    loaded_s: float | None
    prepared_s: float | None
    queued_s: float | None
    executed_s: float | None
    finished_s: float | None

    def __init__(self, table: RequestTable, request_id: str, dialect: str, clock: Callable[[], float]) -> None:
        super().__init__(REQUEST, _RECEIVED)
        self._table_of_requests = table
        self._clock = clock
        self.request_id = request_id
        self.dialect = dialect
        """Whose grammar the request is in; a word of ours, never of the client's."""
        self.model = ""
        """The deployment that has it; empty until one has. Never a name that only the client knows."""
        self.account: Account | None = None
        """Whose request it is, where keys are needed."""
        self.waits_for = ""
        """What it waits for before anything is prepared, in words; empty when it does not."""
        self.input_tokens = 0
        self.joined = 0
        """Units that were answered with an equal one of another request."""
        self.known = 0
        """Units whose answer was known before."""
        self.session = ""
        """How much of its conversation was not read again, or why all of it was; empty for a request of none."""
        self.received = self._mark = clock()
        self.uploaded_s = self.loaded_s = self.prepared_s = self.queued_s = self.executed_s = self.finished_s = None
        self.total_s = 0.0
        self.spans: list[tuple[str, float, float]] | None = None
        """Each part with its begin and end, for the trace of this request; None without one."""

    def _part(self, name: str) -> float:
        """The seconds since the last mark, which were spent on `name`."""
        now = self._clock()
        before, self._mark = self._mark, now
        if self.spans is not None:
            self.spans.append((name, before, now))
        return now - before

    def observe(self, signal: Signal) -> None:
        """The runtime's signals move the record; nothing else can say "admitted" or "started"."""
        if type(signal) is Started:
            self.advance(_START)
            # Not at the grant: what was sent ahead waits in the host's hands until the one before it has ended.
            self.queued_s = (self.queued_s or 0.0) + self._part("queue")
        elif type(signal) is Granted:
            self.joined += signal.joined
        elif type(signal) is Admitted:
            self.advance(_ADMIT)
            self._mark = self._clock()
        elif type(signal) is Requeued:
            # Nothing was executed since the grant: that time is part of the wait for the next one.
            self.advance(RequestEvent.REQUEUE)

    def uploaded(self) -> None:
        """The body is here."""
        self.uploaded_s = self._part("upload")

    @contextmanager
    def waiting_for_host(self) -> Iterator[None]:
        """Inside, it does not prepare but waits for the model: to be loaded, or for the end of a swap."""
        self.prepared_s = (self.prepared_s or 0.0) + self._part("prepare")
        try:
            yield
        finally:
            self.loaded_s = (self.loaded_s or 0.0) + self._part("load")

    def prepared(self) -> None:
        """The whole request is valid and rendered."""
        self.advance(_PREPARE)
        self.prepared_s = (self.prepared_s or 0.0) + self._part("prepare")

    def unit_done(self) -> None:
        """A unit of this request has ended with outputs."""
        self.executed_s = (self.executed_s or 0.0) + self._part("execute")
        self.advance(_UNIT_DONE)

    def unit_known(self) -> None:
        """The answer of a unit of this request was known, and nothing was executed."""
        self.known += 1

    def finished(self) -> None:
        """The answer is complete."""
        self.finished_s = self._part("finish")

    def end(self, event: RequestEvent) -> None:
        """The one end. A second one raises."""
        before = self.state
        self._table_of_requests.ended(self.advance(event))
        if before is _RUNNING:
            self.executed_s = (self.executed_s or 0.0) + self._part("execute")
        elif before is _QUEUED and event is not _ANSWER:
            self.queued_s = (self.queued_s or 0.0) + self._part("queue")
        self.total_s = self._clock() - self.received

    def server_timing(self) -> str:
        """The parts in milliseconds, as the response header Server-Timing has them."""
        load = "" if self.loaded_s is None else f"load;dur={self.loaded_s * 1e3:.3f}, "
        if self.joined:
            load += 'equal;desc="joined", '
        if self.known:
            load += 'equal;desc="known", '
        if self.session:
            load += f'session;desc="{self.session}", '
        # One percent-format: a quarter faster than four in an f-string, and every answer has it.
        return load + "queue;dur=%.3f, prepare;dur=%.3f, execute;dur=%.3f, finish;dur=%.3f" % (  # noqa: UP031
            (self.queued_s or 0.0) * 1e3,
            (self.prepared_s or 0.0) * 1e3,
            (self.executed_s or 0.0) * 1e3,
            (self.finished_s or 0.0) * 1e3,
        )
