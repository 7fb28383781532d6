"""What an operator may do over HTTP, on a listener of its own that exists only where one was configured.

    POST /admin/models/NAME/swap     {"family": ..., "path": ..., "options": {...}, "mode": "start-first"}
    POST /admin/models/NAME/load     no body
    POST /admin/models/NAME/unload   no body

The answer comes when it is done, which may take as long as a model takes to load; an order is carried out to its
end also when its client leaves. The supervisor does it, one order per name at a time: another is 409.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from frontend.errors import InvalidRequest, RequestError
from frontend.http import access, ingress, routes, strict_json
from frontend.server import Server
from protocol.messages import Order

ACTIONS: Final = ("swap", "load", "unload")
STATUSES: Final = {"done": 200, "unknown": 404, "invalid": 422, "conflict": 409, "failed": 502}
"""HTTP status by how an order ended; 502 because it is a new host that has failed, and not the request."""

MAX_BODY_BYTES: Final = 1024 * 1024
"""A family, a path and its options; far above any."""


def build(server: Server) -> web.Application:
    """The application behind the admin listener."""
    app = web.Application(client_max_size=0)
    app[routes.SERVER] = server
    if server.keys is not None:
        app.middlewares.append(access.guard(server.keys, without=frozenset(), render=access.render_refusal))
    for action in ACTIONS:
        resource = app.router.add_resource(f"/admin/models/{{name}}/{action}")
        resource.add_route("POST", _handler(action), expect_handler=ingress.expectation)
        resource.add_route("*", routes.method_not_allowed("POST"), expect_handler=ingress.expectation)
    app.router.add_route("*", "/{path:(?s:.*)}", _not_found, expect_handler=ingress.expectation)
    return app


def _handler(action: str) -> routes.Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            settings = await _settings(request)
            if settings and action != "swap":
                raise InvalidRequest.at((), f"{action} takes no settings; an empty body is expected", "extra_forbidden")
        except RequestError as error:
            response = routes.plain_error(request, error.status, error.error_type, error.message)
            response.force_close()
            return response
        order = Order(action=action, model=request.match_info["name"], settings=settings)
        outcome = await request.app[routes.SERVER].carry_out(order)
        status = STATUSES[outcome.code]
        if status != 200:
            return routes.plain_error(request, status, outcome.code, outcome.message)
        return routes.json_response(request, {"outcome": "done", "message": outcome.message, **outcome.report})

    return handle


async def _settings(request: web.Request) -> dict[str, Any]:
    """The JSON object of the body, empty for an empty one. Raises `RequestError`."""
    server = request.app[routes.SERVER]
    with ingress.admit(request, server.ingress, MAX_BODY_BYTES) as permit:
        async with asyncio.timeout(server.limits.request_timeout_s):
            body = await ingress.read_body(request, permit, MAX_BODY_BYTES)
    document = strict_json.parse(body) if body else {}
    if not isinstance(document, dict):
        raise InvalidRequest.at((), "the body is not a JSON object", "json_invalid")
    return document


async def _not_found(request: web.Request) -> web.Response:
    text = f"there is no route {request.path[:200]!r} here; there is POST /admin/models/NAME/{'|'.join(ACTIONS)}"
    return routes.plain_error(request, 404, "not_found_error", text)
