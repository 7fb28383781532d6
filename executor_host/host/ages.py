"""How old a frame is when it is looked at, although two processes need not share a clock.

Every EXECUTE says when its front sent it, by the front's clock. The difference to our own clock has two parts: how
far the clocks are apart, which stays, and how long the frame was on its way, which is nearly nothing for the quickest
one. So the least difference that a front has shown is taken for the clocks, and what a frame has above it is its age:
it waited in a socket, because we were stopped or behind. A front shows a first one with its HELLO.
"""

from __future__ import annotations

import time
from typing import Final

DRIFT: Final = 1e-4
"""Two clocks part by less than this: 100 millionths is what a bad quartz does, and 9 s in a day. What could be drift is
never counted as age, so a unit may be executed in vain and is never refused in error."""


class Ages:
    """What each front's quickest frame has shown. Written by both threads of a host, a whole entry at a time."""

    def __init__(self) -> None:
        self._least: dict[str, tuple[float, float]] = {}

    def age_ms(self, epoch: str, sent_ms: int, now_ms: float | None = None) -> int:
        """Milliseconds that a frame of the front `epoch` has waited, at least 0. `now_ms`: our clock, for tests."""
        now = time.monotonic() * 1000 if now_ms is None else now_ms
        apart = now - sent_ms
        known = self._least.get(epoch)
        if known is not None:
            least, at = known
            age = apart - least - DRIFT * (now - at)
            if age > 0:
                return int(age)
        self._least[epoch] = (apart, now)
        return 0
