"""What a child writes: read for as long as it lives, passed on line by line, and the tail is kept.

A crashed process says why in its last lines or nowhere. One that prints without an end must not keep the supervisor
from its other work: beyond a number of lines a second its lines are counted and left out, and it is read in steps with
pauses, in which it waits for a moment on its full pipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

TAIL_BYTES = 64 * 1024
"""How much of a process's output is kept for its death report."""

LINE_BYTES = 8 * 1024
"""A longer line is passed on in pieces; a child that never writes a newline must not fill our memory."""

LINES_PER_S = 500
"""What one process may log. A host that loads a large model prints some hundreds of lines in all."""

PAUSE_S = 0.02
"""Between two readings of one that prints more: what a pipe holds, 64 KiB, is 3 MiB a second then."""


class Tail:
    """The last bytes of an endless stream, in bounded memory."""

    def __init__(self, limit: int = TAIL_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]

    def text(self) -> str:
        """The tail, undecodable bytes replaced."""
        return bytes(self._data[-self._limit :]).decode("utf-8", "replace").strip()


class Timing(Protocol):
    """What of an event loop is needed."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> object: ...


class Output(asyncio.SubprocessProtocol):
    """What a child writes, and the two ends: of the process, and of its output.

    They are separate facts. A grandchild may hold the pipe open long after the process is gone, and asyncio's
    own `Process.wait` returns only after both.
    """

    def __init__(self, say: Callable[[str], None], loop: Timing) -> None:
        self.tail = Tail()
        self.exited = asyncio.Event()
        self.ended = asyncio.Event()
        self._say = say
        self._loop = loop
        self._transport: asyncio.SubprocessTransport | None = None
        self._pending = b""
        self._second = loop.time()
        """When the present second began, for the number of lines in it."""
        self._lines = 0
        self._left_out = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.tail.add(data)
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        pieces = [line[start : start + LINE_BYTES] for line in lines for start in range(0, len(line) or 1, LINE_BYTES)]
        for piece in pieces[: self._allowed()]:
            self._tell(piece)
        self._lines += len(pieces)
        if self._lines > LINES_PER_S:
            self._left_out += min(len(pieces), self._lines - LINES_PER_S)
            self._pause(fd)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._tell_left_out()
        if self._pending:
            self._tell(self._pending)
            self._pending = b""
        self.ended.set()

    def process_exited(self) -> None:
        self.exited.set()

    def _allowed(self) -> int:
        """How many more lines may be passed on now."""
        now = self._loop.time()
        if now - self._second >= 1.0:
            self._second, self._lines = now, 0
            self._tell_left_out()
        return max(0, LINES_PER_S - self._lines)

    def _tell_left_out(self) -> None:
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._say(f"({left_out} lines of it were left out here: more than {LINES_PER_S} a second)")

    def _pause(self, fd: int) -> None:
        pipe = None if self._transport is None else self._transport.get_pipe_transport(fd)
        if isinstance(pipe, asyncio.ReadTransport) and pipe.is_reading():
            pipe.pause_reading()
            self._loop.call_later(PAUSE_S, pipe.resume_reading)

    def _tell(self, line: bytes) -> None:
        self._say(line.decode("utf-8", "replace").rstrip("\r"))
