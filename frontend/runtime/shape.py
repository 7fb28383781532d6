"""What a unit is to a batch: with whom it may be sent, and how much of the room it takes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Given by the family with the unit."""

    key: Hashable
    """Only units of equal keys are sent together: layout, dtype, options; whatever the executor reads in one pass."""

    rows: int = 1
    """Rows of the pass that are this unit's."""

    longest: int = 1
    """Tokens of its longest row: all rows of a pass are padded to the longest of all."""

    size: int = 0
    """Bytes of its payload."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may have. A unit that is above a limit by itself is sent alone."""

    units: int = 1
    tokens: int = 16_384
    """Padded: all rows times the longest."""

    size: int = 32 * 1024 * 1024
    """Bytes of all payloads."""

    overtakes: int = 8
    """How many units that came later are sent before one that does not fit."""

    wait_s: float = 0.0
    """How long an idle executor waits for company of the first unit. With 0 no unit ever waits for company."""

    def __post_init__(self) -> None:
        """Raise ValueError for a limit that nothing can keep."""
        if min(self.units, self.tokens, self.size) < 1 or self.overtakes < 0 or not 0.0 <= self.wait_s < 60.0:
            raise ValueError(f"no batch keeps these limits: {self!r}")


class Room:
    """How far one batch is filled."""

    __slots__ = ("_head", "_limits", "_longest", "_rows", "_size", "units")

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._head: Shape | None = None
        self.units = self._rows = self._longest = self._size = 0

    @property
    def full(self) -> bool:
        """Whether nothing more fits, whatever it is."""
        return self.units >= self._limits.units or (self.units > 0 and self._head is None)

    def fits(self, shape: Shape | None) -> bool:
        """Whether a unit of `shape` may be sent with those that are in; the first one always may."""
        if not self.units:
            return True
        head, limits = self._head, self._limits
        return (
            head is not None
            and shape is not None
            and self.units < limits.units
            and shape.key == head.key
            and (self._rows + shape.rows) * max(self._longest, shape.longest) <= limits.tokens
            and self._size + shape.size <= limits.size
        )

    def add(self, shape: Shape | None) -> None:
        """One more is in. The first one decides who is compatible."""
        if not self.units:
            self._head = shape
        self.units += 1
        if shape is not None:
            self._rows += shape.rows
            self._longest = max(self._longest, shape.longest)
            self._size += shape.size
