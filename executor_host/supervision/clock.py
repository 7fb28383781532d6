"""The time that counts for limits: seconds in which this process was awake and looked.

When everything is frozen (a paused container, a laptop's lid), each limit would seem to be over at the thaw although
no process had a chance to keep it. Here time goes on for a little after each look, and then stands still until the
next.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_S = 2.0
"""What may lie between two looks and counts in full: several times what usually does, so that a busy machine is not
taken for a frozen one."""


class AwakeClock:
    """Call it for the time in seconds. `look` has to be called all the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._awake_s = 0.0

    def __call__(self) -> float:
        return self._awake_s + min(self._clock() - self._looked, LONGEST_S)

    def look(self) -> None:
        """We are awake."""
        now = self._clock()
        self._awake_s += min(now - self._looked, LONGEST_S)
        self._looked = now

    def __repr__(self) -> str:
        return f"<AwakeClock {self():.3f}>"
