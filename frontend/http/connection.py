"""One client connection: what the HTTP library answers by itself is rendered as everything else is.

A request that is not HTTP never reaches a route, so the library answers it, in plain text and with a
traceback in the log that any client could fill. Here it is one JSON body with a request id, and a debug line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.helpers import set_exception
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from frontend import limits
from frontend.errors import Unavailable
from frontend.http import ingress, routes
from frontend.http.offers import Offers
from frontend.serving.clients import Clients

_NO_ROOM = routes.encode(
    routes.error_document(
        503, Unavailable.error_type, "the server has as many client connections as it may have; try again later"
    )
)
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_NO_ROOM), _NO_ROOM)
)

log = logging.getLogger("framehost.http")


_TOO_MANY: Final = "Too many headers received"
"""The library has no class for it."""


def _above_a_limit(error: BaseException | None) -> str:
    """What to say of a head that is HTTP and too large; empty for anything else."""
    if isinstance(error, LineTooLong):
        return f"the request line and each header field have at most {limits.MAX_HEAD_LINE_BYTES} bytes"
    if isinstance(error, BadHttpMessage) and error.message == _TOO_MANY:
        return f"a request has at most {limits.MAX_HEADER_FIELDS} header fields"
    return ""


class ClientConnection(web.RequestHandler):
    """The library's handler with our error bodies and time limits."""

    __slots__ = ("_answered", "_clients", "_latest", "_offers", "_refused", "_render")

    def __init__(
        self,
        server: web.Server,
        render: Callable[[web.BaseRequest, int, str], web.Response] = routes.protocol_error,
        clients: Clients | None = None,
    ) -> None:
        """`render(request, status, text)` makes the response of an error that no route has handled. `clients`: who
        counts the connections, and may refuse this one."""
        self._render = render
        self._clients = Clients() if clients is None else clients
        self._refused = False
        self._offers = Offers()
        self._latest: StreamReader = EMPTY_PAYLOAD
        """The body of the request that came last. When it has ended, a head is next."""
        self._answered = 0
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # the library's own way to say "none"
            keepalive_timeout=limits.KEEPALIVE_S,
            lingering_time=limits.LINGERING_S,
            max_line_size=limits.MAX_HEAD_LINE_BYTES,
            max_field_size=limits.MAX_HEAD_LINE_BYTES,
            max_headers=limits.MAX_HEADER_FIELDS,
            auto_decompress=False,  # `ingress` does, and notices a body that was cut
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As the library's, where there is room for another one; else a 503, before anything is read."""
        if self._clients.admit(self, transport.get_extra_info("socket").fileno()):
            super().connection_made(transport)
        else:
            self._refused = True
            cast(asyncio.Transport, transport).write(_REFUSAL)
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self._refused:
            self._clients.gone(self)
            super().connection_lost(exc)

    def is_idle(self) -> bool:
        # What waits in `finish_response` has been answered, and does not read.
        return (self._current_request is None and not self._messages) or self._drain_waiter is not None

    def unwritten(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def answered(self) -> int:
        return self._answered

    def leave(self) -> None:
        if self.transport is not None:
            if self.unwritten():
                self.transport.abort()  # a close would wait for its reader
            else:
                self.transport.close()

    def data_received(self, data: bytes) -> None:
        """As the library's. Where a body stops being HTTP, it queues the error behind the request that waits for
        that body; here the body ends there."""
        if self._refused:
            return
        self._clients.active(self)
        # A head is next where the last body has ended. One that could offer another protocol is read by itself.
        while self._latest.is_eof() and self._offers.possible(data):
            head, data = self._offers.withdraw(data)
            self._read(head)
            if not data:
                return
        self._read(data)

    def _read(self, data: bytes) -> None:
        super().data_received(data)
        if not self._messages:
            return
        self._latest = self._messages[-1][1]
        if isinstance(self._messages[-1][0], RawRequestMessage):
            return
        fault = self._messages[-1][0].exc
        bodies = [payload for _, payload in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.content)
        for body in bodies:
            if not body.is_eof() and body.exception() is None:
                set_exception(body, web.RequestPayloadError(str(fault)), fault)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """As the library's, but what its router or its look at `Expect` raised is said as everything else is."""
        if isinstance(resp, web.HTTPException):
            words = "there is no such route" if resp.status == 404 else ingress.one_line(resp.text or resp.reason)
            resp = self._render(request, resp.status, words)
            if not request.content.is_eof():
                resp.force_close()
        finished = await super().finish_response(request, resp, start_time)
        self._answered += 1
        self._clients.active(self)
        if self._paused:
            # What it has not read is more than the transport likes to keep: its next request waits. It is aborted when
            # that takes too long (`Clients.sweep`).
            await self._drain_helper()
        return finished

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """The library's own log of what it did not expect.

        It meets a body whose framing breaks a second time when it drops the rest of it, after the answer, and
        ends the connection as it should. No bytes of a client's are worth an error in the log.
        """
        if isinstance(kw.get("exc_info"), web.RequestPayloadError):
            log.debug("the rest of a body cannot be read: %r", kw["exc_info"])
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The last response of this connection, for an error that no route has handled."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun, so it cannot become an error") from exc
        if status >= 500:
            log.error("a request failed outside of its route", exc_info=exc)
            text = "the server failed on this request; its log has the reason"
        else:
            log.debug("not a request: %r", exc)
            text = _above_a_limit(exc) or (
                f"this is not an HTTP request: {message if exc is None else ingress.reason(exc)}"
            )
        response = self._render(request, status, text)
        response.force_close()
        return response
