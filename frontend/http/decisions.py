"""The decision routes of the main port: its kind of `pipeline.Exchange`, in any of its dialects.

body ─▶ strict_json ─▶ dialect.parse_request ─▶ pipeline ─▶ dialect.render ─▶ 200, or a stream of events
             │                  │                  │
             └──────────────────┴──────────────────┴──▶ one RequestError ─▶ dialect.render_error
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import ClassVar

from aiohttp import web

from frontend.errors import RequestError, TimedOut
from frontend.families.base import Decision, Prepared, Processor
from frontend.http import events, ingress, routes, shapes
from frontend.http.dialect import Dialect
from frontend.http.events import EventStream
from frontend.observation.record import RequestRecord
from frontend.requests import strict_json
from frontend.requests.answers import winner
from frontend.requests.questions import DecisionRequest
from frontend.runtime.admission import Permit
from frontend.runtime.signals import Admitted, Signal
from frontend.serving import pipeline
from frontend.serving.absorbing import Absorbing, Telling
from frontend.serving.deployment import Deployment
from frontend.serving.server import Server


class Exchange:
    """One request of the main port, and the dialect it is in as far as that is known.

    Where several dialects share a path, the headers say which one until the body does. See `pipeline.Exchange`.
    """

    PARSES: ClassVar[bool] = True
    SHARES: ClassVar[bool] = True

    __slots__ = (
        "_audit",
        "_by_body",
        "_digest",
        "_identity",
        "_limits",
        "_record",
        "_request",
        "_stream",
        "asked",
        "dialect",
    )

    def __init__(
        self,
        request: web.Request,
        dialect: Dialect,
        by_body: Callable[[object, Dialect], Dialect] | None = None,
        stream: EventStream | None = None,
    ) -> None:
        self.dialect = dialect
        self.asked: DecisionRequest | None = None
        """What the body turned out to ask."""
        self._request = request
        self._by_body = by_body
        self._stream = stream

    async def answer(self, server: Server, request: web.Request, record: RequestRecord) -> web.StreamResponse:
        """The response of a decision, or one `RequestError`."""
        self._limits, self._record, self._audit = server.limits, record, server.audit
        stream = self._stream
        if stream is None:
            decision = await pipeline.answered(server, self, record, record.observe)
            self._answered(decision)
            return routes.json_response(request, self._rendered(decision))

        def observe(signal: Signal) -> None:
            record.observe(signal)
            if type(signal) is Admitted:
                stream.admitted(record.model)

        try:
            decision = await pipeline.answered(server, self, record, observe)
        except asyncio.CancelledError:
            stream.abandon()
            raise
        self._answered(decision)
        stream.done(self._rendered(decision))
        return stream

    def _answered(self, decision: Decision) -> None:
        record = self._record
        record.input_tokens = decision.input_tokens
        if self._audit is None:
            return
        won = [(name, *winner(answer)) for name, answer in decision.answers]
        self._audit.write(
            request_id=record.request_id,
            key=None if record.account is None else record.account.name,
            model=record.model,
            identity=self._identity,
            digest=self._digest,
            answers=[{"id": name, "winner": what, "probability": probability} for name, what, probability in won],
        )

    def _rendered(self, decision: Decision) -> dict[str, object]:
        assert self.asked is not None, "a decision answers a request"
        return self.dialect.render(self.asked, self._record.model, decision)

    def refuse(self, request: web.Request, error: RequestError) -> web.StreamResponse:
        """The dialect's shape of an error, or the last event of a stream that has begun."""
        if self._stream is not None and self._stream.begun:
            self._stream.error(error)
            return self._stream
        status, document, headers = self.dialect.render_error(error)
        return routes.json_response(request, document, status=status, headers=headers)

    # What `pipeline` asks of it

    @property
    def timeout_ms(self) -> str | None:
        return self._request.headers.get(routes.TIMEOUT_HEADER)

    def check_head(self) -> None:
        ingress.refuse_form(self._request)

    def alone(self, server: Server) -> Deployment | None:
        return server.only

    def admit(self) -> Permit:
        return ingress.admit(self._request, self._limits.max_body_bytes)

    async def upload(self, permit: Permit) -> bytes:
        return await ingress.read_body(self._request, permit, self._limits.max_body_bytes)

    def parse(self, body: bytes) -> DecisionRequest:
        """Raises `InvalidRequest` or `UsageError`, to be rendered by the dialect found."""
        if self._audit is not None:
            self._digest = hashlib.sha256(body).hexdigest()
        document = strict_json.parse(body, max_depth=self._limits.depth)
        if self._by_body is not None:
            self.dialect = self._by_body(document, self.dialect)
            self._record.dialect = self.dialect.NAME
        self.asked = self.dialect.parse_request(document, self._limits)
        return self.asked

    def model(self, asked: DecisionRequest) -> str | None:
        return asked.model

    def family(self, deployment: Deployment) -> Processor:
        self._identity = deployment.identity
        return deployment.processor

    def session(self, asked: DecisionRequest) -> str | None:
        return asked.session

    def waits(self, deployment: Deployment) -> bool:
        return True

    def prepare(self, family: Processor, asked: DecisionRequest) -> Prepared:
        return family.prepare(asked)

    def absorbing(self, family: Processor) -> Absorbing:
        return family if self._stream is None else Telling(family, self._stream.answer)

    def finish(self, family: Processor, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Decision:
        return family.finish(prepared, outputs).tempered(family.temperature)

    def timed_out(self, record: RequestRecord, budget_s: float) -> RequestError:
        doing = f"waited for {record.waits_for}" if record.waits_for else f"was {record.state.value}"
        return TimedOut(f"the request's {budget_s:g} s were over while it {doing}")


def route(dialect: Dialect, *, streams: bool = False) -> routes.Handler:
    """The handler of a path that has one dialect. `streams`: whether a client may ask for events instead."""

    async def handle(request: web.Request) -> web.StreamResponse:
        stream = None
        if streams and events.wanted(request):
            stream = EventStream(request, routes.encode, routes.identified(request))
        exchange = Exchange(request, dialect, stream=stream)
        return await routes.handled(request, exchange.answer, exchange.refuse, dialect=exchange.dialect.NAME)

    return handle


async def by_shape(request: web.Request) -> web.StreamResponse:
    """The handler of a path that several dialects share."""
    exchange = Exchange(request, shapes.by_headers(request.headers), shapes.by_body)
    return await routes.handled(request, exchange.answer, exchange.refuse, dialect=exchange.dialect.NAME)
