"""What is counted while requests are served, cheap enough for every one of them.

A finished request adds to plain integers and floats of its model, in under 2 microseconds; the metrics library is not
asked before a scrape (`frontend.http.exposition`). Nothing here is keyed by a client's text: a model is one
that is deployed, a dialect and an outcome are words of ours, a status is a number that we sent.

Everything belongs to the event loop's thread, so nothing is locked.
"""

from __future__ import annotations

import asyncio
import enum
from bisect import bisect_left
from typing import Final

from frontend.errors import KeyMissing, Unauthenticated
from frontend.observation.record import RequestRecord
from protocol.states import RequestState

SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the buckets of every histogram. A small request prepares in 0.1 ms; the default deadline is 30 s."""

LAG_INTERVAL_S: Final = 0.25
"""How often the event loop's lag is measured: a stall of a second is seen four times, and the cost is not."""

_ANSWERED: Final = RequestState.ANSWERED  # see `frontend.runtime.admission`


class Histogram:
    """How often a value fell into each bucket, and the sum. The last count is of those above all bounds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value in seconds; one that equals a bound is in that bound's bucket."""
        self.counts[bisect_left(SECONDS, value)] += 1
        self.sum += value


class Denial(enum.StrEnum):
    """Why a request was turned away before anything else of it was looked at."""

    KEY_MISSING = "key_missing"
    KEY_INVALID = "key_invalid"
    HOST = "host"

    @classmethod
    def of(cls, error: Unauthenticated) -> Denial:
        """The one that an error of `frontend.configuration.keys` is."""
        return cls.KEY_MISSING if isinstance(error, KeyMissing) else cls.KEY_INVALID


class ModelMetrics:
    """The finished requests of one model. A histogram has those that got as far as its part."""

    __slots__ = ("duration", "execute", "finish", "input_tokens", "load", "prepare", "queue_wait", "requests")

    def __init__(self) -> None:
        self.requests: dict[tuple[str, RequestState, int], int] = {}
        """By dialect, outcome and HTTP status."""
        self.input_tokens = 0
        self.duration = Histogram()
        """Of answered requests, from the first byte to the answer."""
        self.load = Histogram()
        """Of requests that had to wait for the model itself."""
        self.queue_wait = Histogram()
        self.prepare = Histogram()
        self.execute = Histogram()
        self.finish = Histogram()

    def observe(self, record: RequestRecord, status: int) -> None:
        """Count one ended request."""
        outcome = record.state
        key = record.dialect, outcome, status
        self.requests[key] = self.requests.get(key, 0) + 1
        answered = outcome is _ANSWERED
        if answered:
            self.input_tokens += record.input_tokens
        for histogram, seconds in (
            (self.prepare, record.prepared_s),
            (self.load, record.loaded_s),
            (self.queue_wait, record.queued_s),
            (self.execute, record.executed_s),
            (self.duration, record.total_s if answered else None),
            (self.finish, record.finished_s if answered else None),
        ):
            if seconds is not None:  # `histogram.observe`, without a call for each
                histogram.counts[bisect_left(SECONDS, seconds)] += 1
                histogram.sum += seconds


class Metrics:
    """Everything that is counted in one front."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.models: dict[str, ModelMetrics] = {}
        """By model; "" has the requests that ended before they had one."""
        self.denied = dict.fromkeys(Denial, 0)
        """Requests without a record: they were refused before the upload, whatever they were for."""
        self.lag = Histogram()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, record: RequestRecord, status: int) -> None:
        """Count one ended request, answered with `status` (499: the client had left)."""
        model = self.models.get(record.model)
        if model is None:
            model = self.models[record.model] = ModelMetrics()
        model.observe(record, status)

    def watch_lag(self) -> None:
        """Measure from now on how late the event loop comes to its timers."""
        self._timer = self._loop.call_later(LAG_INTERVAL_S, self._late, self._loop.time() + LAG_INTERVAL_S)

    def _late(self, due: float) -> None:
        self.lag.observe(max(0.0, self._loop.time() - due))
        self.watch_lag()

    def close(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
