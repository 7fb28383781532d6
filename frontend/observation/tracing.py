"""Optional OpenTelemetry spans: one per request, with a child for each part of it.

Everything is made after the answer, from the record's own times, so a traced request does the same as another one
until then. Where spans go is the SDK's own configuration (`OTEL_EXPORTER_OTLP_ENDPOINT` and its siblings); a
`traceparent` header of the client's is the parent. The libraries are the extra `otel`, and are imported only here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from frontend.observation.record import RequestRecord

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans of requests. Belongs to the event loop's thread; the exporter has a thread of its own."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("framehost")

    @classmethod
    def over_otlp(cls) -> Tracing:
        """Spans sent to a collector over OTLP and HTTP, as the OTEL_ variables of the environment say."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # What the environment says of the service wins over the default name.
        provider = TracerProvider(resource=Resource({SERVICE_NAME: "framehost"}).merge(Resource.create()))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def begin(self, record: RequestRecord) -> None:
        """Have `record` keep its parts."""
        record.spans = []

    def end(self, record: RequestRecord, headers: Mapping[str, str], status: int) -> None:
        """The spans of an ended request, answered with `status`; `headers` are its own."""
        # The record's clock has another zero than the one of spans.
        zero = time.time_ns() - int((record.received + record.total_s) * 1e9)
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        attributes: dict[str, Any] = {
            "http.response.status_code": status,
            "framehost.request_id": record.request_id,
            "framehost.model": record.model,
            "framehost.dialect": record.dialect,
            "framehost.outcome": record.state.value,
            "framehost.input_tokens": record.input_tokens,
        }
        parent: Context = _propagator.extract(carrier)
        span = self._tracer.start_span(
            "decide", parent, SpanKind.SERVER, attributes, start_time=zero + int(record.received * 1e9)
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(span, parent)
        for name, begin, end in record.spans or ():
            part = self._tracer.start_span(name, inside, start_time=zero + int(begin * 1e9))
            part.end(zero + int(end * 1e9))
        span.end(zero + int((record.received + record.total_s) * 1e9))

    def close(self) -> None:
        """Send what has not been sent. Blocks as long as the exporter may take."""
        self._provider.shutdown()
