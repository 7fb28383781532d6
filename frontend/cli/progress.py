"""One line on a terminal that says how far something is; nothing anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

CELLS = 24
REDRAW_S = 0.1


class ProgressBar:
    """`done` of `total`, and as a rate what was done since it was made. A stream that takes nothing is left alone."""

    def __init__(self, stream: TextIO, total: int, done: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._total, self._done, self._clock = stream, total, done, clock
        self._live = stream is not None and stream.isatty()
        self._begun, self._before, self._failed = clock(), done, 0
        self._drawn = -REDRAW_S
        self._draw()

    def advance(self, *, failed: bool) -> None:
        """One more is done."""
        self._done += 1
        self._failed += failed
        self._draw()

    def close(self) -> None:
        """Take the line away."""
        if self._live:
            self._write("\r\x1b[K")

    def _draw(self) -> None:
        now = self._clock()
        if not self._live or now - self._drawn < REDRAW_S:
            return
        self._drawn = now
        self._write(f"\r\x1b[K{self.line(now)}")

    def line(self, now: float) -> str:
        """What is shown at `now` on the clock."""
        part = self._done / self._total if self._total else 1.0
        full = int(part * CELLS)
        elapsed = now - self._begun
        rate = (self._done - self._before) / elapsed if elapsed > 0 else 0.0
        left = f", {_time((self._total - self._done) / rate)} left" if rate else ""
        errors = f", {self._failed} errors" if self._failed else ""
        bar = "█" * full + "░" * (CELLS - full)
        return f"{bar} {part:4.0%}  {self._done} of {self._total}, {rate:.0f}/s{left}{errors}"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._live = False


def _time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
