"""What the supervisor says to people: prefixed lines, and one live line on a terminal while something loads."""

from __future__ import annotations

import shutil
import time
from typing import Protocol

BAR_CELLS = 24
REDRAW_S = 0.05
"""A terminal needs no more; a loading host may report thousands of times a second."""


class Stream(Protocol):
    """Where it goes, as text files are."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...

    def isatty(self) -> bool: ...


class Console:
    """Writes to one stream. On a terminal the progress line stays last and is redrawn; elsewhere each new
    stage is one plain line, so that a log file is not filled with redraws.
    """

    def __init__(self, stream: Stream) -> None:
        """`stream`: a `LogWriter` in a server, which must not wait for its reader."""
        self._stream = stream
        self._live = self._stream.isatty()
        self._line = ""
        self._stages: dict[str, str] = {}
        self._drawn = 0.0

    def say(self, source: str, text: str) -> None:
        """One line of `source`: framehost itself, the front, or a host."""
        self._stream.write(f"{self._erasure()}[{source}] {text}\n{self._drawing()}")
        self._stream.flush()

    def progress(self, source: str, stage: str, fraction: float | None, note: str) -> None:
        """Where a loading host is. `fraction` 0..1, None when the end is not known."""
        if not self._live:
            if self._stages.get(source) != stage:
                self._stages[source] = stage
                self.say(source, f"{stage}{f': {note}' if note else ''}")
            return
        now = time.monotonic()
        if self._stages.get(source) == stage and now - self._drawn < REDRAW_S:
            return
        self._stages[source], self._drawn = stage, now
        erasure = self._erasure()
        bar = ""
        if fraction is not None:
            done = int(min(max(fraction, 0.0), 1.0) * BAR_CELLS)
            bar = f" {'█' * done}{'░' * (BAR_CELLS - done)} {fraction:4.0%}"
        # A line that wraps could not be taken back.
        self._line = f"[{source}] {stage}{bar} {note}"[: shutil.get_terminal_size().columns - 1]
        self._stream.write(erasure + self._drawing())
        self._stream.flush()

    def finished(self, source: str) -> None:
        """`source` no longer loads: its live line goes away."""
        self._stages.pop(source, None)
        if self._line.startswith(f"[{source}]"):
            self._stream.write(self._erasure())
            self._stream.flush()
            self._line = ""

    def _erasure(self) -> str:
        return "\r\x1b[K" if self._live and self._line else ""

    def _drawing(self) -> str:
        return self._line if self._live else ""
