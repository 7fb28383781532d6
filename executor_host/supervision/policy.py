"""When a dead process is started again: at once, then ever later, and not for ever. Pure; the clock is passed in."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.exits import HostExit


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """How patient the supervisor is. Times in seconds."""

    budget: int = 5
    """Restarts in a row before giving up. The first is immediate; five span about 8 s of trying."""

    first_delay_s: float = 0.5
    factor: float = 2.0
    longest_delay_s: float = 30.0
    stable_s: float = 60.0
    """Having been ready for this long, a process has proven itself: the budget is whole again."""


class RestartPolicy:
    """Counts the deaths of one slot."""

    def __init__(self, limits: RestartLimits | None = None) -> None:
        self._limits = limits or RestartLimits()
        self.restarts = 0
        """Restarts since the start, for status; never forgotten."""
        self._in_a_row = 0
        self._next_delay_s = 0.0

    def after_death(self, *, status: int | None, ready_for_s: float | None) -> float | None:
        """Seconds to wait before the next start, or None when there will be none.

        `ready_for_s` is how long the dead process had been ready, None if it never was.
        """
        if status == HostExit.CONFIGURATION:
            return None
        if ready_for_s is not None and ready_for_s >= self._limits.stable_s:
            self._in_a_row = 0
            self._next_delay_s = 0.0
        if self._in_a_row >= self._limits.budget:
            return None
        delay = self._next_delay_s
        # Step by step and cut each time: a power of the whole row would overflow.
        later = delay * self._limits.factor if self._in_a_row else self._limits.first_delay_s
        self._next_delay_s = min(later, self._limits.longest_delay_s)
        self._in_a_row += 1
        self.restarts += 1
        return delay

    def next_step(self, status: int | None, delay_s: float | None) -> str:
        """What follows a death, for people. `delay_s`: as `after_death` said."""
        if delay_s is not None:
            return f"starting again {f'in {delay_s:g} s' if delay_s else 'now'}"
        if status == HostExit.CONFIGURATION:
            return "starting it again would not help"
        return (
            f"not started again: restarts = {self._limits.budget} in a row are used up "
            "(a minute of being ready makes them whole)"
        )

    def renew(self) -> None:
        """Somebody has decided to try again: the budget is whole."""
        self._in_a_row = 0
        self._next_delay_s = 0.0

    def __repr__(self) -> str:
        return f"<RestartPolicy restarts={self.restarts} in_a_row={self._in_a_row}/{self._limits.budget}>"
