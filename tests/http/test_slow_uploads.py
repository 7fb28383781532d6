"""Uploads that crawl or stand still, with limits small enough to wait for."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from frontend import limits
from frontend.serving.server import ServerLimits
from tests.http.conftest import Edge

HEAD = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture
def limits_of_server() -> ServerLimits:
    return ServerLimits(max_body_bytes=1000, ingress_requests=3, ingress_bytes=2500)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 0.05)
    monkeypatch.setattr(limits, "LINGERING_S", 0.05)


async def until(edge: Edge, held: tuple[int, int]) -> None:
    async with asyncio.timeout(30):
        while edge.held() != held:
            await asyncio.sleep(0)


async def test_a_body_that_stands_still_is_408(edge: Edge) -> None:
    """Half a body, then nothing: the upload's place is given back, and the connection is closed."""
    answer = await edge.ask(HEAD + b"Content-Length: 1000\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]["error_type"] == "request_timeout"
    assert edge.held() == (0, 0)
    assert edge.server.requests.statistics().open == 0


async def test_no_byte_at_all_is_408(edge: Edge) -> None:
    """The headers came, the body never began."""
    assert (await edge.ask(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_crawls_is_not_idle(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte starts the wait anew: slow is legal within the request's own time, standing still is not."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    reader, writer = await edge.connect(HEAD + b"Content-Length: 30\r\n\r\n")
    for _ in range(30):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.001)
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    writer.close()


async def test_uploads_in_progress_are_bounded_in_number(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth of three gets 429 before its body is read, and a place is free again when a client leaves."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    open_ones = [await edge.connect(HEAD + b"Content-Length: 10\r\n\r\n{") for _ in range(3)]
    await until(edge, (3, 30))
    answer = await edge.ask(HEAD + b"Content-Length: 10\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"Retry-After: 1\r\n" in answer
    assert b"ingress" in answer
    open_ones[0][1].close()
    await until(edge, (2, 20))
    reader, writer = await edge.connect(HEAD + b"Content-Length: 2\r\n\r\n{}")
    assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    for _, other in [*open_ones[1:], (reader, writer)]:
        other.close()
    await until(edge, (0, 0))


async def test_uploads_in_progress_are_bounded_in_bytes(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunked upload reserves its first step, here the largest body: two of them and 501 bytes do not fit."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    chunked = [await edge.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n") for _ in range(2)]
    await until(edge, (2, 2000))
    assert (await edge.ask(HEAD + b"Content-Length: 501\r\n\r\n")).startswith(b"HTTP/1.1 429 ")
    reader, writer = await edge.connect(HEAD + b"Content-Length: 500\r\n\r\n" + b" " * 500)
    assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    for _, other in [*chunked, (reader, writer)]:
        other.close()
    await until(edge, (0, 0))


async def test_a_chunked_upload_reserves_as_it_grows(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that stand still hold a step each; one that grows reserves what it has, and all of it goes back."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    monkeypatch.setattr(limits, "INGRESS_STEP_BYTES", 100)
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    still = [await edge.connect(chunked) for _ in range(2)]
    await until(edge, (2, 200))
    reader, writer = await edge.connect(chunked)
    for sent, held in ((100, 100), (1, 200), (98, 200), (750, 1000), (51, 1000)):
        writer.write(b"%x\r\n%b\r\n" % (sent, b" " * sent))
        await until(edge, (3, 200 + held))
    writer.write(b"0\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    await until(edge, (2, 200))
    for _, other in [*still, (reader, writer)]:
        other.close()
    await until(edge, (0, 0))


@pytest.mark.parametrize("packed", [False, True])
async def test_an_upload_that_grows_beyond_the_budget_is_429(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """In the middle of it, and everything it held goes back. What is unpacked counts as well as what is sent."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    monkeypatch.setattr(limits, "INGRESS_STEP_BYTES", 100)
    large = [await edge.connect(HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 999) for _ in range(2)]
    await until(edge, (2, 2000))
    if packed:
        body = gzip.compress(b" " * 501)
        head = HEAD + b"Connection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        answer = await edge.ask(head + body)
    else:
        reader, writer = await edge.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n" + b" " * 500 + b"\r\n")
        await until(edge, (3, 2500))
        writer.write(b"1\r\n \r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"Retry-After: 1\r\n" in answer
    assert b"ingress" in answer
    assert edge.held() == (2, 2000)
    for _, other in large:
        other.close()
    await until(edge, (0, 0))


async def test_liveness_needs_no_place(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes take no ingress: they answer while every upload's place is taken."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    open_ones = [await edge.connect(HEAD + b"Content-Length: 10\r\n\r\n{") for _ in range(3)]
    await until(edge, (3, 30))
    answer = await edge.ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    answer = await edge.ask(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 "), "live, and not ready: there is no model"
    for _, writer in open_ones:
        writer.close()
    await until(edge, (0, 0))


async def test_what_is_announced_reserves_nothing(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that announce the largest body and send a byte hold a step each, and keep nobody out."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    monkeypatch.setattr(limits, "INGRESS_STEP_BYTES", 100)
    crawling = [await edge.connect(HEAD + b"Content-Length: 1000\r\n\r\n{") for _ in range(2)]
    await until(edge, (2, 200))
    reader, writer = await edge.connect(HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 1000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    for _, other in [*crawling, (reader, writer)]:
        other.close()
    await until(edge, (0, 0))


async def test_a_body_that_comes_too_slowly_is_408(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not begin the wait anew."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 0.3)
    reader, writer = await edge.connect(HEAD + b"Content-Length: 1000\r\n\r\n")

    async def crawl() -> None:
        while True:
            writer.write(b" ")
            await asyncio.sleep(0.05)

    crawling = asyncio.create_task(crawl())
    async with asyncio.timeout(20):
        answer = await reader.readuntil(b"}")
    crawling.cancel()
    await asyncio.wait([crawling])
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"fewer than 1024 a second" in answer
    assert edge.held() == (0, 0)
    writer.close()


async def test_the_slowest_upload_gives_way_when_there_is_no_room(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told so, and the newcomer is read. One that has only just begun does not."""
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 20.0)
    monkeypatch.setattr(limits, "INGRESS_STEP_BYTES", 100)
    now = [0.0]
    monkeypatch.setattr(edge.server.uploads, "_clock", lambda: now[0] + asyncio.get_running_loop().time())
    slow, slowest, slower = [
        await edge.connect(HEAD + b"Content-Length: 900\r\n\r\n" + b" " * sent) for sent in (300, 100, 200)
    ]
    async with asyncio.timeout(20):
        while len(edge.server.uploads._waiting) < 3:
            await asyncio.sleep(0)
    assert (await edge.ask(HEAD + b"Content-Length: 10\r\n\r\n")).startswith(b"HTTP/1.1 429 ")
    now[0] = limits.UPLOAD_GIVES_WAY_S
    reader, writer = await edge.connect(HEAD + b"Content-Length: 2\r\n\r\n{}")
    assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    async with asyncio.timeout(20):
        answer = await slowest[0].readuntil(b"}")
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"it had brought 100 bytes" in answer
    assert edge.server.uploads.gave_way == 1
    for (reader, other), left in ((slow, 600), (slower, 700)):
        other.write(b" " * left)
        assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
        other.close()
    for _, other in (slowest, (reader, writer)):
        other.close()
    writer.close()
    await until(edge, (0, 0))
