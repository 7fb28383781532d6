"""Bytes that no route can make sense of: each gets one JSON answer at once, and none is an error in the log."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import sys
import zlib
from collections.abc import Iterator

import pytest

from frontend import limits
from frontend.errors import BadEncoding
from frontend.http import encodings
from tests.helpers.fake_host import until
from tests.http.conftest import Edge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEAD = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
PLAIN = b'{"state": "x"}'
PACKED = gzip.compress(PLAIN)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whoever fills the log fills the disk: what a client sends is never worth a warning."""
    yield
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]


def sized(encoding: bytes, body: bytes, more: int = 0) -> bytes:
    return HEAD + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body) + more) + body


def last(sent: bytes) -> bytes:
    """The same request as the last of its connection."""
    return sent.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")


def error(answer: bytes, status: int) -> str:
    """The message of the last response, which has everything that each of ours has."""
    head, _, body = answer[answer.rindex(b"HTTP/1.") :].partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert b"\r\nContent-Type: application/json" in head
    assert b"\r\nx-request-id: " in head
    message: str = json.loads(body)["detail"]["message"]
    assert "\n" not in message
    return message


# Encodings


@pytest.mark.parametrize(
    "sent",
    [
        sized(b"gzip", PLAIN),
        sized(b"gzip", PLAIN, more=100),
        sized(b"gzip", PACKED + b"and some more"),
        sized(b"gzip", PACKED[:-8]),
        sized(b"gzip", PACKED[:-1]),
        sized(b"gzip", PACKED[:5]),
        sized(b"gzip", PACKED[:-8] + bytes(8)),
        sized(b"gzip", gzip.compress(b"") * 2000),
        sized(b"zstd", PLAIN),
        sized(b"zstd", zstd.compress(PLAIN)[:-1]),
        sized(b"deflate", PLAIN),
        sized(b"deflate", zlib.compress(PLAIN)[:-6]),
        HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n" + PLAIN + b"\r\n0\r\n\r\n",
    ],
    ids=[
        "gzip",
        "gzip and waiting",
        "trailing",
        "no trailer",
        "trailer cut",
        "header cut",
        "checksum",
        "members",
        "zstd",
        "zstd cut",
        "deflate",
        "deflate cut",
        "chunked",
    ],
)
async def test_a_body_that_does_not_unpack_is_the_clients_error(edge: Edge, sent: bytes) -> None:
    """400 in one line, and nothing of it is met again after the answer."""
    assert "could not be read" in error(await edge.ask(last(sent)), 400)
    assert edge.held() == (0, 0)


@pytest.mark.parametrize("late", [False, True])
async def test_a_body_that_does_not_unpack_at_a_route_that_does_not_read_it(edge: Edge, late: bool) -> None:
    """It is dropped as it came, and the next request on the connection has its answer."""
    sent = sized(b"gzip", b"xxxxx").replace(b"/v1/systemone", b"/nowhere")
    reader, writer = await edge.connect(sent[:-5] if late else sent)
    answer = await reader.readuntil(b"}}")
    error(answer, 404)
    writer.write((sent[-5:] if late else b"") + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"HTTP/1.1 200 " in await reader.read()
    writer.close()


@pytest.mark.parametrize(
    "frame",
    [
        # Its head says so many bytes; an empty last block follows on none, or on three.
        b"\x28\xb5\x2f\xfd\x20\x01" + b"\x01\0\0",
        b"\x28\xb5\x2f\xfd\x20\x05" + b"\x18\0\0abc" + b"\x01\0\0",
    ],
    ids=["none of one", "three of five"],
)
def test_where_a_zstd_frame_is_cut_does_not_decide_on_it(frame: bytes) -> None:
    """One that has fewer bytes than its head says is refused, in whatever pieces it comes."""

    def unpack(cut: int) -> list[bytes]:
        unpacker = encodings.Unpacker("zstd")
        return [piece for at in range(0, len(frame), cut) for piece in unpacker.feed(frame[at : at + cut])]

    for cut in range(1, len(frame) + 1):
        with pytest.raises(BadEncoding, match="it is not zstd"):
            unpack(cut)


PIECES = json.dumps({"state": "x" * 3_000, "questions": []}).encode()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(PIECES)),
        ("gzip", gzip.compress(PIECES[:7]) + gzip.compress(PIECES[7:])),
        ("deflate", zlib.compress(PIECES)),
        ("deflate", zlib.compress(PIECES, wbits=-15)),
        ("zstd", zstd.compress(PIECES)),
        ("zstd", zstd.compress(PIECES[:7]) + zstd.compress(PIECES[7:])),
    ],
    ids=["gzip", "members", "deflate", "raw", "zstd", "frames"],
)
@pytest.mark.parametrize("step", [1, 1000, encodings.STEP_BYTES])
@pytest.mark.parametrize("sent", [1, 10_000])
async def test_a_packed_body_comes_out_whole(
    monkeypatch: pytest.MonkeyPatch, encoding: str, packed: bytes, step: int, sent: int
) -> None:
    """In whatever pieces it comes, and in whatever pieces it is unpacked."""
    monkeypatch.setattr(encodings, "STEP_BYTES", step)
    unpacker = encodings.Unpacker(encoding)
    out = [piece for at in range(0, len(packed), sent) for piece in unpacker.feed(packed[at : at + sent])]
    unpacker.end()
    assert b"".join(out) == PIECES
    assert max(map(len, out)) <= step


async def test_an_encoding_the_library_cannot_read_is_415_without_advice(edge: Edge) -> None:
    """What to install here is not the client's affair."""
    message = error(await edge.ask(last(sized(b"br", PLAIN))), 415)
    assert "gzip" in message
    assert "install" not in message


# Targets and expectations


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"OPTIONS *", 404),
        (b"CONNECT x:80", 404),
        (b"GET http://x", 404),
        (b"GET /a%0ab", 404),
        (b"GET /a%0d%0ab", 404),
        (b"POST /v1/systemone%0a", 404),
        (b"GET /%ff%00", 404),
        (b"TRACE /healthz", 405),
    ],
)
async def test_a_target_that_no_route_has_is_said_in_json(edge: Edge, line: bytes, status: int) -> None:
    """Also one that is no path, or has a line's end in it."""
    answer = await edge.ask(line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    error(answer, status)
    word = "not_found_error" if status == 404 else "method_not_allowed"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == word


@pytest.mark.parametrize("line", [b"POST /v1/systemone", b"GET /healthz", b"GET /nowhere", b"OPTIONS *"])
async def test_an_expectation_that_nobody_has_is_417_in_json(edge: Edge, line: bytes) -> None:
    """The header is about the connection, so it is refused whatever the path."""
    answer = await edge.ask(line + b" HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\nConnection: close\r\n\r\n")
    assert "200-ok" in error(answer, 417)
    assert answer.count(b"HTTP/1.") == 1


@pytest.mark.parametrize("value", ["\uff11\uff12", "\u0661\u0662", "1_000", "+5", "1\u00a0", "0x5"])
async def test_a_timeout_header_is_ascii_digits(edge: Edge, value: str) -> None:
    """What Python also takes for a number is none."""
    field = f"x-framehost-timeout-ms: {value}\r\nConnection: close\r\n".encode()
    assert "x-framehost-timeout-ms" in error(await edge.ask(HEAD + field + b"Content-Length: 2\r\n\r\n{}"), 400)


@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        (b"POST /v1/systemone", b"Content-Length: 99999999\r\n", 413),
        (b"POST /v1/systemone", b"Content-Length: 2\r\nContent-Encoding: compress\r\n", 415),
        (b"POST /v1/systemone", b"Content-Length: 2\r\nx-framehost-timeout-ms: soon\r\n", 400),
        (b"POST /nowhere", b"Content-Length: 2\r\n", 404),
        (b"POST /health", b"Content-Length: 2\r\n", 405),
    ],
)
async def test_a_body_that_is_not_wanted_is_not_asked_for(edge: Edge, line: bytes, fields: bytes, status: int) -> None:
    """A client that asks first is told the end of it, and not to go on."""
    answer = await edge.ask(line + b" HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + fields + b"\r\n")
    error(answer, status)
    assert answer.count(b"HTTP/1.") == 1


async def test_a_body_that_is_wanted_is_asked_for_once(edge: Edge) -> None:
    """And then read."""
    reader, writer = await edge.connect(HEAD + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert (await reader.readline()).startswith(b"HTTP/1.1 422 ")
    writer.close()


# Framing


@pytest.mark.parametrize("broken", [b"zz\r\n", b"ffffffffffffffffff\r\n", b"1\r\n{}\r\n", b"1\n{\n"])
@pytest.mark.parametrize("before", [b"", b"1\r\n{\r\n"])
async def test_framing_that_breaks_after_the_headers_is_400_at_once(edge: Edge, before: bytes, broken: bytes) -> None:
    """What comes after it cannot be a body any more, so nobody waits for it."""
    reader, writer = await edge.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + before)
    async with asyncio.timeout(limits.UPLOAD_IDLE_S / 2):
        while edge.held()[0] == 0:
            await asyncio.sleep(0)
        writer.write(broken)
        answer = await reader.read()
    assert answer.count(b"HTTP/1.") == 1
    assert "could not be read" in error(answer, 400)
    assert edge.held() == (0, 0)
    writer.close()


async def test_framing_that_breaks_at_a_route_that_does_not_read_the_body(edge: Edge) -> None:
    """The route has answered; the connection ends, because nothing after the fault is a request."""
    reader, writer = await edge.connect(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    answer = await reader.readuntil(b"}}")
    writer.write(b"zz\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(limits.UPLOAD_IDLE_S / 2):
        answer += await reader.read()
    error(answer, 404)
    assert answer.count(b"HTTP/1.") == 1
    writer.close()


async def test_framing_that_breaks_in_a_request_behind_another(edge: Edge) -> None:
    """The first is answered as if it were alone; the second is 400."""
    first = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    reader, writer = await edge.connect(first + HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    writer.write(b"zz\r\n")
    async with asyncio.timeout(limits.UPLOAD_IDLE_S / 2):
        answer = await reader.read()
    error(answer, 400)
    writer.close()


async def test_many_requests_behind_one_whose_body_was_late_are_all_answered(edge: Edge) -> None:
    """The library stops parsing when many wait, and goes on by what happens to the bodies before them."""
    request = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(PLAIN), PLAIN)
    reader, writer = await edge.connect(request[: -len(PLAIN)])
    await until(lambda: edge.held()[0] == 1, "the body is waited for")
    writer.write(PLAIN + 39 * request + last(request))
    async with asyncio.timeout(30):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 422") == 41
