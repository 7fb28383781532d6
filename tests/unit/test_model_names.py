"""Which model a request means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontend.errors import InvalidRequest, UnknownModel
from frontend.serving.server import Server, ServerLimits


@pytest.fixture
async def server() -> Server:
    return Server(asyncio.get_running_loop(), ServerLimits(), default="b")


async def test_a_name_an_alias_and_no_name(server: Server) -> None:
    """A request without a name is answered where there is one model only; the aliases mean the default."""
    models: dict[str, Any] = {"a": object(), "b": object()}
    server.deployments = models
    assert server.resolve("a") is models["a"]
    assert server.resolve("jev-latest") is server.resolve("jev-preview") is models["b"]
    with pytest.raises(InvalidRequest, match="there are several: a, b") as missing:
        server.resolve(None)
    assert (missing.value.faults[0].loc, missing.value.faults[0].type) == (("model",), "missing")
    with pytest.raises(UnknownModel, match="Models here: a, b"):
        server.resolve("c")
    del models["a"]
    assert server.resolve(None) is models["b"]
