"""The call that an executor is given, without a host around it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeCall:
    """A call that is cancelled after `looks` looks at it."""

    looks: int = 10**9
    remaining_ms: int | None = None

    @property
    def cancelled(self) -> bool:
        self.looks -= 1
        return self.looks < 0
