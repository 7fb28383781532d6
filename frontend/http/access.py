"""Who may come in: API keys in front of every route, and which web pages may read the answers.

Both are middlewares that an application has only when the operator configured them: a server without keys and
without allowed origins spends nothing here. The key is looked at before anything else of a request is, so that
a client without a key learns nothing about routes, models or bodies and uploads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from frontend.configuration.keys import KeyRing
from frontend.errors import KeyMissing, RequestError, Unauthenticated
from frontend.http import routes
from frontend.observation import access_log
from frontend.observation.metrics import Denial

OPEN: Final = frozenset({"/", "/static/page.js", "/static/page.css", "/health", "/healthz"})
"""Paths that need no key: probes have none, and the page asks for one."""

HEADERS: Final = ("x-api-key", "x-goog-api-key")
"""Where a key may be besides `Authorization: Bearer`, which wins."""

EXPOSED: Final = "x-request-id, x-typesafe-request-id, retry-after, server-timing"
"""Headers of our answers that a page's script may read."""

PREFLIGHT_S: Final = 600
"""How long a browser may remember what it was allowed; Chromium caps it at two hours."""


def presented(request: web.Request) -> str:
    """The key as the client sent it. Raises `KeyMissing` when there is none."""
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() == "bearer" and (key := key.strip()):
        return key
    for header in HEADERS:
        if key := request.headers.get(header, "").strip():
            return key
    raise KeyMissing("an API key is needed: Authorization: Bearer KEY, x-api-key: KEY or x-goog-api-key: KEY")


def guard(
    keys: KeyRing,
    *,
    without: frozenset[str] = OPEN,
    render: Callable[[web.Request, RequestError], web.Response],
) -> Middleware:
    """Lets requests with a valid key pass, and all for the paths `without` one; the others get what `render` says."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (request.path.rstrip("/") or "/") in without:
            return await handler(request)
        try:
            request[routes.ACCOUNT] = keys.find(presented(request))
        except Unauthenticated as error:
            response = denied(request, Denial.of(error), render(request, error))
            response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
            return response
        return await handler(request)

    return middleware


def denied(request: web.Request, denial: Denial, response: web.Response) -> web.Response:
    """`response`, counted and logged; the upload that is not wanted ends with it."""
    request.app[routes.SERVER].metrics.denied[denial] += 1
    routes.access.info("%s", access_log.denied(routes.request_id(request), response.status, denial, request.remote))
    if not request.content.is_eof():
        response.force_close()
    return response


_WORDS: Final = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
"""Gemini's."""


def render_refusal(request: web.Request, error: RequestError) -> web.Response:
    """A body that clients of every dialect can read: which one this is has not been looked at yet."""
    document = {
        "detail": {"error_type": error.error_type, "message": error.message},
        "error": {
            "message": error.message,
            "type": error.error_type,
            "param": None,
            "code": error.status,
            "status": _WORDS[error.status],
        },
    }
    return routes.json_response(request, document, status=error.status)


def allow_origins(app: web.Application, origins: Sequence[str]) -> Middleware:
    """Lets scripts of web pages at `origins` read the answers of `app` (CORS), and answers their preflights.

    A preflight carries no key by design, so this comes before `guard`. Cookies are never involved.
    """
    allowed = frozenset(origins)

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        origin = request.headers.get(hdrs.ORIGIN)
        if origin in allowed:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED

    app.on_response_prepare.append(mark)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        wanted = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD)
        if request.method != hdrs.METH_OPTIONS or wanted is None or request.headers.get(hdrs.ORIGIN) not in allowed:
            return await handler(request)
        headers = {
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET, POST",
            hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT_S),
        }
        # The origin is trusted with every header that it wants to send: clients add marks of their own.
        if asked := request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS):
            headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = asked
        return web.Response(status=204, headers=headers)

    return middleware
