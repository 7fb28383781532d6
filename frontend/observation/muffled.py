"""A log that a peer cannot fill: one line a second, with how many were left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 1.0


class Muffled:
    """Warnings of one source that could repeat without end."""

    __slots__ = ("_left_out", "_log", "_now", "_quiet_until")

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        """`now`: a clock that only rises, in seconds."""
        self._log = log
        self._now = now
        self._quiet_until = float("-inf")
        self._left_out = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Say it, or count it among those that are left out."""
        now = self._now()
        if now < self._quiet_until:
            self._left_out += 1
            return
        more = f" ({self._left_out} more of this host were left out)" if self._left_out else ""
        self._log.warning(text + "%s", *arguments, more)
        self._quiet_until, self._left_out = now + INTERVAL_S, 0
