"""The door: keys before everything else of a request, and web pages that may read the answers."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncIterator

import pytest

from frontend.configuration.keys import ApiKey, KeyRing
from frontend.serving.server import ServerLimits
from tests.http.conftest import Edge, listening

KEY = "a-key-of-16-characters"
PAGE = "https://app.example"


@pytest.fixture
async def door() -> AsyncIterator[Edge]:
    ring = KeyRing(None, [ApiKey("alice", hashlib.sha256(KEY.encode()).digest())])
    async with listening(ServerLimits(), keys=ring, origins=(PAGE,)) as edge:
        yield edge


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "header",
    [f"Authorization: Bearer {KEY}", f"authorization: bearer   {KEY} ", f"x-api-key: {KEY}", f"x-goog-api-key: {KEY}"],
)
async def test_a_key_opens_in_each_of_its_headers(door: Edge, header: str) -> None:
    """Clients of the field send a key in one of three ways."""
    assert status(await door.ask(request("GET", "/v1/models", header))) == 200


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Authorization: Bearer",),
        ("Authorization: Bearer wrong-wrong-wrong",),
        (f"Authorization: Basic {KEY}",),
        ("x-api-key: \xff\xfe",),
        ("Authorization: Bearer wrong-wrong-wrong", f"x-api-key: {KEY}"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/systemone"),
        ("POST", "/v1/systemone/"),
        ("GET", "/v1/models"),
        ("GET", "/no"),
        ("PUT", "/health/x"),
    ],
)
async def test_without_a_valid_key_nothing_is_told(
    door: Edge, headers: tuple[str, ...], method: str, path: str
) -> None:
    """401 with the same body for every route, known or not, in a shape that every dialect's clients read."""
    answer = await door.ask(request(method, path, *headers, body=b"{"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status(answer) == 401
    assert b"www-authenticate: bearer" in head.lower()
    document = json.loads(body)
    assert document["detail"]["error_type"] == "authentication_error"
    assert document["error"]["code"] == 401
    assert b"x-request-id" in head.lower()


async def test_a_stranger_uploads_nothing(door: Edge) -> None:
    """The refusal comes on the headers alone: no 100 Continue, no byte of the body waited for, nothing admitted."""
    asked = "\r\n".join(
        ["POST /v1/systemone HTTP/1.1", "Host: x", "Content-Length: 100", "Expect: 100-continue", "", ""]
    )
    answer = await door.ask(asked.encode())
    assert status(answer) == 401
    assert b"connection: close" in answer.lower()
    assert door.server.ingress.statistics().admitted == 0


@pytest.mark.parametrize("path", ["/health", "/healthz", "/health/"])
async def test_probes_need_no_key(door: Edge, path: str) -> None:
    """An orchestrator has none."""
    assert status(await door.ask(request("GET", path))) in (200, 503)


async def test_a_page_may_read_what_it_was_allowed(door: Edge) -> None:
    """An allowed origin gets its preflight answered without a key, and may read answers and errors."""
    preflight = await door.ask(
        request(
            "OPTIONS",
            "/v1/systemone",
            f"Origin: {PAGE}",
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: authorization, x-typesafe-sdk",
        )
    )
    assert status(preflight) == 204
    for line in (
        f"access-control-allow-origin: {PAGE}",
        "access-control-allow-headers: authorization, x-typesafe-sdk",
        "access-control-allow-methods: get, post",
    ):
        assert line in preflight.decode().lower()
    for headers in ((f"x-api-key: {KEY}",), ()):
        answer = (await door.ask(request("GET", "/v1/models", f"Origin: {PAGE}", *headers))).decode().lower()
        assert f"access-control-allow-origin: {PAGE}" in answer
        assert "vary: origin" in answer


@pytest.mark.parametrize("origin", ["https://evil.example", "https://app.example.evil.example", "null", PAGE + ":8443"])
async def test_another_page_may_not(door: Edge, origin: str) -> None:
    """Any other origin gets no permission, and its preflight is an ordinary request without a key."""
    asked = ("Access-Control-Request-Method: POST", f"Origin: {origin}")
    for answer in (
        await door.ask(request("OPTIONS", "/v1/systemone", *asked)),
        await door.ask(request("GET", "/v1/models", f"Origin: {origin}", f"x-api-key: {KEY}")),
    ):
        assert b"access-control-allow" not in answer.lower()


async def test_who_has_no_valid_key_is_counted_by_what_was_wrong_with_it(
    door: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator sees that a client still has an old key, and from where it comes; what it sent is nowhere."""
    old = ("x-api-key: the-old-key-of-someone", "x-request-id: find-me")
    with caplog.at_level(logging.INFO, "framehost.access"):
        await door.ask(request("POST", "/v1/systemone", *old, body=b"{}"))
        await door.ask(request("GET", "/no", "x-api-key: another-old-key-of-someone"))
        await door.ask(request("GET", "/v1/models"))
        await door.ask(request("GET", "/health"))
        scrape = (await door.ask(request("GET", "/metrics", f"x-api-key: {KEY}"))).decode()
    assert 'framehost_requests_denied_total{reason="key_invalid"} 2.0' in scrape
    assert 'framehost_requests_denied_total{reason="key_missing"} 1.0' in scrape
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "request_id=find-me outcome=denied status=401 reason=key_invalid peer=127.0.0.1"
    assert [line.partition("reason=")[2] for line in lines] == [
        "key_invalid peer=127.0.0.1",
        "key_invalid peer=127.0.0.1",
        "key_missing peer=127.0.0.1",
    ]
    assert "old-key" not in scrape + caplog.text


async def test_without_configuration_there_is_no_door(edge: Edge) -> None:
    """A server without keys ignores the ones it is sent, and says nothing to web pages."""
    answer = await edge.ask(request("GET", "/v1/models", "Authorization: Bearer anything", f"Origin: {PAGE}"))
    assert status(answer) == 200
    assert b"access-control" not in answer.lower()
