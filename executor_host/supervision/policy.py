"""When a dead process is started again: at once, then ever later, and not for ever unless it has proven itself. Pure;
the clock is passed in.

    death before the first readiness    restarts in a row are counted; when they are used up there is no next
    death after it                      the same delays, and always a next (`endless`: a host; a front has its budget)
    death that a request caused         a next at once; nothing is used up, it is counted apart

A host that ends with RETIRED has answered the request that it ends for: another request must not pay for it.
"""

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

    endless: bool = False
    """Whether what has been ready once is started again for ever."""


class RestartPolicy:
    """Counts the deaths of one slot."""

    def __init__(self, limits: RestartLimits | None = None) -> None:
        self._limits = limits or RestartLimits()
        self.restarts = 0
        """Restarts since the start, for status; never forgotten."""
        self.request_deaths = 0
        """Of these, those that a request caused."""
        self._in_a_row = 0
        self._next_delay_s = 0.0
        self._trial = False
        self._proven = False

    def begin(self, *, trial: bool = False) -> None:
        """It was decided to try, or to try again: the budget is whole. `trial`: one that ends before it is ready
        is not followed by another."""
        self._trial = trial
        self._in_a_row = 0
        self._next_delay_s = 0.0

    def ready(self) -> None:
        """A process is ready: what has worked once is worth trying again."""
        self._trial = False
        self._proven = True

    @property
    def proven(self) -> bool:
        """Whether a process has ever been ready."""
        return self._proven

    def after_death(self, *, status: int | None, ready_for_s: float | None) -> float | None:
        """Seconds to wait before the next start, or None when there will be none.

        `ready_for_s` is how long the dead process had been ready, None if it never was.
        """
        endless = self._limits.endless and self._proven
        if self._trial or (status == HostExit.CONFIGURATION and not endless):
            return None
        if status == HostExit.RETIRED and ready_for_s is not None:
            self.restarts += 1
            self.request_deaths += 1
            return 0.0
        if ready_for_s is not None and ready_for_s >= self._limits.stable_s:
            self._in_a_row = 0
            self._next_delay_s = 0.0
        if self._in_a_row >= self._limits.budget and not endless:
            return None
        delay = self._next_delay_s
        # Step by step and cut each time: a power of the whole row would overflow.
        later = delay * self._limits.factor if delay else self._limits.first_delay_s
        self._next_delay_s = min(later, self._limits.longest_delay_s)
        self._in_a_row += 1
        self.restarts += 1
        return delay

    def next_step(self, status: int | None, delay_s: float | None) -> str:
        """What follows a death, for people. `delay_s`: as `after_death` said."""
        if delay_s is not None:
            return f"starting again {f'in {delay_s:g} s' if delay_s else 'now'}"
        if self._trial:
            return "its start is given up"
        if status == HostExit.CONFIGURATION:
            return "starting it again would not help"
        return (
            f"not started again: restarts = {self._limits.budget} in a row are used up "
            "(a minute of being ready makes them whole)"
        )

    def exchange_counts(self, other: RestartPolicy) -> None:
        """Let what has been counted stay with a replica whose host is in another slot from now on."""
        self.restarts, other.restarts = other.restarts, self.restarts
        self.request_deaths, other.request_deaths = other.request_deaths, self.request_deaths

    def __repr__(self) -> str:
        return f"<RestartPolicy restarts={self.restarts} in_a_row={self._in_a_row}/{self._limits.budget}>"
