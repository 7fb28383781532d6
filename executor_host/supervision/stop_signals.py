"""SIGTERM and SIGINT from the first code of `serve` to its last: none of them ends it in between the lines. SIGHUP
never ends it: it has the configuration file read again, once the server runs.

    install ─▶ kept ─▶ tell ─▶ told, each one ─▶ ignore ─▶ ignored until the process is gone

A signal that is not taken would end the process with the status of a kill: while its modules are imported, and after
its last line has said another status. The handlers of an event loop do neither; they begin and end with the loop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """The requests to stop of this process. All methods belong to the main thread."""

    def __init__(self) -> None:
        self._kept = 0
        self._tell: Callable[[], None] | None = None
        self._reload: Callable[[], None] | None = None

    def install(self) -> None:
        """From now on a signal is kept, until a handler wants to be told. Again: nothing."""
        for number in NUMBERS:
            signal.signal(number, self._take)
        signal.signal(signal.SIGHUP, self._hang_up)

    def tell(self, told: Callable[[], None], reload: Callable[[], None]) -> None:
        """Call `told` for each signal: for those that were kept now, for the others between two bytecodes of the main
        thread, wherever that is. `reload` for each SIGHUP from now on: before, the file was just being read."""
        self._tell, self._reload = told, reload
        kept, self._kept = self._kept, 0
        for _ in range(kept):
            told()

    def ignore(self) -> None:
        """Whatever comes now comes too late to change how the process ends."""
        for number in (*NUMBERS, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._reload is not None:
            self._reload()

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._tell is None:
            self._kept += 1
        else:
            self._tell()


OURS = StopSignals()
"""A process has one set of handlers."""
