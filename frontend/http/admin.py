"""What an operator may do over HTTP: on a listener of its own that exists only where one was configured, and on the
main port where there are API keys.

    POST /admin/models/NAME/swap     {"family": ..., "path": ..., "options": {...}, "mode": "start-first"}
    POST /admin/models/NAME/cancel   no body; gives up what a swap is loading
    POST /admin/models/NAME/load     no body
    POST /admin/models/NAME/unload   no body
    POST /admin/devices/NAME/budget  {"bytes": ...}; null: what the models' own options say

The answer comes when it is done, which may take as long as a model takes to load; an order is carried out to its
end also when its client leaves. The supervisor does it, one order per name at a time: another is 409.

Who gives orders is looked at before what they are. With keys it takes one that has `admin = true`. Without, every
program that can connect to the listener may, but no web page in a browser on this machine:

    what a page's script can do                   what stops it
    -------------------------------------------   ------------------------------------------------------------
    a form's POST, which needs no permission      only application/json is taken, which a browser asks about first
    any request that says where it comes from     an `Origin` that the configuration does not allow is refused
    a name that it makes point to this machine    a `Host` that is no name of this server is refused (`names.py`)
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import hdrs, web

from frontend.errors import Forbidden, InvalidRequest, RequestError, TimedOut, UnsupportedMediaType
from frontend.http import access, ingress, names, routes
from frontend.http.dialect import retry_after
from frontend.requests import strict_json
from frontend.requests.questions import printable
from frontend.serving.server import Server
from protocol.errors import ProtocolError
from protocol.messages import Order

ACTIONS: Final = ("swap", "cancel", "load", "unload")
STATUSES: Final = {"done": 200, "unknown": 404, "invalid": 422, "conflict": 409, "failed": 502}
"""HTTP status by how an order ended; 502 because it is a new host that has failed, and not the request."""

MAX_BODY_BYTES: Final = 1024 * 1024
"""A family, a path and its options; far above any."""


def build(server: Server) -> web.Application:
    """The application behind the admin listener."""
    app = web.Application(client_max_size=0)
    app[routes.SERVER] = server
    app[ingress.UPLOADS] = server.uploads
    if server.keys is not None:
        app.middlewares.append(access.guard(server.keys, without=frozenset(), render=access.render_refusal))
    for path, handler in POST:
        resource = app.router.add_resource(routes.pattern(path))
        resource.add_route("POST", handler, expect_handler=ingress.expectation)
        resource.add_route("*", routes.method_not_allowed("POST"), expect_handler=ingress.expectation)
    app.router.add_route("*", "/{path:(?s:.*)}", _not_found, expect_handler=ingress.expectation)
    return app


SETTINGS: Final = ("swap", "budget")
"""Orders that have settings."""


def _handler(action: str) -> routes.Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            _check_sender(request)
            settings = await _settings(request)
            if settings and action not in SETTINGS:
                raise InvalidRequest.at((), f"{action} takes no settings; an empty body is expected", "extra_forbidden")
            order = Order(action=action, model=request.match_info["name"], settings=settings)
            try:
                outcome = await request.app[routes.SERVER].carry_out(order)
            except ProtocolError as error:
                raise InvalidRequest.at((), f"the settings cannot be passed on: {error}", "value_error") from None
        except RequestError as error:
            headers = retry_after(error)
            response = routes.plain_error(request, error.status, error.error_type, error.message, headers)
            response.force_close()
            return response
        status = STATUSES[outcome.code]
        if status != 200:
            return routes.plain_error(request, status, outcome.code, outcome.message)
        return routes.json_response(request, {"outcome": "done", "message": outcome.message, **outcome.report})

    return handle


POST: Final = (
    *((f"/admin/models/{{name}}/{action}", _handler(action)) for action in ACTIONS),
    ("/admin/devices/{name}/budget", _handler("budget")),
)
"""Paths and their handlers."""


def _check_sender(request: web.Request) -> None:
    """Raise `Forbidden` or `UnsupportedMediaType` for a request that may give no orders, whatever its body is."""
    server = request.app[routes.SERVER]
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and origin not in server.origins:
        raise Forbidden(f"web pages at {printable(origin)} may give no orders; `cors` names the origins that may")
    if server.keys is None:
        # A script cannot know a key, but it can have the name of its own page point here.
        host = request.headers.get(hdrs.HOST, "")
        if not names.is_own(host, server.allowed_hosts):
            raise Forbidden(
                "without API keys, orders are taken at an IP address, at localhost and at the names in allowed_hosts, "
                f"not at {printable(host)}"
            )
    elif not request[routes.ACCOUNT].admin:
        raise Forbidden("the API key may not give orders; it takes one with admin = true")
    if request.content_type != "application/json":
        raise UnsupportedMediaType("orders are sent as application/json, with or without a body")


async def _settings(request: web.Request) -> dict[str, Any]:
    """The JSON object of the body, empty for an empty one. Raises `RequestError`."""
    server = request.app[routes.SERVER]
    with ingress.admit(request, MAX_BODY_BYTES) as permit:
        try:
            async with asyncio.timeout(server.limits.request_timeout_s):
                body = await ingress.read_body(request, permit, MAX_BODY_BYTES)
        except TimeoutError:
            raise TimedOut(f"the upload took longer than {server.limits.request_timeout_s:g} s") from None
    document = strict_json.parse(body) if body else {}
    if not isinstance(document, dict):
        raise InvalidRequest.at((), "the body is not a JSON object", "json_invalid")
    return document


async def _not_found(request: web.Request) -> web.Response:
    text = (
        f"there is no route {request.path[:200]!r} here; there is POST /admin/models/NAME/{'|'.join(ACTIONS)} "
        "and /admin/devices/NAME/budget"
    )
    return routes.plain_error(request, 404, "not_found_error", text)
