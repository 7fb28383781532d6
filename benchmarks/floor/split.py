"""The floor of framehost's shape: an aiohttp front, ZeroMQ over ipc, msgpack, one worker, and nothing else.

It validates nothing, has no deadlines, no cancellation, no admission and loses what a dead worker had. What
it costs is what the two processes and the transport cost; what framehost takes beyond it is framehost's own.

`--window 0` is pipelined: every request is sent at once and waits in the socket. `--window 1` keeps one unit
at the worker and the rest in a queue of the front, as framehost does, because only what is still in the front
can be cancelled, expired and kept when the worker dies. The next unit leaves in the callback of the reply.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import zmq
from aiohttp import web

from benchmarks.floor import loop

WORKER = b"worker"


class Link:
    """The front's ROUTER, read through its descriptor without a task."""

    def __init__(self, address: str, window: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.bind(address)
        self._window = window or sys.maxsize
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._calls: dict[bytes, asyncio.Future[bytes]] = {}
        self._outstanding = 0
        self._last = 0

    def greet(self) -> None:
        """Wait for the worker, then read without blocking."""
        self._socket.recv_multipart()
        self._loop.add_reader(self._socket.FD, self._read)

    def call(self, body: bytes) -> asyncio.Future[bytes]:
        """The reply to `body`, some time."""
        self._last += 1
        call = b"%d" % self._last
        future = self._calls[call] = self._loop.create_future()
        if self._outstanding < self._window:
            self._send(call, body)
            self._read()  # the descriptor is edge-triggered: sending may have swallowed the edge
        else:
            self._waiting.append((call, body))
        return future

    def _send(self, call: bytes, body: bytes) -> None:
        self._outstanding += 1
        self._socket.send_multipart((WORKER, call, body), zmq.NOBLOCK)

    def _read(self) -> None:
        while int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            _, call, body = self._socket.recv_multipart(zmq.NOBLOCK)
            self._outstanding -= 1
            if self._waiting:
                self._send(*self._waiting.popleft())
            future = self._calls.pop(call)
            if not future.done():
                future.set_result(body)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--window", type=int, default=0, help="units at the worker at a time, 0 for no bound")
    parser.add_argument("--busy-ms", type=float, default=0.0)
    loop.add_argument(parser)
    arguments = parser.parse_args()
    link = web.AppKey("link", Link)

    async def worker(app: web.Application) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory() as directory:
            address = f"ipc://{Path(directory) / 'floor'}"
            app[link] = Link(address, arguments.window)
            child = subprocess.Popen(  # noqa: ASYNC220 - once, before the first request
                [sys.executable, "-m", "benchmarks.floor.worker", address, str(arguments.busy_ms / 1000)]
            )
            app[link].greet()
            yield
            child.terminate()
            child.wait()

    async def handle(request: web.Request) -> web.Response:
        question: dict[str, Any] = json.loads(await request.read())
        return web.json_response(msgpack.unpackb(await request.app[link].call(msgpack.packb(question))))

    app = web.Application()
    app.cleanup_ctx.append(worker)
    app.router.add_post("/v1/systemone", handle)
    web.run_app(app, host="127.0.0.1", port=arguments.port, print=None, access_log=None, loop=loop.make(arguments))


if __name__ == "__main__":
    main()
