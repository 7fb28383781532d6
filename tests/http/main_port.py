"""A front with one model of the fake family behind the real main port, and a host that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zmq
from aiohttp import ClientResponse, ClientSession, web
from prometheus_client.parser import text_string_to_metric_families

from frontend.http import app
from frontend.http.connection import ClientConnection
from frontend.serving.deployment import Deployment
from frontend.serving.replica import Availability
from frontend.serving.server import Server, ServerLimits
from protocol import families
from tests.helpers import fake_family
from tests.helpers.fake_host import FakeHost, until, zmq_context
from tests.http.declared import Declared

QUESTION = {"q": {"type": "noul", "instructions": "is it so?"}}


class Main:
    """A front with the one model "m" behind the main port, and a client."""

    def __init__(
        self, context: zmq.Context[Any], client: ClientSession, *, max_requests: int = 2, **options: Any
    ) -> None:
        """`options`: fields of its `Server`."""
        loop = asyncio.get_running_loop()
        self.zmq, self.client = context, client
        self.server = Server(loop, ServerLimits(), default="m", **options)
        model = {
            "id": "m@1",
            "name": "m",
            "role": "current",
            "family": "fake",
            "options": {},
            "max_requests": max_requests,
            "max_cost": 10,
        }
        self.deployment = Deployment(model, loop=loop, zmq_context=context, epoch="front-1")
        self.server.deployments["m"] = self.deployment
        self.url = ""

    async def open(self) -> None:
        application = app.build(self.server)
        self.declared = Declared(self.server, application)
        self.runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        http = self.runner.server
        assert http is not None
        loop = asyncio.get_running_loop()
        self.listener = await loop.create_server(
            lambda: ClientConnection(http, clients=self.server.clients), "127.0.0.1", 0
        )
        self.url = f"http://127.0.0.1:{self.listener.sockets[0].getsockname()[1]}"
        self.host = FakeHost(self.zmq)
        self.deployment.host_up(self.host.up())
        await until(lambda: self.deployment.availability is Availability.READY, "ready")

    async def close(self) -> None:
        self.listener.close()
        await self.runner.cleanup()
        self.deployment.close()
        self.host.close()
        self.server.pool.shutdown()
        self.server.parser.shutdown()
        assert self.declared.problems == []

    async def post(self, state: str = "x", **fields: Any) -> ClientResponse:
        body = {"state": state, "questions": QUESTION, **fields}
        response = await self.client.post(f"{self.url}/v1/systemone", json=body)
        await response.read()
        return response

    async def answered(self, state: str = "x", *, units: int = 1) -> ClientResponse:
        asked = asyncio.create_task(self.post(state))
        for _ in range(units):
            self.host.answer((await self.host.unit()).call)
        return await asked

    async def scrape(self) -> dict[tuple[str, ...], float]:
        """Every sample, by its name and its labels' values, the model first."""
        response = await self.client.get(f"{self.url}/metrics")
        assert response.status == 200
        text = await response.text()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items(), key=_order))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def _order(label: tuple[str, str]) -> tuple[bool, str]:
    return label[0] != "model", label[0]


@asynccontextmanager
async def main_port(monkeypatch: pytest.MonkeyPatch, **options: Any) -> AsyncIterator[Main]:
    """A listening `Main` whose host is ready; `options` are fields of its `Server`."""
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)
    with zmq_context() as context:
        async with ClientSession() as client:
            made = Main(context, client, **options)
            await made.open()
            try:
                yield made
            finally:
                await made.close()
