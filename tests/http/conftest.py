"""The HTTP edge of a front inside the test's own process: the real routes and connections, no host behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from frontend.http import app
from frontend.http.connection import ClientConnection
from frontend.serving.server import Server, ServerLimits
from tests.http.declared import Declared
from tests.http.main_port import Main, main_port


class Edge:
    """A listening front without models. `ask` opens a connection and sends raw bytes."""

    def __init__(self, server: Server, port: int, declared: Declared) -> None:
        self.server = server
        self.port = port
        self.declared = declared
        """What of its responses is not in its document; a test that leaves something there fails."""

    async def connect(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def ask(self, sent: bytes) -> bytes:
        """Everything the server sends until it closes the connection."""
        reader, writer = await self.connect(sent)
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        return answer

    def held(self) -> tuple[int, int]:
        """Uploads and bytes that ingress holds now."""
        statistics = self.server.ingress.statistics()
        return statistics.outstanding, statistics.held


@asynccontextmanager
async def listening(
    limits_of_server: ServerLimits, build: Callable[[Server], web.Application] = app.build, **options: Any
) -> AsyncIterator[Edge]:
    """A listening front; `build` makes the application, `options` are fields of its `Server`."""
    loop = asyncio.get_running_loop()
    server = Server(loop, limits_of_server, **options)
    application = build(server)
    declared = Declared(server, application)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    http = runner.server
    assert http is not None
    listener = await loop.create_server(lambda: ClientConnection(http), "127.0.0.1", 0)
    yield Edge(server, listener.sockets[0].getsockname()[1], declared)
    listener.close()
    await runner.cleanup()
    server.pool.shutdown()
    server.parser.shutdown()
    assert declared.problems == []


@pytest.fixture
async def main(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Main]:
    """The main port over one model whose host the test plays."""
    async with main_port(monkeypatch) as made:
        yield made


@pytest.fixture
async def edge(limits_of_server: ServerLimits) -> AsyncIterator[Edge]:
    async with listening(limits_of_server) as edge:
        yield edge


@pytest.fixture
def limits_of_server() -> ServerLimits:
    """Overridden by a test module that wants others."""
    return ServerLimits()
