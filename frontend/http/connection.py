"""One client connection: what the HTTP library answers by itself is rendered as everything else is.

A request that is not HTTP never reaches a route, so the library answers it, in plain text and with a
traceback in the log that any stranger could fill. Here it is one JSON body with a request id, and a debug line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError

from frontend import limits
from frontend.http import routes
from frontend.questions import printable

MAX_MESSAGE_CHARS = 300
"""Of what the parser says; it repeats bytes of the client's."""

log = logging.getLogger("framehost.http")


class ClientConnection(web.RequestHandler):
    """The library's handler with our error bodies and time limits."""

    __slots__ = ("_render",)

    def __init__(
        self,
        server: web.Server,
        render: Callable[[web.BaseRequest, int, str], web.Response] = routes.protocol_error,
    ) -> None:
        """`render(request, status, text)` makes the response of an error that no route has handled."""
        self._render = render
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # the library's own way to say "none"
            keepalive_timeout=limits.KEEPALIVE_S,
            lingering_time=limits.LINGERING_S,
        )

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The last response of this connection, for an error that no route has handled."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun, so it cannot become an error") from exc
        if status >= 500:
            log.error("a request failed outside of its route", exc_info=exc)
            text = "the server failed on this request; its log has the reason"
        elif isinstance(exc, ContentEncodingError):
            # Found by the parser, before `ingress.admit` could refuse it.
            log.debug("not decodable: %r", exc)
            status, text = 415, printable(str(message or exc), MAX_MESSAGE_CHARS)
        else:
            log.debug("not a request: %r", exc)
            # The further lines of the parser's message draw the client's bytes.
            reason = str(message or exc).partition("\n")[0]
            text = printable(f"this is not an HTTP request: {reason}", MAX_MESSAGE_CHARS)
        response = self._render(request, status, text)
        response.force_close()
        return response
