"""What a host may say of itself: plain values, few of them. Reports are shown in status, metrics and the page, and
travel in the front's own report, so what is not fit for all of them is not taken over."""

from __future__ import annotations

from typing import Final

MAX_LEVELS: Final = 4
MAX_VALUES: Final = 1_000
MAX_CHARS: Final = 1_000
"""Of one text."""


def fit(report: object) -> bool:
    """Whether `report` is a map of texts, numbers, flags, None, lists and maps, within the limits above."""
    return isinstance(report, dict) and _values(report, MAX_LEVELS) <= MAX_VALUES


def _values(value: object, levels: int) -> int:
    """How many values there are in it; more than `MAX_VALUES` when one is not fit."""
    unfit = MAX_VALUES + 1
    if value is None or isinstance(value, (bool, float)):
        return 1
    if isinstance(value, int):
        return 1 if abs(value) < 2**63 else unfit
    if isinstance(value, str):
        return 1 if len(value) <= MAX_CHARS else unfit
    if not isinstance(value, (dict, list)) or not levels or len(value) > MAX_VALUES:
        return unfit
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    count = 1
    for one in inside:
        count += _values(one, levels - 1)
        if count > MAX_VALUES:
            return unfit
    return count
