"""Requests that the field's clients send and few servers expect: each has the answer that its sender can use."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import struct
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

import pytest
from yarl import URL

from frontend.http import admin
from frontend.limits import ServerLimits
from protocol.messages import Order, Outcome
from tests.helpers.fake_host import until
from tests.http.conftest import Edge, listening
from tests.http.main_port import Main

BODY = b'{"state": "x"}'
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("protocol", [b"h2c", b"TLS/1.2", b"HTTP/2.0", b"websocket", b"h2c, websocket"])
@pytest.mark.parametrize("framing", ["sized", "chunked", "none"])
@pytest.mark.parametrize("late", [False, True], ids=["one packet", "two packets"])
async def test_an_offer_to_upgrade_is_ignored(edge: Edge, protocol: bytes, framing: str, late: bool) -> None:
    """Java's client makes one with every first request. The body is read, and the next request is answered, too."""
    head = (
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + b"\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
    )
    if framing == "sized":
        sent = head + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    elif framing == "chunked":
        sent = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
    else:
        sent = head + b"\r\n"
    reader, writer = await edge.connect(sent if late else sent + HEALTHZ)
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"\r\nContent-Length: (\d+)\r\n", head)
        await reader.readexactly(int(length))
        assert b" 422 " in head.partition(b"\r\n")[0]
        if late:
            writer.write(HEALTHZ)
        rest = await reader.read()
    writer.close()
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert rest.endswith(b'{"status":"alive"}')


@pytest.mark.parametrize("digits", [309, 310, 400, 4300, 5000])
async def test_a_time_budget_of_many_digits_is_the_clients_error(main: Main, digits: int) -> None:
    """More than a number of the machine can hold, and more than Python converts."""
    body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "is it so?"}}}
    response = await main.client.post(
        f"{main.url}/v1/systemone", json=body, headers={"x-framehost-timeout-ms": "9" * digits}
    )
    assert response.status == 400
    assert "x-framehost-timeout-ms" in (await response.json())["detail"]["message"]


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain;version=a",
        "text/plain;version=",
        "text/plain;version=1.x",
        "text/plain;version=0.0.4;escaping=nonsense",
        "application/openmetrics-text;version=a",
        "application/openmetrics-text;version=1.0.0;escaping=",
        "application/openmetrics-text; version=99999999999999999999.0.0",
        "nonsense",
        ";;;,,,===",
        "text/plain;" * 100,
        "é",
        "",
    ],
)
async def test_metrics_come_in_a_supported_format_whatever_is_asked_for(main: Main, accept: str) -> None:
    """200, in one of the formats that Prometheus reads."""
    response = await main.client.get(f"{main.url}/metrics", headers={"Accept": accept})
    assert response.status == 200
    assert response.headers["Content-Type"].startswith(("text/plain", "application/openmetrics-text"))
    assert "framehost_requests" in await response.text()


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions", "/nowhere", "/v1/chat/completions"])
async def test_a_refused_head_says_what_the_get_would_say(edge: Edge, path: str) -> None:
    """The same status and the same Content-Length, and no body."""
    answers = []
    for method in ("GET", "HEAD"):
        sent = f"{method} {path} HTTP/1.1\r\nHost: x\r\nx-request-id: a\r\nConnection: close\r\n\r\n"
        head, _, body = (await edge.ask(sent.encode())).partition(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        answers.append((head.split(b"\r\n")[0], fields[b"Content-Length"], len(body)))
    (status, length, got), (other, other_length, other_got) = answers
    assert (status, length) == (other, other_length)
    assert int(length) == got > 0
    assert other_got == 0


@pytest.mark.parametrize("path", ["/v1/systemone", "/nowhere", "/healthz"])
async def test_a_client_that_resets_after_expect_is_one_that_has_left(
    edge: Edge, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for 100 Continue and goes: no traceback, and no error of the server is counted."""
    loop = asyncio.get_running_loop()
    for _ in range(20):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", edge.port))
        await loop.sock_sendall(
            client,
            f"POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n".encode(),
        )
        client.close()
    await until(lambda: not edge.server.requests.statistics().open and not edge.server.clients.report()["open"])
    assert json.loads((await edge.ask(HEALTHZ)).partition(b"\r\n\r\n")[2]) == {"status": "alive"}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    counted = [status for model in edge.server.metrics.models.values() for _, _, status in model.requests]
    assert set(counted) <= {499}


@pytest.mark.parametrize("name", ["org/name", "a/b/c", "org/name with space", "50%/x", "org/swap"])
async def test_a_model_whose_name_has_slashes_is_found(main: Main, name: str) -> None:
    """As it stands in the address, encoded, and with a slash behind it; a part of its name is none."""
    main.server.deployments[name] = main.deployment
    plain, encoded = quote(name), quote(name, safe="")
    for path in (plain, encoded, f"{plain}/", f"{encoded}/"):
        response = await main.client.get(URL(f"{main.url}/v1/models/{path}", encoded=True))
        assert (response.status, (await response.json()).get("id")) == (200, "m"), path
    response = await main.client.get(URL(f"{main.url}/v1/models/{plain.partition('/')[0]}", encoded=True))
    assert response.status == 404


@pytest.mark.parametrize("name", ["org/name", "a/b/c", "org/swap"])
@pytest.mark.parametrize("spelled", [quote, partial(quote, safe="")], ids=["plain", "encoded"])
async def test_orders_reach_a_model_whose_name_has_slashes(
    limits_of_server: ServerLimits, name: str, spelled: Callable[[str], str]
) -> None:
    """The action is the last part of the path, whatever the name is."""
    orders: list[Order] = []

    async def carry_out(order: Order) -> Outcome:
        orders.append(order)
        return Outcome(code="done", message="", report={})

    async with listening(limits_of_server, admin.build) as edge:
        edge.server.carry_out = carry_out  # type: ignore[method-assign]
        sent = (
            f"POST /admin/models/{spelled(name)}/load HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"
        )
        assert (await edge.ask(sent.encode())).startswith(b"HTTP/1.1 200 ")
    assert [(order.action, order.model) for order in orders] == [("load", name)]
