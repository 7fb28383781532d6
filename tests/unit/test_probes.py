"""Live, started, ready: what each probe says in every situation, and that no client can keep it from saying so."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
from collections.abc import AsyncIterator

import pytest

from executor_host.supervision import probes
from executor_host.supervision.probes import MAX_CONNECTIONS, MAX_REQUEST_BYTES, Health, ProbeServer, answer

GUARD_S = 20.0

READY = Health(uptime_s=12.34, started=True, serving=True, stopping=False, models=("ready", "ready"), progress=None)
LOADING = dataclasses.replace(READY, started=False, serving=False, models=("ready", "loading"), progress=0.4567)


@pytest.mark.parametrize(
    ("health", "status", "live", "started", "ready"),
    [
        (LOADING, "starting", 200, 503, 503),
        (READY, "ready", 200, 200, 200),
        (dataclasses.replace(READY, models=("ready", "failed")), "degraded", 200, 200, 200),
        (dataclasses.replace(READY, models=("loading", "failed")), "unavailable", 200, 200, 503),
        (dataclasses.replace(READY, serving=False), "unavailable", 200, 200, 503),
        (dataclasses.replace(READY, stopping=True), "stopping", 200, 200, 503),
        (dataclasses.replace(LOADING, stopping=True), "stopping", 200, 503, 503),
    ],
    ids=["loading", "ready", "one failed", "none ready", "no front", "stopping", "stopped while loading"],
)
def test_each_probe_has_its_own_question(health: Health, status: str, live: int, started: int, ready: int) -> None:
    """A long load is neither dead nor ready, a dead front is unready and live, a stop is unready and live."""
    codes = [answer(path, health)[0] for path in ("/livez", "/startupz", "/readyz?verbose")]
    assert codes == [live, started, ready]
    assert answer("/readyz", health)[1]["status"] == status


def test_the_detail_is_counts_and_progress() -> None:
    """Names, paths and pids are not for whoever can reach the port."""
    assert answer("/startupz", LOADING)[1] == {
        "status": "starting",
        "uptime_s": 12.3,
        "models": {"loading": 1, "ready": 1},
        "progress": 0.457,
    }


class Served:
    def __init__(self, port: int) -> None:
        self.port = port

    async def send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer

    async def ask(self, data: bytes) -> bytes:
        async with asyncio.timeout(GUARD_S):
            reader, writer = await self.send(data)
            try:
                return await reader.read()
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ProbeServer(listener, lambda: READY)
        await server.start()
        yield Served(listener.getsockname()[1])
        server.close()


GET = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_probe_is_answered_and_its_connection_closed(served: Served) -> None:
    """A whole response with its length; HEAD has no body."""
    head, body = (await served.ask(GET)).split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["status"] == "ready"
    assert (await served.ask(b"HEAD /readyz HTTP/1.0\r\n\r\n")).endswith(b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /livez HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\r\n\r\n", b"400"),
        (b"GET /livez SPDY/3\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * (MAX_REQUEST_BYTES + 1), b"431"),
    ],
    ids=["path", "method", "TLS", "version", "size"],
)
async def test_what_is_no_probe_is_refused(served: Served, request_bytes: bytes, status: bytes) -> None:
    """A status of its own each, and the connection is over."""
    assert (await served.ask(request_bytes)).startswith(b"HTTP/1.1 " + status)


async def test_silent_clients_cannot_keep_a_probe_out(served: Served) -> None:
    """Beyond the bound the oldest connection goes, so that whoever comes is answered."""
    async with asyncio.timeout(GUARD_S):
        silent = [await served.send(b"GET /rea") for _ in range(MAX_CONNECTIONS)]
        assert (await served.ask(GET)).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionResetError):
            assert await silent[0][0].read() == b"", "the oldest was closed"
        for _, writer in silent:
            writer.close()


async def test_a_silent_client_is_closed_after_a_while(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never says what it wants: its connection ends by itself."""
    monkeypatch.setattr(probes, "TIMEOUT_S", 0.01)
    with contextlib.suppress(ConnectionResetError):
        assert await served.ask(b"GET /readyz HTTP/1.1\r\n") == b""
