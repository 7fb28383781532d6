"""Who may give orders: keys that say so, programs of this machine, and no web page."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frontend import limits
from frontend.configuration.keys import ApiKey, KeyRing
from frontend.http import admin, app
from frontend.serving.server import ServerLimits
from protocol.errors import LimitExceeded
from protocol.messages import Order, Outcome
from tests.http.conftest import Edge, listening

OPERATOR, CLIENT = "operator-0123456", "a-client-0123456"
PAGE = "https://app.example"
JSON = "Content-Type: application/json"
LOAD = "/admin/models/m/load"


class Orders:
    """A supervisor that carries out everything."""

    def __init__(self) -> None:
        self.given: list[Order] = []

    async def __call__(self, order: Order) -> Outcome:
        if "unsendable" in order.settings:
            raise LimitExceeded("too deep")
        self.given.append(order)
        return Outcome(code="done", message="it is", report={})


def ring() -> KeyRing:
    keys = [
        ApiKey("operator", hashlib.sha256(OPERATOR.encode()).digest(), admin=True),
        ApiKey("client", hashlib.sha256(CLIENT.encode()).digest()),
    ]
    return KeyRing(None, keys)


@pytest.fixture
def orders() -> Orders:
    return Orders()


@pytest.fixture
async def loopback(orders: Orders) -> AsyncIterator[Edge]:
    """The admin listener of a server without keys."""
    async with listening(ServerLimits(), admin.build, carry_out=orders, origins=(PAGE,)) as edge:
        yield edge


@pytest.fixture(params=["main port", "admin listener"])
async def keyed(request: Any, orders: Orders) -> AsyncIterator[Edge]:
    """Either listener of a server with keys."""
    build = app.build if request.param == "main port" else admin.build
    async with listening(ServerLimits(), build, carry_out=orders, keys=ring(), origins=(PAGE,)) as edge:
        yield edge


def order(path: str, *fields: str, body: bytes = b"", host: str = "127.0.0.1:8082", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + body


def split(answer: bytes) -> tuple[int, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_a_key_gives_orders_if_it_may(keyed: Edge, orders: Orders) -> None:
    """401 without a key, 403 with one that may not, 200 with one that may: on the main port and the admin listener."""
    assert split(await keyed.ask(order(LOAD, JSON)))[0] == 401
    status, document = split(await keyed.ask(order(LOAD, JSON, f"x-api-key: {CLIENT}")))
    assert (status, document["detail"]["error_type"]) == (403, "permission_error")
    assert orders.given == []
    for path in (LOAD, "/admin/models/m/swap"):
        body = b'{"family": "f"}' if path.endswith("swap") else b""
        asked = order(path, JSON, f"x-api-key: {OPERATOR}", body=body, host="models.example")
        assert split(await keyed.ask(asked)) == (200, {"outcome": "done", "message": "it is"})
    assert [(given.action, given.model) for given in orders.given] == [("load", "m"), ("swap", "m")]


async def test_a_page_with_a_key_still_needs_to_be_allowed(keyed: Edge, orders: Orders) -> None:
    """The origin is looked at with keys, too: the ones in `cors` may, another may not."""
    asked = (JSON, f"x-api-key: {OPERATOR}")
    assert split(await keyed.ask(order(LOAD, *asked, "Origin: https://evil.example")))[0] == 403
    assert orders.given == []
    assert split(await keyed.ask(order(LOAD, *asked, f"Origin: {PAGE}")))[0] == 200


async def test_without_keys_the_main_port_takes_no_orders(orders: Orders) -> None:
    """There nobody could be told from anybody else."""
    async with listening(ServerLimits(), carry_out=orders) as edge:
        assert split(await edge.ask(order(LOAD, JSON)))[0] == 404
    assert orders.given == []


@pytest.mark.parametrize("host", ["127.0.0.1:8082", "localhost:8082", "[::1]:8082", "10.0.0.5", "LOCALHOST"])
async def test_programs_of_this_machine_give_orders(loopback: Edge, orders: Orders, host: str) -> None:
    """Whoever can connect, at an address or at localhost."""
    assert split(await loopback.ask(order(LOAD, f"{JSON}; charset=utf-8", host=host)))[0] == 200
    assert len(orders.given) == 1


@pytest.mark.parametrize(
    ("fields", "host", "status"),
    [
        (("Content-Type: text/plain",), "127.0.0.1:8082", 415),
        (("Content-Type: application/x-www-form-urlencoded",), "127.0.0.1:8082", 415),
        (("Content-Type: multipart/form-data; boundary=b",), "127.0.0.1:8082", 415),
        ((), "127.0.0.1:8082", 415),
        ((JSON, "Origin: https://evil.example"), "127.0.0.1:8082", 403),
        ((JSON, "Origin: null"), "127.0.0.1:8082", 403),
        ((JSON, "Origin: http://127.0.0.1:8080"), "127.0.0.1:8082", 403),
        ((JSON,), "evil.example:8082", 403),
        ((JSON,), "127.0.0.1.evil.example", 403),
        ((JSON,), "localhost.evil.example", 403),
        ((JSON,), "[evil", 403),
    ],
)
async def test_a_web_page_gives_no_orders(
    loopback: Edge, orders: Orders, fields: tuple[str, ...], host: str, status: int
) -> None:
    """Neither with a form, nor from its own origin, nor under a name of its own that means this machine."""
    assert split(await loopback.ask(order(LOAD, *fields, host=host)))[0] == status
    assert orders.given == []


async def test_a_page_is_not_told_that_it_may_ask(loopback: Edge) -> None:
    """The question a browser sends first is answered with no permission, also for origins that may read answers."""
    asked = ("Origin: " + PAGE, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
    answer = await loopback.ask(order(LOAD, *asked, method="OPTIONS"))
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"access-control" not in answer.lower()


async def test_settings_that_cannot_be_passed_on_are_the_operators_error(loopback: Edge) -> None:
    """What the lane to the supervisor has no form for is 422."""
    status, document = split(await loopback.ask(order("/admin/models/m/swap", JSON, body=b'{"unsendable": 1}')))
    assert (status, "too deep" in document["error"]["message"]) == (422, True)


async def test_orders_share_the_room_for_uploads(orders: Orders) -> None:
    """429 with Retry-After while it is taken: an order's body is read like any other."""
    async with listening(ServerLimits(ingress_requests=1), keys=ring(), carry_out=orders) as edge:
        _, upload = await edge.connect(order("/v1/systemone", f"x-api-key: {CLIENT}", body=b"{")[:-1])
        async with asyncio.timeout(30):
            while edge.held() != (1, 1):
                await asyncio.sleep(0)
        answer = await edge.ask(order(LOAD, JSON, f"x-api-key: {OPERATOR}"))
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After: 1\r\n" in answer
        upload.close()
    assert orders.given == []


async def test_an_order_whose_upload_takes_longer_than_a_request_may_is_504(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes come, and too slowly: the place of the upload is given back, and nothing is ordered."""
    monkeypatch.setattr(limits, "LINGERING_S", 0.05)
    async with listening(ServerLimits(request_timeout_s=0.1), admin.build, carry_out=orders) as edge:
        answer = await edge.ask(order("/admin/models/m/swap", JSON, body=b'{"family": "f"}')[:-1])
        assert split(answer)[0] == 504
        assert "the upload took longer than 0.1 s" in split(answer)[1]["error"]["message"]
        assert edge.held() == (0, 0)
    assert orders.given == []
