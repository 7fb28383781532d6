"""A closed loop of connections in this process, where more is asked of a client than wrk tells: which answer, and when.

It takes more of the two cores than wrk does, so it is not for finding out how fast a server is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from benchmarks.servers import HOST, ServerFailed

Answered = tuple[float, float]
"""When an answer was there, on the monotonic clock, and how many seconds it had taken."""


async def loop(port: int, connections: int, bodies: Iterator[bytes], over: Callable[[], bool]) -> list[Answered]:
    """Ask with so many connections until it is `over`; each sends its next request when it has its answer. Raises
    `ServerFailed` for anything but a 200."""
    answered: list[Answered] = []

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        while not over():
            body = next(bodies)
            head = (
                "POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
            )
            sent = time.monotonic()
            writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
            fields = await reader.readuntil(b"\r\n\r\n")
            length = int(fields.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            content = await reader.readexactly(length)
            if not fields.startswith(b"HTTP/1.1 200 "):
                raise ServerFailed(f"{fields[:40]!r}: {content[:300]!r}")
            now = time.monotonic()
            answered.append((now, now - sent))
        writer.close()

    await asyncio.gather(*(ask() for _ in range(connections)))
    return answered
