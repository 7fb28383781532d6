"""Sends many requests over a few connections and gives their outcomes in the order of the requests.

A thread and a connection per worker. What a server says that waiting may change (429, 503) is tried again when it
said so, as is what a proxy says of a server that is away (502, 504), and a connection that failed, because a decision
changes nothing; all within one budget of seconds per request. What no waiting changes ends everything: no server within
the budget, a key that is not valid, or an address that sends us elsewhere.
"""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from frontend.cli import client
from frontend.cli.ways import REDIRECTS, Way, elsewhere

T = TypeVar("T")

BUSY: Final = frozenset({429, 503})
OF_A_PROXY: Final = frozenset({502, 504})
"""What a proxy says while the server behind it is started again. A 504 of the server's own is an answer: the request
had its time."""

DENIED: Final = frozenset({401, 403})
RETRY_AFTER_S: Final = (0.2, 30.0)
"""Bounds of a wait. The server names whole seconds from 1 on; a proxy in between may name anything."""

AWAY_S: Final = 0.5
"""How long to wait after a connection that failed."""


class Stopped(Exception):
    """No further request makes sense; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended: the response's document, or what was wrong. `status` is None when it was never sent."""

    status: int | None
    response: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, what they carry, and how long they may take. Times in seconds."""

    way: Way
    path: str
    headers: Mapping[str, str]
    timeout_s: float
    retry_s: float
    url: str

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str], timeout_s: float, retry_s: float) -> Self:
        """The target at the server's address. Raises `UsageError` for one that is none."""
        address = client.endpoint(url)
        way = Way.to(address)
        return cls(way, urlsplit(address).path, {**headers, **way.headers()}, timeout_s, retry_s, url)

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, not yet opened."""
        return self.way.open(self.timeout_s)

    def at(self, path: str) -> str:
        """What the request line says for `path`."""
        return self.way.target(path)


class Sender:
    """`workers` threads. They are daemons: an interrupted command need not wait for an answer that is on its way."""

    def __init__(self, target: Target, workers: int) -> None:
        self._target = target
        self._todo: queue.SimpleQueue[tuple[bytes, Slot] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._reached = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def in_order(self, requests: Iterable[tuple[T, bytes | Outcome]], *, ahead: int) -> Iterator[tuple[T, Outcome]]:
        """The outcome of each request, in their order, with what came with it; what is an outcome passes through.

        At most `ahead` requests per worker are taken before their outcome is wanted. Raises `Stopped`.
        """
        waiting: deque[tuple[T, Slot]] = deque()
        for item, request in requests:
            slot = Slot()
            if isinstance(request, Outcome):
                slot.fill(request)
            else:
                self._todo.put((request, slot))
            waiting.append((item, slot))
            if len(waiting) >= ahead * len(self._threads):
                item, slot = waiting.popleft()
                yield item, slot.wait()
            while waiting and waiting[0][1].filled():
                item, slot = waiting.popleft()
                yield item, slot.wait()
        for item, slot in waiting:
            yield item, slot.wait()

    def stop(self) -> None:
        """Send nothing more. Waits for no thread."""
        self._stop.set()
        for _ in self._threads:
            self._todo.put(None)

    def _work(self) -> None:
        worker = Worker(self._target, self._stop, self._reached)
        while (job := self._todo.get()) is not None and not self._stop.is_set():
            body, slot = job
            try:
                slot.fill(worker.ask(body))
            except Stopped as error:
                slot.fill(error)
            except BaseException as error:
                slot.fill(Stopped(f"internal error: {error!r}"))
                raise
        worker.close()


class Slot:
    """The place of one outcome."""

    __slots__ = ("_done", "_outcome")

    def __init__(self) -> None:
        self._done = threading.Event()
        self._outcome: Outcome | Stopped | None = None

    def fill(self, outcome: Outcome | Stopped) -> None:
        self._outcome = outcome
        self._done.set()

    def filled(self) -> bool:
        return self._done.is_set()

    def wait(self) -> Outcome:
        """The outcome when it is there; raises `Stopped` if it is that."""
        self._done.wait()
        if isinstance(self._outcome, Stopped):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class Worker:
    """One connection, opened when needed. `reached` is set once any worker was connected."""

    def __init__(
        self,
        target: Target,
        stop: threading.Event,
        reached: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._stop, self._reached, self._clock = target, stop, reached, clock
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, body: bytes) -> Outcome:
        """The outcome of one request, tried again within the budget. Raises `Stopped`."""
        give_up = self._clock() + self._target.retry_s
        while True:
            try:
                response, content = self._once(body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A server that was never there is a wrong address, and not one that is being started again.
                if not self._reached.is_set() or not self._pause(AWAY_S, give_up):
                    raise Stopped(client.unreachable(self._target.url, error)) from error
                continue
            status = response.status
            if status in DENIED:
                raise Stopped(f"{status}: {client.said(content)}")
            if status in REDIRECTS:
                raise Stopped(elsewhere(status, response.headers))
            waits = status in BUSY or (status in OF_A_PROXY and not client.ours(content))
            if not waits or not self._pause(_seconds(response.getheader("Retry-After")), give_up):
                return _outcome(status, content)

    def _once(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            self._connection = self._target.connect()
            self._connection.connect()
            self._reached.set()  # it may end before it has answered anything, and is started again then
        connection = self._connection
        connection.request("POST", self._target.at(self._target.path), body, dict(self._target.headers))
        response = connection.getresponse()
        content = response.read()
        if response.will_close:
            self.close()
        return response, content

    def _pause(self, seconds: float, give_up: float) -> bool:
        """Wait; False when there is no time left for another try."""
        if self._clock() + seconds >= give_up:
            return False
        return not self._stop.wait(seconds)

    def close(self) -> None:
        """Drop the connection. The next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _seconds(header: str | None) -> float:
    least, most = RETRY_AFTER_S
    try:
        return min(max(float(header or 1), least), most)
    except ValueError:  # a date
        return 1.0


def _outcome(status: int, content: bytes) -> Outcome:
    if status != 200:
        return Outcome(status, None, client.said(content))
    try:
        document = json.loads(content)
        if not isinstance(document["answers"], dict):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        return Outcome(status, None, f"the answer is no framehost's: {client.said(content)}")
    return Outcome(status, document, None)
