"""HTTP in, HTTP out: what all routes share, and those that only look.

A decision is made by `frontend.serving.pipeline`; `decisions` and `native` are its two kinds of ports. Every response
carries a request id. A client that leaves cancels its handler (pinned by a test): queued work is removed, running work
keeps its permit until the host has answered. A client that half-closes its connection counts as gone.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from aiohttp import hdrs, web

from frontend import limits
from frontend.configuration.keys import Account
from frontend.errors import InternalError, RequestError, TimedOut, Unavailable, UnknownModel
from frontend.http.dialect import public
from frontend.http.events import EventStream
from frontend.observation import access_log
from frontend.serving.deployment import Deployment
from frontend.serving.server import Server
from protocol.states import RequestEvent

SERVER = web.AppKey("server", Server)
RECORD = web.RequestKey("framehost.request_id", str)
ACCOUNT = web.RequestKey("framehost.account", Account)
TIMEOUT_HEADER = "x-framehost-timeout-ms"
TIMING_HEADER = "Server-Timing"

log = logging.getLogger("framehost.http")
access = logging.getLogger("framehost.access")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_ID_PREFIX = f"{os.getpid():x}-{secrets.token_hex(4)}"
_SANE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=")
_numbers = itertools.count(1)

_FAIL: Final = RequestEvent.FAIL  # see `frontend.runtime.admission`
_ANSWER: Final = RequestEvent.ANSWER


def request_id(request: web.BaseRequest) -> str:
    """The id every response to `request` carries: the client's own label if it is sane, else one of ours."""
    # An empty mapping is not asked: "not there" is an exception inside, and nothing is there for most requests.
    known: str | None = request.get(RECORD) if len(request) else None
    if known is None:
        known = request.headers.get("x-request-id")
        if known is None or not 0 < len(known) <= limits.MAX_HEADER_REQUEST_ID or not _SANE.issuperset(known):
            known = f"{_ID_PREFIX}-{next(_numbers):x}"
        request[RECORD] = known
    return known


_any_integer = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


def encode(document: object) -> bytes:
    """Compact UTF-8 JSON. The fast encoder has no integers beyond 64 bits, which a level may well contain."""
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return _any_integer(document).encode()


def json_response(
    request: web.BaseRequest, document: object, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """A JSON response with the request's id.

    Numbers are finite by then: answers check theirs when they are built, `dialect.with_extras` the extras.
    """
    return respond(request, encode(document), "application/json; charset=utf-8", status=status, headers=headers)


def respond(
    request: web.BaseRequest,
    body: bytes,
    content_type: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """A response with the request's id. Every response of the main port but the streams is made here."""
    fields = {hdrs.CONTENT_TYPE: content_type, **identified(request)}
    if headers:
        fields.update(headers)
    return web.Response(body=body, status=status, headers=fields)


def identified(request: web.BaseRequest) -> dict[str, str]:
    """The headers that every response has."""
    identifier = request_id(request)
    return {"x-request-id": identifier, "x-typesafe-request-id": identifier}


async def handled(
    request: web.Request,
    work: Callable[[Server, web.Request, Any], Awaitable[web.StreamResponse]],
    render: Callable[[web.Request, RequestError], web.StreamResponse],
    *,
    dialect: str = "systemone",
    timing: bool = True,
) -> web.StreamResponse:
    """One decision in any dialect: `work(server, request, record)`, its record begun and ended, every error
    answered as `render` says, all of it counted and logged. `work` may find out a dialect later than here, and sets
    it in the record. `timing`: whether an answer says how long its parts took."""
    server = request.app[SERVER]
    record = server.requests.begin(request_id(request), dialect)
    if server.tracing is not None:
        server.tracing.begin(record)
    if server.keys is not None:
        record.account = request.get(ACCOUNT)
    event = _FAIL
    status, loud = 500, True
    try:
        response = await work(server, request, record)
        event, status, loud = _ANSWER, response.status, False
        record.finished()
        if timing and not response.prepared:
            response.headers[TIMING_HEADER] = record.server_timing()
        return response
    except asyncio.CancelledError:
        # 499 is what logs of the field call a client that left before its answer.
        event, status, loud = RequestEvent.CANCEL, 499, False
        raise
    except RequestError as error:
        # A budget in use is no error of the server, whatever number a dialect has for it.
        loud = error.status >= 500
        if isinstance(error, TimedOut):
            event = RequestEvent.EXPIRE
        elif record.allows(RequestEvent.REFUSE) and not loud:
            event = RequestEvent.REFUSE
        response = render(request, error)
        # The status of a stream left with its first event.
        status = error.status if isinstance(response, EventStream) else response.status
        if not request.content.is_eof():
            # The rest of an upload we do not want would be taken for the next request.
            response.force_close()
        return response
    except ConnectionError:
        # The client has reset the connection, and what we wrote there (100 Continue) met that before our cancellation.
        event, status, loud = RequestEvent.CANCEL, 499, False
        return render(request, Unavailable("the client has left", retry_after=1))
    except Exception:
        log.exception("request %s failed", record.request_id)
        return render(request, InternalError("the server failed on this request; its log has the reason"))
    finally:
        record.end(event)
        server.metrics.observe(record, status)
        if server.tracing is not None:
            server.tracing.end(record, request.headers, status)
        # One line for every request is a choice of the operator; a server error is always worth one.
        level = logging.WARNING if loud else logging.INFO
        if access.isEnabledFor(level):
            access.log(level, "%s", access_log.line(record, status))


def pattern(path: str) -> str:
    """A path of a table of routes, as the library wants it: a model's name may have slashes, as org/name has."""
    return path.replace("{name}", "{name:(?s:.+)}")


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: one document in the shapes of both listings of the field, and what a request may have."""
    described = [_described(deployment) for deployment in request.app[SERVER].deployments.values()]
    listed = [{name: model[name] for name in ("name", "description", "release_date")} for model in described]
    data = [{name: model[name] for name in ("id", "object", "created", "owned_by")} for model in described]
    x_limits = request.app[SERVER].limits.report()
    return json_response(request, {"models": listed, "object": "list", "data": data, "x_limits": x_limits})


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/NAME: one model, with the fields of both listings. An alias is answered with what it means."""
    try:
        # A name may have slashes in it, but not at its end: that one belongs to the path.
        deployment = request.app[SERVER].resolve(request.match_info["name"].removesuffix("/"))
    except UnknownModel as error:
        return plain_error(request, 404, "model_not_found", error.message)
    return json_response(request, _described(deployment))


def _described(deployment: Deployment) -> dict[str, Any]:
    # Both listings want a date; what we know is since when this front has served the model.
    return {
        "id": deployment.name,
        "object": "model",
        "created": deployment.created,
        "owned_by": "framehost",
        "name": deployment.name,
        "description": f"{deployment.family.name} model {deployment.identity}".strip(),
        "release_date": datetime.fromtimestamp(deployment.created, UTC).date().isoformat(),
    }


async def health(request: web.Request) -> web.Response:
    """GET /health: readiness. 200 when admission is open and at least one resident model is ready."""
    status, document = request.app[SERVER].health(request.query.get("model"))
    headers: dict[str, str] | None = {hdrs.RETRY_AFTER: "1"} if status == 503 else None
    return json_response(request, document, status=status, headers=headers)


async def alive(request: web.Request) -> web.Response:
    """GET /healthz: liveness. The loop turns, and nothing else is claimed."""
    return json_response(request, {"status": "alive"})


async def not_found(request: web.Request) -> web.Response:
    """Any path we do not have."""
    text = (
        f"there is no route {request.path[:200]!r}: this is a server for decision models. "
        "Ask at POST /v1/systemone or /v1/decisions; see also GET /v1/models, /health, /healthz, /metrics"
    )
    return plain_error(request, 404, "not_found_error", text)


async def no_such_capability(request: web.Request) -> web.Response:
    """POST to the chat, completion and embedding routes that clients of language models have."""
    text = (
        f"{request.path[:200]} is for language models; this is a server for decision models, which answer typed "
        "questions about a state: POST /v1/systemone, or /v1/decisions for the decisions API of the same client"
    )
    return plain_error(request, 400, "api_usage_error", text)


def method_not_allowed(allowed: str) -> Handler:
    """A handler for the other methods of a route that has `allowed`."""

    async def refuse(request: web.Request) -> web.Response:
        # HEAD is what GET would say, its length included (RFC 9110, 9.3.2).
        method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
        text = f"{method} is not possible at {request.path[:200]!r}; allowed: {allowed}"
        return plain_error(request, 405, "method_not_allowed", text, {hdrs.ALLOW: allowed})

    return refuse


def protocol_error(request: web.BaseRequest, status: int, text: str) -> web.Response:
    """An error that no route has handled: the request was no HTTP or for no path, or a handler has a bug."""
    word = "not_found_error" if status == 404 else "api_usage_error" if status < 500 else "internal_error"
    return plain_error(request, status, word, text)


def plain_error(
    request: web.BaseRequest, status: int, word: str, text: str, headers: dict[str, str] | None = None
) -> web.Response:
    """An error in the shapes of all dialects: their clients all meet these."""
    return json_response(request, error_document(status, word, text), status=status, headers=headers)


def error_document(status: int, word: str, text: str) -> dict[str, Any]:
    """The body of a plain error."""
    text = public(text)
    return {
        "detail": {"error_type": word, "message": text},
        "error": {"message": text, "type": word, "code": status},
    }
