"""The way in, over a real socket: bodies, encodings, methods, paths and bytes that are no HTTP at all."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import QUESTION, Framehost, configuration, received, running

LIMIT = 100_000
NAME = "judge.example"


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory:
        config = configuration(
            directory / "c.toml", {"toy": {"max_requests": 300}}, max_body=LIMIT, allowed_hosts=[NAME]
        )
        with running(directory, config=config) as server:
            yield server


@pytest.fixture(autouse=True)
def _serves_on(server: Framehost) -> Iterator[None]:
    """Whatever a test sent: it is no error in the log, nothing is held, and the same host answers the next request."""
    host = server.host()["pid"]
    yield
    assert not any("Traceback" in line or "ERROR" in line for line in server.lines), server.log()
    server.wait(server.idle, "idle")
    answer = server.decide({"tag": "next"})
    assert answer.status == 200
    assert answer.json["x_toy"]["pid"] == host


def test_on_loopback_only_names_of_its_own_are_answered(server: Framehost) -> None:
    """An address, localhost, and what the configuration allows: not the name of a page that made it point here."""
    for host, status in ((f"127.0.0.1:{server.port}", 200), ("localhost", 200), (NAME, 200), ("evil.example", 403)):
        assert server.decide("x", host=host).status == status


def body(state: Any = "x") -> bytes:
    return json.dumps({"state": state, "questions": QUESTION}).encode()


def head(*fields: str) -> bytes:
    lines = ["POST /v1/systemone HTTP/1.1", "Host: localhost", "Content-Type: application/json", *fields, "", ""]
    return "\r\n".join(lines).encode()


def exchange(server: Framehost, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send, and read until the server closes: status, headers and body of the last response."""
    with server.connect(sent) as connection:
        raw = received(connection)
    return parse(raw)


def parse(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    top, _, content = raw.partition(b"\r\n\r\n")
    line, *fields = top.decode().split("\r\n")
    headers = {key.lower(): value.strip() for key, _, value in (field.partition(":") for field in fields)}
    return int(line.split()[1]), headers, content


def detail(content: bytes) -> Any:
    return json.loads(content)["detail"]


# Sizes


def test_an_announced_body_above_the_limit_is_refused_before_it_is_sent(server: Framehost) -> None:
    """The answer comes on the Content-Length alone; the connection closes, because the body would follow."""
    status, headers, content = exchange(server, head(f"Content-Length: {LIMIT + 1}"))
    assert status == 413
    assert detail(content)["error_type"] == "request_too_large"
    assert str(LIMIT) in detail(content)["message"]
    assert "retry-after" not in headers
    assert headers["x-request-id"]


def test_a_chunked_body_is_refused_where_it_passes_the_limit(server: Framehost) -> None:
    """It announces nothing, so it is counted as it comes; the rest is never waited for."""
    chunk = b"%x\r\n%b\r\n" % (LIMIT + 1, b" " * (LIMIT + 1))
    status, _, content = exchange(server, head("Transfer-Encoding: chunked") + chunk)
    assert status == 413
    assert detail(content)["error_type"] == "request_too_large"


def test_a_body_of_exactly_the_limit_is_served(server: Framehost) -> None:
    """The limit itself is legal, one more byte is not."""
    exact = body("x" * (LIMIT - len(body(""))))
    assert len(exact) == LIMIT
    assert server.post(exact).status == 200
    assert server.post(exact + b" ").status == 413


def test_a_body_is_measured_after_it_is_unpacked(server: Framehost) -> None:
    """A few kilobytes that become megabytes are refused at the limit, not after unpacking them all."""
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < LIMIT
    answer = server.post(bomb, content_encoding="gzip")
    assert answer.status == 413


def test_a_second_request_on_a_connection_that_was_refused(server: Framehost) -> None:
    """The unread rest of a refused body is never taken for the next request."""
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sent = head(f"Content-Length: {LIMIT + 1}") + smuggled
    with server.connect(sent) as connection:
        raw = received(connection)
    assert raw.count(b"HTTP/1.1 ") == 1
    assert raw.startswith(b"HTTP/1.1 413")


# Encodings


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_packed_body_is_read(server: Framehost, pack: Any) -> None:
    """gzip and deflate are unpacked, as the field's clients send them."""
    encoding = "gzip" if pack is gzip.compress else "deflate"
    assert server.post(pack(body()), content_encoding=encoding).status == 200


@pytest.mark.parametrize(
    ("raw", "encoding", "status"),
    [
        (b"this is not gzip", "gzip", 400),
        (b"x", "br", 415),
        (b"x", "compress", 415),
        (b"x", "gzip, gzip", 415),
    ],
)
def test_a_body_that_does_not_unpack_is_the_clients_error(
    server: Framehost, raw: bytes, encoding: str, status: int
) -> None:
    """Never a 5xx, because clients retry those: 400 for broken, 415 for unknown."""
    answer = server.post(raw, content_encoding=encoding)
    assert answer.status == status
    assert answer.json["detail"]["error_type"] == "api_usage_error"


def test_a_packed_body_that_ends_early_is_the_clients_error(server: Framehost) -> None:
    """Even when all of its JSON is there: without the checksum nobody knows that it is what was sent."""
    for end in (20, -8):
        assert server.post(gzip.compress(body())[:end], content_encoding="gzip").status == 400


# Contents


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"nonsense",
        b"[]",
        b"null",
        body() + b"x",
        body()[:-1],
        b'{"state": NaN, "questions": {}}',
        b'{"state": 1e999, "questions": {}}',
        b'{"state": Infinity, "questions": {}}',
        b'{"state": "a", "state": "b", "questions": {}}',
        b'{"state": "\\ud800", "questions": {}}',
        b'{"state": "\xff\xfe", "questions": {}}',
        b"[" * 5_000 + b"]" * 5_000,
        b'{"state": ' * 5_000 + b"1" + b"}" * 5_000,
        b'{"state": "x", "questions": {}}',
        b'{"state": "x"}',
        b'{"state": ' + b"9" * 50_000 + b', "questions": {}}',
        b'{"state": "x", "questions": {"q": {"type": "riddle"}}}',
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_a_body_that_is_no_request_is_422_with_a_place(server: Framehost, raw: bytes) -> None:
    """One validation error that says what and where; nothing reaches the host."""
    calls = server.model()["scheduler"]["dispatched"]
    answer = server.post(raw)
    assert answer.status == 422
    faults = answer.json["detail"]
    assert faults
    assert all(fault["loc"][0] == "body" and fault["msg"] and fault["type"] for fault in faults)
    assert server.model()["scheduler"]["dispatched"] == calls


def test_an_unknown_model_is_the_clients_error(server: Framehost) -> None:
    """400, with the names there are."""
    answer = server.decide("x", model="gpt")
    assert answer.status == 400
    assert "toy" in answer.json["detail"]["message"]


# Lying about the length


def test_more_bytes_than_announced_are_not_part_of_the_request(server: Framehost) -> None:
    """What follows the announced bytes is no HTTP: 400, the connection ends, and nothing of it is served."""
    raw = body()
    with server.connect(head(f"Content-Length: {len(raw)}") + raw) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"this is the rest\r\n\r\n" + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        rest = received(connection)
    assert rest.count(b"HTTP/1.") == 1
    assert parse(rest)[0] == 400


def test_fewer_bytes_than_announced_and_then_gone(server: Framehost) -> None:
    """Half a body and a closed connection: cancelled, nothing kept, nobody else's request is confused."""
    cancelled = server.status()["front"]["requests"]["ended"].get("cancelled", 0)
    raw = body()
    server.connect(head(f"Content-Length: {len(raw) + 100}") + raw).close()
    server.wait(lambda: server.status()["front"]["requests"]["ended"].get("cancelled", 0) == cancelled + 1, "its end")


# Paths, methods, and no HTTP at all


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/systemone", 405),
        ("DELETE", "/v1/systemone", 405),
        ("POST", "/health", 405),
        ("PUT", "/v1/models/", 405),
        ("DELETE", "/", 405),
        ("POST", "/v1/chat", 404),
        ("GET", "/v1/systemone/../../etc/passwd", 404),
        ("GET", "/%00", 404),
    ],
)
def test_a_route_we_do_not_have_is_said_in_json(server: Framehost, method: str, path: str, status: int) -> None:
    """404 and 405 are read by programs of every dialect: an error object, a request id, Allow."""
    line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    got, headers, content = exchange(server, line.encode())
    assert got == status
    assert headers["content-type"].startswith("application/json")
    assert headers["x-request-id"]
    document = json.loads(content)
    assert document["detail"]["message"] == document["error"]["message"]
    assert ("allow" in headers) == (status == 405)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/", "/health", "/healthz", "/health/"])
def test_every_get_also_has_a_head(server: Framehost, path: str) -> None:
    """A probe may ask with HEAD and with a trailing slash: same status, no body, no redirect."""
    line = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, headers, content = exchange(server, line.encode())
    assert status == 200
    assert int(headers["content-length"]) > 0
    assert content == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"this is not http\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
        b"BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: minus one\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["words", "tls", "method", "version", "length", "header", "two lengths"],
)
def test_what_is_no_http_gets_a_json_400(server: Framehost, sent: bytes) -> None:
    """Also an answer of the parser is JSON with a request id, and no traceback of it fills the log."""
    before = len(server.lines)
    status, headers, content = exchange(server, sent)
    assert status == 400
    assert headers["content-type"].startswith("application/json")
    assert headers["x-request-id"]
    assert detail(content)["message"].startswith("this is not an HTTP request")
    assert not any("Traceback" in line for line in server.lines[before:])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (b"X: " + b"y" * 20_000 + b"\r\n", "each header field have at most 8190 bytes"),
        (b"".join(b"X-%d: y\r\n" % number for number in range(200)), "at most 128 header fields"),
    ],
    ids=["long", "many"],
)
def test_a_head_that_is_too_large_is_told_the_limit(server: Framehost, fields: bytes, words: str) -> None:
    """It is HTTP, and what is too much of it has a number."""
    status, _, content = exchange(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\n")
    assert status == 400
    assert words in detail(content)["message"]


def test_a_broken_chunk_is_the_clients_error(server: Framehost) -> None:
    """A chunk size that is none, in the middle of a body."""
    status, _, _ = exchange(server, head("Transfer-Encoding: chunked") + b"5\r\n{    \r\nzz\r\n")
    assert status == 400


@pytest.mark.parametrize(
    ("given", "echoed"),
    [("mine-1", True), ("a/b:c=1+2.3_4", True), ("x" * 128, True), ("x" * 129, False), ("with space", False)],
)
def test_a_request_id_is_echoed_when_it_is_sane(server: Framehost, given: str, echoed: bool) -> None:
    """The client's own label comes back on both headers, else one of ours, on errors too."""
    for answer in (server.decide("x", x_request_id=given), server.post(b"{", x_request_id=given)):
        assert (answer.headers["x-request-id"] == given) is echoed
        assert answer.headers["x-typesafe-request-id"] == answer.headers["x-request-id"]


# Many at once


def test_two_hundred_connections_at_once(server: Framehost) -> None:
    """Every one gets its own answer."""
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda number: server.decide({"tag": str(number)}), range(200)))
    assert [answer.status for answer in answers] == [200] * 200
    assert [answer.json["x_toy"]["tag"] for answer in answers] == [str(number) for number in range(200)]


def test_a_full_queue_names_its_budget_and_other_routes_are_free(runtime: Path) -> None:
    """429 with Retry-After as the first byte; health, models and a bad body still get their own answer."""
    until = runtime / "until"
    config = configuration(runtime / "c.toml", {"toy": {"max_requests": 2, "max_cost": 500}})
    with running(runtime, config=config) as server:
        first = server.soon({"op": "wait", "until": str(until)})
        server.running()
        assert server.decide("x" * 500).status == 413, "above the whole budget: waiting does not help"
        second = server.decide("x" * 450)
        assert second.status == 429
        assert "toy cost" in second.json["detail"]["message"]
        third = server.soon("short")
        server.queued(1)
        fourth = server.decide("x")
        assert fourth.status == 429
        assert fourth.json["detail"]["error_type"] == "rate_limit_error"
        assert "toy requests" in fourth.json["detail"]["message"]
        assert int(fourth.headers["retry-after"]) >= 1
        assert server.post(b"{}").status == 422, "bad input is bad input, also when the queue is full"
        assert server.get("/v1/models").status == server.get("/health").status == 200
        until.touch()
        assert first.result(30).status == third.result(30).status == 200
        server.wait(server.idle, "idle")


def test_liveness_while_a_body_of_maximum_size_is_read(runtime: Path) -> None:
    """8 MiB of one string, unpacked, parsed and prepared, and the loop still turns in between."""
    with running(runtime) as server:
        large = server.soon("x" * (8 * 2**20 - 1000))
        probes = 0
        while not large.done():
            assert server.get("/healthz").status == 200
            probes += 1
        assert large.result(30).status == 200
        assert probes >= 2
