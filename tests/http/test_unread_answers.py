"""Clients that do not read: what they are owed is bounded, has its time, and belongs to the drain of a stop."""

from __future__ import annotations

import asyncio
import socket

from frontend import limits
from frontend.serving.management import until_idle
from tests.helpers.fake_host import until
from tests.http.main_port import Main


class Silent:
    """A client that sends and never reads, with little room in the kernel."""

    def __init__(self, main: Main) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", int(main.url.rpartition(":")[2])))
        self.socket.setblocking(False)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def rest(self) -> bytes:
        """Everything that comes until the connection ends."""
        received = bytearray()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(20):
                while more := await loop.sock_recv(self.socket, 1 << 16):
                    received += more
        except ConnectionResetError:
            received += b"(reset)"
        return bytes(received)


async def test_an_answer_that_is_not_read_has_its_time_and_then_its_connection_is_aborted(main: Main) -> None:
    """It counts against the connection meanwhile, and its memory is back afterwards."""
    now = [0.0]
    main.server.clients._clock = lambda: now[0]
    silent = Silent(main)
    for _ in range(400):
        await silent.send(b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until(lambda: main.server.clients.unwritten() == 1, "it does not read")
    (connection,) = (client for client in main.server.clients._by_activity if client.unwritten())
    held = connection.unwritten()
    main.server.clients.sweep()
    await asyncio.sleep(0)
    assert connection.unwritten() == held, "no further answer is made while this one is not read"
    assert held < 1024 * 1024
    now[0] += limits.WRITE_S
    main.server.clients.sweep()
    await until(lambda: main.server.clients.unwritten() == 0, "aborted")
    assert main.server.clients.report()["aborted"] == 1
    assert (await main.answered()).status == 200
    silent.socket.close()


async def test_pipelined_requests_of_a_client_that_reads_are_all_answered(main: Main) -> None:
    """Back-pressure is no refusal."""
    silent = Silent(main)
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    await silent.send(asked * 300 + last)
    assert (await silent.rest()).count(b"200 OK") == 301
    silent.socket.close()


async def test_a_stop_with_nothing_to_write_waits_for_nothing(main: Main) -> None:
    """Also without a budget, and with idle connections."""
    assert (await main.answered()).status == 200
    assert await until_idle(main.server, 0.0)


async def test_a_stop_waits_for_answers_that_are_being_read(main: Main) -> None:
    """The drain is over when the last byte has left, and not before; without a reader its budget ends it."""
    silent = Silent(main)
    for _ in range(400):
        await silent.send(b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until(lambda: main.server.clients.unwritten() == 1, "it does not read")
    assert not await until_idle(main.server, 0.1)
    stop = asyncio.create_task(until_idle(main.server, 20))
    rest = asyncio.create_task(silent.rest())
    assert await stop
    rest.cancel()
    await asyncio.wait([rest])
    silent.socket.close()
