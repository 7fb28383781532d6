"""The streamed decision: what is told when, and that nobody waits for its reader."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientResponse

from frontend import limits
from frontend.serving.replica import Availability
from protocol.messages import Result
from tests.helpers.fake_host import failure, until
from tests.http.main_port import QUESTION, Main, main_port

STREAM = {"Accept": "text/event-stream"}
NOUL = QUESTION["q"]


@pytest.fixture
async def main(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Main]:
    async with main_port(monkeypatch) as made:
        yield made


async def ask(main: Main, state: str = "x", questions: Any = QUESTION, **headers: str) -> ClientResponse:
    """A request whose answer has not been read; returns with the head of the response."""
    body = {"state": state, "questions": questions}
    return await main.client.post(f"{main.url}/v1/systemone", json=body, headers={**STREAM, **headers})


async def event(response: ClientResponse) -> tuple[str, Any]:
    """The next event and its data."""
    async with asyncio.timeout(20):
        name, data, end = [await response.content.readline() for _ in range(3)]
    assert name.startswith(b"event: ") and data.startswith(b"data: ") and end == b"\n", (name, data, end)
    return name[7:-1].decode(), json.loads(data[6:])


async def rest(response: ClientResponse) -> list[tuple[str, Any]]:
    """All further events, up to the end of the response."""
    events = []
    while not response.content.at_eof():
        events.append(await event(response))
        await asyncio.sleep(0)
    return events


def open_requests(main: Main) -> int:
    return main.server.requests.statistics().open


async def test_a_decision_is_told_as_it_comes_about(main: Main) -> None:
    """Admitted while the unit runs, then the answers, then what the plain response has besides."""
    response = await ask(main, questions={"b": NOUL, "a": NOUL})
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["x-request-id"] == response.headers["x-typesafe-request-id"]
    assert response.headers["Cache-Control"] == "no-store"
    assert await event(response) == ("admitted", {"model": "m"})
    unit = await main.host.unit()
    main.host.answer(unit.call)
    assert await rest(response) == [
        ("answer", {"id": "b", "answer": {"type": "noul", "noul": 0.5}}),
        ("answer", {"id": "a", "answer": {"type": "noul", "noul": 0.5}}),
        ("done", {"model": "m", "usage": {"input_tokens": 1, "output_tokens": 0}, "x_all": [{"call": unit.call}]}),
    ]
    assert main.server.requests.statistics().ended == {"answered": 1}


@pytest.mark.parametrize("weight", ["0", "0.000", " 0 ; x=1"])
async def test_a_stream_that_is_refused_by_its_weight_is_none(main: Main, weight: str) -> None:
    """q=0 says that the client does not take it; any other weight is a wish for it."""
    response = asyncio.create_task(ask(main, Accept=f"text/event-stream;q={weight}, */*"))
    main.host.answer((await main.host.unit()).call)
    assert (await response).headers["Content-Type"].startswith("application/json")
    response = await ask(main, Accept="text/event-stream;q=0.5")
    assert await event(response) == ("admitted", {"model": "m"})
    main.host.answer((await main.host.unit()).call)
    await rest(response)


async def test_an_answer_that_is_settled_early_is_told_early(main: Main) -> None:
    """The second unit has not begun when the first question's answer is here; none is told twice."""
    response = await ask(main, "early:2", {"one": NOUL, "two": NOUL, "three": NOUL})
    assert (await event(response))[0] == "admitted"
    first = await main.host.unit()
    main.host.answer(first.call)
    assert await event(response) == ("answer", {"id": "one", "answer": {"type": "noul", "noul": 0.5}})
    second = await main.host.unit()
    main.host.answer(second.call)
    events = await rest(response)
    assert [name if name != "answer" else data["id"] for name, data in events] == ["two", "three", "done"]


async def test_other_families_tell_nothing_before_their_last_unit(main: Main) -> None:
    """An answer of theirs may depend on every unit."""
    response = await ask(main, "units:2")
    assert (await event(response))[0] == "admitted"
    main.host.answer((await main.host.unit()).call)
    second = await main.host.unit()
    told = asyncio.create_task(event(response))
    await until(lambda: main.deployment.scheduler.statistics().running, "the second runs")
    assert not told.done()
    main.host.answer(second.call)
    assert (await told)[0] == "answer"
    assert [name for name, _ in await rest(response)] == ["done"]


@pytest.mark.parametrize(
    ("state", "questions", "status"),
    [("x", {}, 422), ("cost:11", QUESTION, 413), ("x", {"q": {"type": "box"}}, 422)],
)
async def test_a_refusal_is_plain(main: Main, state: str, questions: Any, status: int) -> None:
    """Not a byte of a stream before the verdict: the status says it, and clients know these bodies."""
    response = await ask(main, state, questions)
    assert response.status == status
    assert response.content_type == "application/json"
    assert (await response.json())["detail"]


async def test_a_refusal_that_passes_is_plain_too(main: Main) -> None:
    """429 while the slots are taken, 503 while there is no host, each with Retry-After."""
    streams = [await ask(main), await ask(main)]
    refused = await ask(main)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    for _ in streams:
        main.host.answer((await main.host.unit()).call)
    for stream in streams:
        await rest(stream)
    main.deployment.host_down(main.host.down(will_restart=False))
    await until(lambda: main.deployment.availability is Availability.FAILED)
    refused = await ask(main)
    assert refused.status == 503
    assert refused.headers["Retry-After"]
    assert refused.content_type == "application/json"


async def test_a_failure_after_the_verdict_is_one_event(main: Main, caplog: pytest.LogCaptureFixture) -> None:
    """The client discards what it has; the log and the metrics have the status that the head could not have."""
    response = await ask(main, "early:2", {"one": NOUL, "two": NOUL})
    main.host.answer((await main.host.unit()).call)
    second = await main.host.unit()
    with caplog.at_level(logging.WARNING, "framehost.access"):
        main.host.answer(second.call, failure())
        events = await rest(response)
    assert [name for name, _ in events] == ["admitted", "answer", "error"]
    assert events[-1][1]["status"] == 500
    assert events[-1][1]["detail"]["error_type"] == "internal_error"
    assert "outcome=failed status=500" in caplog.text
    assert open_requests(main) == 0


async def test_a_host_that_dies_after_the_verdict_is_an_event_with_advice(main: Main) -> None:
    """What the header Retry-After would have said is in the event."""
    response = await ask(main)
    assert (await event(response))[0] == "admitted"
    await main.host.unit()
    main.deployment.host_down(main.host.down())
    ((name, data),) = await rest(response)
    assert (name, data["status"], data["retry_after"]) == ("error", 503, 1)
    assert "not sent again" in data["detail"]["message"]


async def test_time_that_is_over_after_the_verdict_is_an_event(main: Main) -> None:
    """504 while the unit still holds the permit."""
    response = await ask(main, **{"x-framehost-timeout-ms": "100"})
    unit = await main.host.unit()
    events = await rest(response)
    assert [name for name, _ in events] == ["admitted", "error"]
    assert events[1][1]["status"] == 504
    assert main.deployment.scheduler.statistics().abandoned == 1
    main.host.answer(unit.call)


async def test_a_client_that_leaves_is_cancelled(main: Main) -> None:
    """Running: the host is told, and the unit keeps its permit. Queued: it is never sent."""
    running = await ask(main)
    unit = await main.host.unit()
    queued = await ask(main)
    assert (await event(queued))[0] == "admitted"
    queued.close()
    await until(lambda: main.deployment.scheduler.statistics().waiting == 0, "the queued one is out")
    running.close()
    assert await main.host.cancelled() == unit.call
    assert main.deployment.scheduler.statistics().abandoned == 1
    await until(lambda: open_requests(main) == 0, "both have ended")
    assert main.server.requests.statistics().ended == {"cancelled": 2}
    await until(lambda: not any("_write_events" in repr(task) for task in asyncio.all_tasks()), "nobody writes")
    main.host.answer(unit.call)
    await until(lambda: not main.deployment.scheduler.statistics().running)
    assert main.host.units.empty()


async def unread(main: Main) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A finished decision of 16 MB, of which the client has read nothing."""
    body = json.dumps({"state": "x", "questions": QUESTION}).encode()
    head = f"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = main.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + body)
    unit = await main.host.unit()
    main.host.answer(unit.call, Result(outputs={"pad": "x" * 2**24}, elapsed_us=1))
    return reader, writer


async def taken(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end of the response or of the connection."""
    data = bytearray()
    try:
        async with asyncio.timeout(20):
            while not data.endswith(b"\r\n0\r\n\r\n") and (chunk := await reader.read(2**20)):
                data += chunk
    except ConnectionResetError:
        pass
    return bytes(data)


async def test_a_slow_reader_holds_nothing(main: Main) -> None:
    """Its request has ended, its permits are back, the next one is served; then it reads all of it."""
    reader, writer = await unread(main)
    await until(lambda: main.server.requests.statistics().ended == {"answered": 1}, "it has ended")
    assert all(layer.outstanding == 0 for layer in main.deployment.statistics().admissions)
    assert (await main.answered()).status == 200
    await main.server.requests.idle()
    data = await taken(reader)
    assert data.endswith(b"\r\n0\r\n\r\n")
    assert len(data) > 2**24
    writer.close()


async def test_a_reader_that_never_reads_is_dropped(
    main: Main, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection ends with what it has not taken; nothing is logged as a failure of the server."""
    monkeypatch.setattr(limits, "STREAM_FLUSH_S", 0.05)
    reader, writer = await unread(main)
    await until(lambda: not main.runner.server.connections, "it is gone")  # type: ignore[union-attr]
    data = await taken(reader)
    assert len(data) < 2**24
    assert not data.endswith(b"\r\n0\r\n\r\n")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    writer.close()


async def test_a_stream_does_not_outlive_its_front(main: Main) -> None:
    """A stop waits for requests and not for readers."""
    _, writer = await unread(main)
    await main.server.requests.idle()
    async with asyncio.timeout(20):
        await main.runner.cleanup()
    writer.close()


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, */*", True),
        ("application/json, text/event-stream", False),
        ("application/json", False),
        ("*/*", False),
        ("text/event-streams", False),
    ],
)
async def test_only_a_client_that_asks_for_events_gets_them(main: Main, accept: str, streams: bool) -> None:
    """One that takes JSON as well gets the JSON that every client reads; `stream` in the body means nothing."""
    body = {"state": "x", "questions": QUESTION, "stream": True}
    asked = asyncio.create_task(main.client.post(f"{main.url}/v1/systemone", json=body, headers={"Accept": accept}))
    main.host.answer((await main.host.unit()).call)
    response = await asked
    assert (response.content_type == "text/event-stream") is streams
    await response.read()


@pytest.mark.parametrize("path", ["/v1/decisions", "/alpha/decisions"])
async def test_other_dialects_have_no_events(main: Main, path: str) -> None:
    """The extension is System One's; their clients would not know the events."""
    asked = asyncio.create_task(
        main.client.post(f"{main.url}{path}", json={"state": "x", "questions": QUESTION}, headers=STREAM)
    )
    main.host.answer((await main.host.unit()).call)
    assert (await asked).content_type == "application/json"


async def test_a_stream_is_the_last_response_of_no_connection(main: Main) -> None:
    """It ends as a chunked body does, so the connection serves the next request."""
    body = json.dumps({"state": "x", "questions": QUESTION}).encode()
    head = f"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = main.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + body + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    main.host.answer((await main.host.unit()).call)
    async with asyncio.timeout(20):
        data = await reader.read()
    assert data.count(b"HTTP/1.1 200") == 2
    assert data.endswith(b'{"status":"alive"}')
    writer.close()
