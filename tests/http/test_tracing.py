"""The spans of a request: one of its own below the client's, one per part, from the record's times."""

from __future__ import annotations

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from frontend.observation.tracing import Tracing
from tests.helpers.fake_host import failure
from tests.http.main_port import Main

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = 0xB7AD6B7169203331


def traced(main: Main) -> InMemorySpanExporter:
    """Where the spans of `main` arrive."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    main.server.tracing = Tracing(provider)
    return exporter


async def test_a_request_is_a_span_below_the_clients_with_its_parts_inside(main: Main) -> None:
    """A unit more is a wait and an execution more."""
    exporter = traced(main)
    main.client.headers["traceparent"] = f"00-{TRACE:032x}-{PARENT:016x}-01"
    await main.answered("units:2", units=2)
    *parts, whole = exporter.get_finished_spans()
    assert whole.kind is SpanKind.SERVER
    assert whole.parent is not None
    assert (whole.parent.trace_id, whole.parent.span_id) == (TRACE, PARENT)
    assert whole.attributes is not None
    assert whole.attributes["framehost.model"] == "m"
    assert whole.attributes["http.response.status_code"] == 200
    names = [span.name for span in parts]
    assert names == ["upload", "prepare", "queue", "execute", "queue", "execute", "finish"]
    assert {span.parent.span_id for span in parts if span.parent} == {whole.context.span_id}
    ends = [time for span in parts for time in (span.start_time, span.end_time)]
    assert ends == sorted(ends)
    assert whole.start_time is not None and whole.start_time <= ends[0] and ends[-1] <= whole.end_time


async def test_a_server_error_is_an_error_of_its_span(main: Main) -> None:
    """A refusal is not: the server did what it should."""
    exporter = traced(main)
    failing = asyncio.create_task(main.post())
    main.host.answer((await main.host.unit()).call, failure())
    await failing
    await main.post("cost:11")
    wholes = [span for span in exporter.get_finished_spans() if span.name == "decide"]
    assert [span.status.status_code for span in wholes] == [StatusCode.ERROR, StatusCode.UNSET]
    assert all(span.parent is None for span in wholes)


async def test_a_traceparent_that_is_none_begins_a_trace(main: Main) -> None:
    """What a client sends there must not end a request."""
    exporter = traced(main)
    main.client.headers["traceparent"] = "00-zzzz"
    assert (await main.answered()).status == 200
    assert exporter.get_finished_spans()[-1].parent is None


async def test_without_tracing_a_record_keeps_no_parts(main: Main) -> None:
    """The cost of spans that nobody asked for is one comparison."""
    record = main.server.requests.begin("x")
    record.uploaded()
    assert record.spans is None
