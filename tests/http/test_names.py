"""DNS rebinding: a web page whose name points to this machine is told nothing by a server that asks for no key."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Collection
from functools import partial

import pytest

from frontend.configuration.keys import ApiKey, KeyRing
from frontend.http import app, names
from frontend.serving.server import ServerLimits
from tests.http.conftest import Edge, listening

LOOPBACK = partial(app.build, loopback=True)
KEY = "a-key-of-16-characters"


@pytest.fixture
async def loopback() -> AsyncIterator[Edge]:
    """As a server without keys on 127.0.0.1, with one further name."""
    async with listening(ServerLimits(), LOOPBACK, allowed_hosts=("framehost.example", ".judges.example")) as edge:
        yield edge


def request(path: str, host: str | None, *headers: str, method: str = "GET") -> bytes:
    named = () if host is None else (f"Host: {host}",)
    version = "1.0" if host is None else "1.1"
    return "\r\n".join([f"{method} {path} HTTP/{version}", *named, "Connection: close", *headers, "", ""]).encode()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "127.0.0.1",
        "10.0.0.5:8080",
        "[::1]:8080",
        "localhost",
        "LocalHost:8080",
        "localhost.:8080",
        "judge.localhost:8080",
        "host.docker.internal:8080",
        "host.containers.internal",
        "framehost.example",
        "FrameHost.example:443",
        "a.judges.example",
        "B.a.Judges.example.:443",
        "",
        None,
    ],
)
async def test_who_means_this_server_is_answered(loopback: Edge, host: str | None) -> None:
    """An address, localhost, what containers call their machine, a configured name; and who says nothing, which no
    browser does. Once and again: the second time it is remembered."""
    for _ in range(2):
        assert status(await loopback.ask(request("/v1/models", host))) == 200


EVIL = [
    "evil.example:8080",
    "x",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "notlocalhost",
    "framehost.example.evil.example",
    "evil.framehost.example",
    "judges.example",
    "eviljudges.example",
    "a.judges.example.evil.example",
    "2130706433",
    "[evil",
    "127.0.0.1:8080@evil.example",
]


@pytest.mark.parametrize("host", EVIL)
async def test_a_page_under_a_name_of_its_own_reads_nothing(loopback: Edge, host: str) -> None:
    """403 before anything else of the request, and the text has the key of the configuration that mends it."""
    answer = await loopback.ask(request("/v1/models", host))
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert status(answer) == 403
    assert document["detail"]["error_type"] == "permission_error"
    assert document["error"]["status"] == "PERMISSION_DENIED"
    assert document["detail"]["message"].startswith(f"{host} is no name of this server")
    assert "allowed_hosts under [server]" in document["detail"]["message"]


@pytest.mark.parametrize("path", ["/", "/health", "/healthz", "/metrics", "/status", "/openapi.json", "/no"])
async def test_no_route_is_open_to_such_a_page(loopback: Edge, path: str) -> None:
    """Those that need no key included; a probe comes to an address."""
    assert status(await loopback.ask(request(path, "evil.example"))) == 403
    assert status(await loopback.ask(request(path, "127.0.0.1"))) in (200, 404, 503)


async def test_such_a_page_uploads_nothing_and_is_counted(loopback: Edge, caplog: pytest.LogCaptureFixture) -> None:
    """The refusal comes on the headers alone; the operator sees it in the metrics and in the access log."""
    with caplog.at_level(logging.INFO, "framehost.access"):
        answer = await loopback.ask(
            request("/v1/systemone", "evil.example", "Content-Length: 9", "Expect: 100-continue", method="POST")
        )
    assert status(answer) == 403
    assert b"connection: close" in answer.lower()
    assert loopback.server.ingress.statistics().admitted == 0
    assert "outcome=denied status=403 reason=host peer=127.0.0.1" in caplog.text
    scrape = (await loopback.ask(request("/metrics", "127.0.0.1"))).decode()
    assert 'framehost_requests_denied_total{reason="host"} 1.0' in scrape


async def test_many_good_names_fill_no_memory(loopback: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded, and what is not remembered is looked at again."""
    looked: list[str] = []
    look = names.is_own

    def noted(host: str, allowed: Collection[str]) -> bool:
        looked.append(host)
        return look(host, allowed)

    monkeypatch.setattr(names, "is_own", noted)
    monkeypatch.setattr(names, "_MAX_KNOWN", 2)
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.3"):
        assert status(await loopback.ask(request("/healthz", host))) == 200
    assert looked == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.3"]


async def test_with_keys_or_for_other_machines_any_name_will_do() -> None:
    """There a page has no key; and which names others have for this server is not known here."""
    ring = KeyRing(None, [ApiKey("alice", hashlib.sha256(KEY.encode()).digest())])
    async with listening(ServerLimits(), LOOPBACK, keys=ring) as edge:
        assert status(await edge.ask(request("/v1/models", "any.example", f"x-api-key: {KEY}"))) == 200
    async with listening(ServerLimits(), app.build) as edge:
        assert status(await edge.ask(request("/v1/models", "framehost:8080"))) == 200


async def test_names_that_are_configured_are_all_there_are() -> None:
    """Whoever lists them wants no others, whatever the address, and with keys, too."""
    async with listening(ServerLimits(), app.build, allowed_hosts=("framehost.example",)) as edge:
        assert status(await edge.ask(request("/v1/models", "other.example"))) == 403
        assert status(await edge.ask(request("/v1/models", "framehost.example"))) == 200
