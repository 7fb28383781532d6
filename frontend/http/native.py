"""The native listener of one model: POST /v1/systemone and GET /health as the family's original server has them.

The order of the steps is here, the words and numbers are the family's (`frontend.families.native`). Nothing
else of the main port is there: no other route, no second spelling with a slash, no field of the System One
dialect. Two headers of ours work on it all the same, since no client of the original sends them by accident:
`x-framehost-timeout-ms`, and an `x-request-id`, which comes back if one was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from aiohttp import hdrs, web

from frontend.errors import DeadlineExceeded, ExecutionStopped, RequestError, RequestTooLarge, TimedOut
from frontend.families.base import Prepared
from frontend.families.native import TIMED_OUT, TIMED_OUT_UPLOADING, NativeProfile, NativeRefusal
from frontend.http import access, ingress, names, routes
from frontend.runtime.admission import Permit
from frontend.runtime.context import ExecutionContext
from frontend.serving.deployment import Deployment, Moved
from frontend.serving.server import Server
from protocol.states import Role

NAME = web.AppKey("native_model", str)

log = logging.getLogger("framehost.native")


def build(server: Server, name: str, *, loopback: bool = False) -> web.Application:
    """The application behind the native listener of model `name`, which is in `server.deployments`. `loopback`: only
    this machine can connect."""
    app = web.Application(client_max_size=0)
    app[routes.SERVER] = server
    app[NAME] = name
    guarded = names.guard(app, server, loopback=loopback, render=_error_response)
    if server.keys is not None:
        app.middlewares.append(access.guard(server.keys, without=frozenset({"/health"}), render=_error_response))
    decision = app.router.add_resource("/v1/systemone")
    decision.add_route("POST", guarded(decide), expect_handler=ingress.expectation)
    decision.add_route("*", guarded(_not_allowed("POST")))
    state = app.router.add_resource("/health")
    state.add_route("GET", guarded(health))
    state.add_route("HEAD", guarded(health))
    state.add_route("*", guarded(_not_allowed("GET, HEAD")))
    app.router.add_route("*", "/{path:(?s:.*)}", guarded(_not_found))
    return app


async def decide(request: web.Request) -> web.StreamResponse:
    """POST /v1/systemone."""
    # None of our headers: the original has none.
    return await routes.handled(request, _decide, _error_response, dialect="native", timing=False)


async def _decide(server: Server, request: web.Request, record: Any) -> web.Response:
    deployment = _deployment(request)
    record.model = deployment.name
    profile = deployment.native
    server.refuse_when_draining()
    if profile.JSON_ONLY and request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower() != (
        "application/json"
    ):
        raise NativeRefusal(415, profile.MEDIA_TYPE)
    deadline = record.received + server.timeout_s(request.headers.get(routes.TIMEOUT_HEADER))
    uploaded = False
    with (
        ExecutionContext(clock=server.clock, deadline=deadline, observer=record.observe) as context,
        context.cancel_on_exit() as guard,
    ):
        try:
            with server.deadlines.at(deadline):
                # The slot is reserved before the upload; that there is none is said only to a request that is valid.
                routes.early_slot(deployment, context)
                with ExitStack() as upload:
                    permit = upload.enter_context(_admitted(request, server, profile))
                    body = await _body(request, permit, profile)
                    uploaded = True
                    record.uploaded()
                    document = await _decided(server, deployment.name, body, upload, context, record)
        except (TimeoutError, DeadlineExceeded):
            raise TimedOut(TIMED_OUT if uploaded else TIMED_OUT_UPLOADING) from None
        guard.disarm()
    return _respond(request, 200, dict(document))


async def _decided(
    server: Server, name: str, body: bytes, upload: ExitStack, context: ExecutionContext, record: Any
) -> Mapping[str, Any]:
    """The document of whatever `name` means now that the body is there; `upload` is closed when it is no more one."""
    while True:
        if server.resolve(name).role is Role.HELD:
            upload.close()  # waiting for the end of a swap is no upload
        deployment = await server.taker(name, context, record)
        try:
            with deployment.in_use:
                return await _decided_by(server, deployment, body, upload, context, record)
        except Moved:
            continue


async def _decided_by(
    server: Server, deployment: Deployment, body: bytes, upload: ExitStack, context: ExecutionContext, record: Any
) -> Mapping[str, Any]:
    # The slot that the upload has had, or the one of a deployment that was not meant yet when it began.
    full = routes.early_slot(deployment, context)
    # The incarnation may change while we wait: what is prepared belongs to this one's weights.
    profile, identity = deployment.native, deployment.identity
    if profile.READY_FIRST and not deployment.on_demand:
        deployment.refuse_unless_ready()
    prepared = await _prepared(deployment, profile, body, context)
    upload.close()
    if full is not None:
        raise full
    if deployment.cold and prepared.units:
        await deployment.arrival(prepared, context, record)
        profile, identity = deployment.native, deployment.identity
        prepared = await _prepared(deployment, profile, body, context)
    record.prepared()
    since = server.clock()
    outputs: list[object] = []
    if prepared.units:
        outputs = await deployment.execute(profile, identity, prepared, context, record)
    return await deployment.computed(
        context, prepared.work, lambda: profile.finish(prepared, outputs, server.clock() - since)
    )


def _admitted(request: web.Request, server: Server, profile: NativeProfile) -> Permit:
    """The ingress permit of this upload. Its size is the family's limit, not the server's."""
    try:
        return ingress.admit(request, server.ingress, profile.MAX_BODY_BYTES)
    except RequestTooLarge:
        raise NativeRefusal(413, profile.BODY_TOO_LARGE) from None


async def _body(request: web.Request, permit: Permit, profile: NativeProfile) -> bytes:
    try:
        return await ingress.read_body(request, permit, profile.MAX_BODY_BYTES)
    except RequestTooLarge:
        raise NativeRefusal(413, profile.BODY_TOO_LARGE) from None


async def _prepared(deployment: Deployment, profile: NativeProfile, body: bytes, context: ExecutionContext) -> Prepared:
    size = len(body) * profile.PREPARE_WEIGHT
    try:
        return await deployment.computed(context, size, lambda: profile.prepare(body))
    except (RequestError, ExecutionStopped):
        raise
    except Exception:
        log.exception("model %s: a request could not be prepared", deployment.name)
        raise NativeRefusal(500, profile.PREPARATION_FAILED) from None


async def health(request: web.Request) -> web.Response:
    """GET /health, from cached state alone: 200 when a decision could be made now."""
    server, deployment = request.app[routes.SERVER], _deployment(request)
    view = deployment.view(accepting=not server.draining)
    headers = {} if view.ready else {"Retry-After": "1"}
    return _respond(request, 200 if view.ready else 503, dict(deployment.native.health(view)), headers)


def protocol_error(server: Server, name: str) -> Callable[[web.BaseRequest, int, str], web.Response]:
    """How a connection of this listener answers what is no HTTP, or what no route has handled."""

    def render(request: web.BaseRequest, status: int, text: str) -> web.Response:
        profile = server.deployments[name].native
        return _respond(request, status, {profile.ERROR_FIELD: text if status < 500 else profile.FAILED})

    return render


def _error_response(request: web.Request, error: RequestError) -> web.Response:
    status, document, headers = _deployment(request).native.render_error(error)
    return _respond(request, status, document, headers)


def _not_allowed(allowed: str) -> routes.Handler:
    async def refuse(request: web.Request) -> web.Response:
        field = _deployment(request).native.ERROR_FIELD
        return _respond(request, 405, {field: f"allowed here: {allowed}"}, {hdrs.ALLOW: allowed})

    return refuse


async def _not_found(request: web.Request) -> web.Response:
    field = _deployment(request).native.ERROR_FIELD
    return _respond(request, 404, {field: "there are POST /v1/systemone and GET /health"})


def _deployment(request: web.Request) -> Deployment:
    return request.app[routes.SERVER].deployments[request.app[NAME]]


def _respond(
    request: web.BaseRequest, status: int, document: dict[str, Any], headers: Mapping[str, str] | None = None
) -> web.Response:
    """Compact JSON. Numbers are finite by then: a profile's `finish` has seen to it."""
    fields = {hdrs.CONTENT_TYPE: "application/json", **(headers or {})}
    if "x-request-id" in request.headers:
        fields["x-request-id"] = routes.request_id(request)
    return web.Response(body=routes.encode(document), status=status, headers=fields)
