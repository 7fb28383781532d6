"""What an orchestrator is told: live, started, ready. A small HTTP server inside the supervisor.

It answers from the first moment until the last, also while models load and while there is no front, from what the
supervisor knows anyway: no process is asked, and so nothing can make it wait. Probes come from outside of the machine
(a kubelet), so it may listen on any address, and says nothing that would be worth hiding: counts and states, no
names, paths, process ids or error texts.

    GET /livez     200 while this process turns its loop
    GET /startupz  200 once the models that `open` wants are ready and the port was opened; 503 with the progress before
    GET /readyz    200 while requests are taken and at least one model can answer; else 503

Standard library only: the supervisor carries no web server. One request per connection, and then it is closed.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_REQUEST_BYTES = 8 * 1024
"""Of a request's head; a probe sends 200. More is 431."""

MAX_CONNECTIONS = 64
"""At once. A newcomer beyond them closes the oldest: a probe takes a millisecond, so an old one is stuck."""

TIMEOUT_S = 5.0
"""From the connection to its end. Longer than any probe waits."""

BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Health:
    """What the supervisor knows, in one reading."""

    uptime_s: float
    started: bool
    """Every model has been ready once, and the port was opened."""
    serving: bool
    """There is a front, it listens, and it answers."""
    stopping: bool
    models: tuple[str, ...]
    """The state of each host."""
    progress: float | None
    """0..1 of the slowest loading host that knows; None when none does."""


def answer(target: str, health: Health) -> tuple[int, dict[str, Any]]:
    """Status and body of a GET."""
    path = target.partition("?")[0]
    if path not in ("/livez", "/startupz", "/readyz"):
        return 404, {"status": "unknown path", "paths": ["/livez", "/startupz", "/readyz"]}
    # An absent model can answer: the request that needs it has it loaded.
    ready = health.models.count("ready") + health.models.count("absent")
    if health.stopping:
        status, good = "stopping", False
    elif not health.started:
        status, good = "starting", False
    elif not health.serving or not ready:
        status, good = "unavailable", False
    else:
        status, good = ("ready" if ready == len(health.models) else "degraded"), True
    if path == "/livez":
        good = True
    elif path == "/startupz":
        good = health.started
    body: dict[str, Any] = {
        "status": status,
        "uptime_s": round(health.uptime_s, 1),
        "models": dict(sorted(Counter(health.models).items())),
    }
    if health.progress is not None:
        body["progress"] = round(health.progress, 3)
    return (200 if good else 503), body


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Headers Too Large"}


def render(status: int, body: dict[str, Any], *, head_only: bool = False) -> bytes:
    """A whole HTTP/1.1 response, after which the connection is closed."""
    content = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Service Unavailable')}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        *(["Allow: GET, HEAD"] if status == 405 else []),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if head_only else content)


class _Connection(asyncio.Protocol):
    """One request, one response, a bounded life."""

    def __init__(self, server: ProbeServer) -> None:
        self._server = server
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # It also covers a client that does not read: closing waits for what was written, aborting does not.
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, transport.abort)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if len(head) > MAX_REQUEST_BYTES:
            self._respond(431, {"status": f"a request has at most {MAX_REQUEST_BYTES} bytes here"})
        elif end:
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._respond(400, {"status": "not an HTTP/1 request"})
        elif words[0] not in ("GET", "HEAD"):
            self._respond(405, {"status": "only GET and HEAD"})
        else:
            status, body = answer(words[1], self._server.look())
            self._respond(status, body, head_only=words[0] == "HEAD")

    def _respond(self, status: int, body: dict[str, Any], *, head_only: bool = False) -> None:
        assert self._transport is not None
        self._transport.write(render(status, body, head_only=head_only))
        self._transport.close()

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.closed(self)


class ProbeServer:
    """The listener. `look` gives the current `Health`; it must not block and is called for every request."""

    def __init__(self, listener: socket.socket, look: Callable[[], Health]) -> None:
        """`listener` is bound by the caller, who closes it."""
        self.listener = listener
        self.look = look
        self._connections: OrderedDict[_Connection, None] = OrderedDict()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen and answer from now on. Raises `OSError` when another process listens there."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), sock=self.listener, backlog=BACKLOG)

    def close(self) -> None:
        """Stop answering and end every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()

    def opened(self, connection: _Connection) -> None:
        """A connection is there; the oldest makes room for it."""
        self._connections[connection] = None
        if len(self._connections) > MAX_CONNECTIONS:
            next(iter(self._connections)).abort()

    def closed(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)
