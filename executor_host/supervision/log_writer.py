"""Where the log goes: a thread of its own writes it, so that no loop waits for its reader.

A pipe whose reader sleeps (a paused pager, a hung disk behind `tee`, a stalled log driver) takes nothing more and says
nothing. What comes meanwhile is kept up to a bound; beyond that, and when the file is full or its reader has left,
lines are lost, and the log itself says how many as soon as it is written again.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque

MAX_KEPT_BYTES = 2**20
"""What is kept for a reader that does not read, about ten thousand lines."""


class LogWriter:
    """A file descriptor as a stream: `write` never blocks and never raises. The descriptor stays open."""

    def __init__(self, descriptor: int, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self.lost = 0
        """Lines that are lost."""
        self._descriptor = descriptor
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[tuple[int, bytes]] = deque()
        """Not yet handed to the system, each with how many lines were lost before it. The first is being written."""
        self._kept_bytes = 0
        self._unsaid = 0
        """Of the lost, those that the log has not been told of."""
        self._closing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, text: str) -> int:
        """Keep `text` for the thread, or count its lines as lost. From any thread."""
        data = text.encode("utf-8", "replace")
        with self._changed:
            if self._kept_bytes + len(data) > self._max_kept_bytes:
                self._lose(data)
                return len(text)
            missed, self._unsaid = self._unsaid, 0
            self._kept.append((missed, data))
            self._kept_bytes += len(data)
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back on purpose."""

    def close(self, timeout_s: float) -> None:
        """Wait until all is written, at most `timeout_s` seconds: the end of a process does not wait for a reader."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            end = time.monotonic() + timeout_s
            while self._kept and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _lose(self, data: bytes) -> None:
        lines = data.count(b"\n")
        self.lost += lines
        self._unsaid += lines

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._kept and not self._closing:
                    self._changed.wait()
                if not self._kept:
                    return
                missed, data = self._kept[0]
            notice = b"[framehost] %d lines of this log were lost: it was not taken\n" % missed if missed else b""
            written = self._write(notice + data)
            with self._changed:
                self._kept.popleft()
                self._kept_bytes -= len(data)
                if not written:
                    self._unsaid += missed
                    self._lose(data)
                self._changed.notify_all()

    def _write(self, data: bytes) -> bool:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # someone else has made it non-blocking; it is theirs, too
                select.select([], [self._descriptor], [])
            except OSError:
                return False
        return True

    def __repr__(self) -> str:
        return f"<LogWriter {self._descriptor} kept={self._kept_bytes} lost={self.lost}>"
