"""Builds the aiohttp application: routes to handlers, nothing else."""

from __future__ import annotations

from aiohttp import web

from frontend.http import (
    access,
    admin,
    decisions,
    exposition,
    gemini,
    ingress,
    names,
    openapi,
    openrouter,
    page,
    routes,
    sessions,
    systemone,
)
from frontend.serving.server import Server

_SYSTEM_ONE = decisions.route(systemone, streams=True)
_OPENROUTER = decisions.route(openrouter)

POST = (
    ("/v1/systemone", _SYSTEM_ONE),
    ("/systemone", _SYSTEM_ONE),
    ("/api/v1/systemone", _OPENROUTER),
    ("/api/alpha/decisions", _OPENROUTER),
    ("/alpha/decisions", _OPENROUTER),
    ("/v1/decisions", decisions.by_shape),
    ("/decisions", decisions.by_shape),
    ("/v1beta/decisions", decisions.route(gemini)),
    *((path, routes.no_such_capability) for path in openapi.MISDIRECTED),
)
GET = (
    ("/v1/models", routes.models),
    ("/v1/models/{name}", routes.model),
    ("/v1/sessions", sessions.listed),
    ("/health", routes.health),
    ("/healthz", routes.alive),
    ("/metrics", exposition.metrics),
    ("/status", page.status),
    ("/openapi.json", openapi.document),
    ("/static/page.js", page.script),
    ("/static/page.css", page.style),
)
DELETE = (("/v1/sessions/{name}", sessions.end),)


def build(server: Server, *, loopback: bool = False) -> web.Application:
    """The application behind the main port. Every path is also there with a trailing slash: no redirects, ever.

    `loopback`: only this machine can connect.
    """
    # The library's own body limit is a second one with a plain-text answer: ours is in ingress.py.
    app = web.Application(client_max_size=0)
    app[routes.SERVER] = server
    app[ingress.UPLOADS] = server.uploads
    if server.origins:
        app.middlewares.append(access.allow_origins(app, server.origins))
    if server.keys is not None:
        app.middlewares.append(access.guard(server.keys, render=access.render_refusal))
    guarded = names.guard(app, server, loopback=loopback, render=access.render_refusal)

    def add(path: str, method: str, handler: routes.Handler) -> None:
        resource = app.router.add_resource(routes.pattern(path))
        resource.add_route(method, guarded(handler), expect_handler=ingress.expectation)
        allowed = method
        if method == "GET":
            resource.add_route("HEAD", guarded(handler))
            allowed = "GET, HEAD"
        resource.add_route("*", guarded(routes.method_not_allowed(allowed)), expect_handler=ingress.expectation)

    posts = POST if server.keys is None else (*POST, *admin.POST)
    for method, table in (("POST", posts), ("GET", GET), ("DELETE", DELETE)):
        for path, handler in table:
            add(path, method, handler)
            add(f"{path}/", method, handler)
    add("/", "GET", page.index)
    app.router.add_route("*", "/{path:(?s:.*)}", guarded(routes.not_found), expect_handler=ingress.expectation)
    return app
