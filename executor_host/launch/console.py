"""What the supervisor says to people: prefixed lines, and one live line on a terminal while something loads."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

BAR_CELLS = 24
REDRAW_S = 0.05
"""A terminal needs no more; a loading host may report thousands of times a second."""


class Console:
    """Writes to one stream. On a terminal the progress line stays last and is redrawn; elsewhere each new
    stage is one plain line, so that a log file is not filled with redraws.

    Never raises: a reader that has left or a disk that is full costs lines, which are counted, and not the
    server that wanted to say them.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._line = ""
        self._stages: dict[str, str] = {}
        self._drawn = 0.0
        self.lost = 0
        """Writes that the stream did not take."""

    def say(self, source: str, text: str) -> None:
        """One line of `source`: framehost itself, the front, or a host."""
        self._erase()
        self._write(f"[{source}] {text}\n")
        self._draw()
        self._flush()

    def progress(self, source: str, stage: str, fraction: float | None, note: str) -> None:
        """Where a loading host is. `fraction` 0..1, None when nobody knows the end."""
        if not self._live:
            if self._stages.get(source) != stage:
                self._stages[source] = stage
                self.say(source, f"{stage}{f': {note}' if note else ''}")
            return
        now = time.monotonic()
        if self._stages.get(source) == stage and now - self._drawn < REDRAW_S:
            return
        self._stages[source], self._drawn = stage, now
        self._erase()
        bar = ""
        if fraction is not None:
            done = int(min(max(fraction, 0.0), 1.0) * BAR_CELLS)
            bar = f" {'█' * done}{'░' * (BAR_CELLS - done)} {fraction:4.0%}"
        # A line that wraps could not be taken back.
        self._line = f"[{source}] {stage}{bar} {note}"[: shutil.get_terminal_size().columns - 1]
        self._draw()
        self._flush()

    def settled(self, source: str) -> None:
        """`source` no longer loads: its live line goes away."""
        self._stages.pop(source, None)
        if self._line.startswith(f"[{source}]"):
            self._erase()
            self._line = ""
            self._flush()

    def _erase(self) -> None:
        if self._live and self._line:
            self._write("\r\x1b[K")

    def _draw(self) -> None:
        if self._live and self._line:
            self._write(self._line)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            self.lost += 1

    def _flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += 1
