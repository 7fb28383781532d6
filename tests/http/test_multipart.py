"""Bodies in parts, which clients send when there are images: refused on their headers."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.http.conftest import Edge

PATHS = [
    "/v1/systemone",
    "/systemone/",
    "/v1/decisions",
    "/decisions",
    "/v1beta/decisions",
    "/api/v1/systemone",
    "/api/alpha/decisions",
    "/alpha/decisions",
]


@pytest.mark.parametrize("path", PATHS)
async def test_parts_are_refused_before_they_are_read(edge: Edge, path: str) -> None:
    """400 that says why and what to send, in the dialect's own envelope, with an upload announced and none of it sent:
    nothing was asked for, waited for or admitted, and the connection is closed."""
    asked = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: Multipart/Form-Data; boundary=b",
        "Content-Length: 8000000",
        "Expect: 100-continue",
        "",
        "",
    ]
    reader, writer = await edge.connect("\r\n".join(asked).encode())
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        document = json.loads(await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0])))
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    text = json.dumps(document)
    assert "multipart/form-data" in text
    assert "text only" in text
    assert "application/json" in text
    assert ("detail" in document, "error" in document) == {
        "/v1/systemone": (True, False),
        "/systemone/": (True, False),
        "/v1/decisions": (False, True),
        "/decisions": (False, True),
        "/v1beta/decisions": (False, True),
    }.get(path, (True, True))
    assert edge.server.ingress.statistics().admitted == 0


async def test_what_is_no_form_is_read_as_json(edge: Edge) -> None:
    """curl says application/x-www-form-urlencoded when nobody tells it otherwise, and some callers say nothing."""
    for field in ("Content-Type: application/x-www-form-urlencoded\r\n", ""):
        asked = f"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}Content-Length: 2\r\n\r\n{{}}"
        assert b"the state is missing" in await edge.ask(asked.encode())
