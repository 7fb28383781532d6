"""One record per HTTP request: where it is, how long each part took, and its one end.

The record is the single place that ends a request, whatever ends it, and the table's counters are the single
source of what status, metrics and the log say about traffic.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from frontend.keys import Account
from frontend.runtime.signals import Admitted, Granted, Signal, Started
from protocol.states import REQUEST, Machine, RequestEvent, RequestState


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

    def begin(self, request_id: str) -> RequestRecord:
        """A new request has arrived; its record must be ended exactly once."""
        self._open += 1
        self._idle.clear()
        return RequestRecord(self, request_id, self._clock)

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

    Times are on the table's clock, in seconds. `waited` and `executed` sum over the request's units.
    """

    __slots__ = (
        "_clock",
        "_mark",
        "_table_of_requests",
        "account",
        "executed",
        "model",
        "received",
        "request_id",
        "waited",
    )

    def __init__(self, table: RequestTable, request_id: str, clock: Callable[[], float]) -> None:
        super().__init__(REQUEST, RequestState.RECEIVED)
        self._table_of_requests = table
        self._clock = clock
        self._mark = 0.0
        self.request_id = request_id
        self.model = ""
        self.account: Account | None = None
        """Whose request it is, where keys are needed."""
        self.received = clock()
        self.waited = 0.0
        self.executed = 0.0

    def observe(self, signal: Signal) -> None:
        """The runtime's signals move the record; nothing else can say "admitted" or "started"."""
        if type(signal) is Started:
            self.advance(RequestEvent.START)
        elif type(signal) is Granted:
            now = self._clock()
            self.waited += now - self._mark
            self._mark = now
        elif type(signal) is Admitted:
            self.advance(RequestEvent.ADMIT)
            self._mark = self._clock()

    def unit_done(self) -> None:
        """A unit of this request has ended with outputs."""
        now = self._clock()
        self.executed += now - self._mark
        self._mark = now
        self.advance(RequestEvent.UNIT_DONE)

    def end(self, event: RequestEvent) -> None:
        """The one end. A second one raises."""
        self._table_of_requests.ended(self.advance(event))
