"""The native listener of one model: POST /v1/systemone and GET /health as the family's original server has them.

The order of the steps is `frontend.serving.pipeline`'s, the words and numbers are the family's
(`frontend.families.native`). Nothing else of the main port is there: no other route, no second spelling with a slash,
no field of the System One dialect. Two headers of ours work on it all the same, since no client of the original sends
them by accident: `x-framehost-timeout-ms`, and an `x-request-id`, which comes back if one was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from aiohttp import hdrs, web

from frontend.errors import ExecutionStopped, RequestError, RequestTooLarge, TimedOut
from frontend.families.base import Prepared
from frontend.families.native import TIMED_OUT, TIMED_OUT_UPLOADING, UNAVAILABLE, NativeProfile, NativeRefusal
from frontend.http import access, ingress, names, routes
from frontend.observation.record import RequestRecord
from frontend.runtime.admission import Permit
from frontend.serving import pipeline
from frontend.serving.absorbing import Absorbing
from frontend.serving.deployment import Deployment
from frontend.serving.server import Server

NAME = web.AppKey("native_model", str)

log = logging.getLogger("framehost.native")


def build(server: Server, name: str, *, loopback: bool = False) -> web.Application:
    """The application behind the native listener of model `name`, which is in `server.deployments`. `loopback`: only
    this machine can connect."""
    app = web.Application(client_max_size=0)
    app[routes.SERVER] = server
    app[ingress.UPLOADS] = server.uploads
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
    exchange = Exchange(request, _deployment(request).name)
    # None of our headers: the original has none.
    return await routes.handled(request, exchange.answer, _error_response, dialect="native", timing=False)


class Exchange:
    """One request of a native listener: the family parses it and answers it, in its own words. See
    `pipeline.Exchange`."""

    PARSES: ClassVar[bool] = False
    SHARES: ClassVar[bool] = False

    __slots__ = ("_name", "_profile", "_request")

    def __init__(self, request: web.Request, name: str) -> None:
        """`name`: of the listener's model."""
        self._request = request
        self._name = name
        self._profile = request.app[routes.SERVER].deployments[name].native

    async def answer(self, server: Server, request: web.Request, record: RequestRecord) -> web.Response:
        """The response of a decision, or one `RequestError`."""
        record.model = self._name
        return _respond(request, 200, dict(await pipeline.answered(server, self, record, record.observe)))

    # What `pipeline` asks of it

    @property
    def timeout_ms(self) -> str | None:
        return self._request.headers.get(routes.TIMEOUT_HEADER)

    def check_head(self) -> None:
        said = self._request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
        if self._profile.JSON_ONLY and said != "application/json":
            raise NativeRefusal(415, self._profile.MEDIA_TYPE)

    def alone(self, server: Server) -> Deployment | None:
        return server.deployments[self._name]

    def admit(self) -> Permit:
        try:
            return ingress.admit(self._request, self._profile.MAX_BODY_BYTES)
        except RequestTooLarge:
            raise NativeRefusal(413, self._profile.BODY_TOO_LARGE) from None

    async def upload(self, permit: Permit) -> bytes:
        try:
            return await ingress.read_body(self._request, permit, self._profile.MAX_BODY_BYTES)
        except RequestTooLarge:
            raise NativeRefusal(413, self._profile.BODY_TOO_LARGE) from None

    def parse(self, body: bytes) -> bytes:
        return body

    def model(self, asked: bytes) -> str | None:
        return self._name

    def family(self, deployment: Deployment) -> NativeProfile:
        return deployment.native

    def session(self, asked: bytes) -> str | None:
        return None

    def waits(self, deployment: Deployment) -> bool:
        return not deployment.native.READY_FIRST

    def prepare(self, family: NativeProfile, asked: bytes) -> Prepared:
        try:
            return family.prepare(asked)
        except (RequestError, ExecutionStopped):
            raise
        except Exception:
            log.exception("model %s: a request could not be prepared", self._name)
            raise NativeRefusal(500, family.PREPARATION_FAILED) from None

    def absorbing(self, family: NativeProfile) -> Absorbing:
        return family

    def finish(
        self, family: NativeProfile, prepared: Prepared, outputs: Sequence[object], seconds: float
    ) -> Mapping[str, Any]:
        return family.finish(prepared, outputs, seconds)

    def timed_out(self, record: RequestRecord, budget_s: float) -> RequestError:
        return TimedOut(TIMED_OUT_UPLOADING if record.uploaded_s is None else TIMED_OUT)


async def health(request: web.Request) -> web.Response:
    """GET /health, from cached state alone: 200 when a decision could be made now."""
    server, deployment = request.app[routes.SERVER], _deployment(request)
    if not deployment.prepares:
        return _respond(request, 503, deployment.native.error_body(UNAVAILABLE), {"Retry-After": "1"})
    view = deployment.view(accepting=not server.draining)
    headers = {} if view.ready else {"Retry-After": "1"}
    return _respond(request, 200 if view.ready else 503, dict(deployment.native.health(view)), headers)


def protocol_error(server: Server, name: str) -> Callable[[web.BaseRequest, int, str], web.Response]:
    """How a connection of this listener answers what is no HTTP, or what no route has handled."""

    def render(request: web.BaseRequest, status: int, text: str) -> web.Response:
        profile = server.deployments[name].native
        return _respond(request, status, profile.error_body(text if status < 500 else profile.FAILED))

    return render


def _error_response(request: web.Request, error: RequestError) -> web.Response:
    status, document, headers = _deployment(request).native.render_error(error)
    return _respond(request, status, document, headers)


def _not_allowed(allowed: str) -> routes.Handler:
    async def refuse(request: web.Request) -> web.Response:
        document = _deployment(request).native.error_body(f"allowed here: {allowed}")
        return _respond(request, 405, document, {hdrs.ALLOW: allowed})

    return refuse


async def _not_found(request: web.Request) -> web.Response:
    document = _deployment(request).native.error_body("there are POST /v1/systemone and GET /health")
    return _respond(request, 404, document)


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
