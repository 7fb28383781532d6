"""Checks of single message fields, made once per declaration.

A check answers whether the value is of the declared kind; a check of a container also walks it and
raises what the walk finds. Booleans are not integers here, though Python says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from protocol import limits
from protocol.trees import check_tree

Check = Callable[[object], bool]


def text(limit: int, *, empty: bool = True) -> Check:
    """A text of at most `limit` characters."""
    low = 0 if empty else 1
    return lambda value: type(value) is str and low <= len(value) <= limit


def exactly(length: int) -> Check:
    """A text of `length` ASCII characters."""
    return lambda value: type(value) is str and len(value) == length and value.isascii()


def integer(low: int, high: int) -> Check:
    """An integer `low`..`high`, both included."""
    return lambda value: type(value) is int and low <= value <= high


def one_of(values: Collection[str]) -> Check:
    """One of the listed texts."""
    # The type first: comparing a decoded array with a text has no truth value, and a list has no hash.
    return lambda value: type(value) is str and value in values


def optional(check: Check) -> Check:
    """Nil, or what `check` accepts."""
    return lambda value: value is None or check(value)


def boolean(value: object) -> bool:
    """True or False."""
    return type(value) is bool


def number(value: object) -> bool:
    """An integer or float between -1e18 and 1e18; NaN fails both comparisons."""
    return type(value) in (int, float) and -1e18 < value < 1e18  # type: ignore[operator]


def fraction(value: object) -> bool:
    """An integer or float 0..1."""
    return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]


def tree(value: object) -> bool:
    """A map with text keys, of whatever a body may hold."""
    if type(value) is not dict:
        return False
    check_tree(value)
    return True


def trees(value: object) -> bool:
    """A list of maps."""
    if type(value) is not list or not all(type(item) is dict for item in value):
        return False
    check_tree(value)
    return True


def texts(limit: int) -> Check:
    """A list of non-empty texts of at most `limit` characters each."""
    one = text(limit, empty=False)
    return lambda value: type(value) is list and all(map(one, value)) and len(value) <= limits.MAX_ITEMS


def numbers(limit: int) -> Check:
    """A map of numbers by non-empty texts of at most `limit` characters."""
    one = text(limit, empty=False)
    return lambda value: type(value) is dict and all(one(key) and number(item) for key, item in value.items())


def counts(limit: int) -> Check:
    """A map of counts by non-empty texts of at most `limit` characters."""
    one, count = text(limit, empty=False), integer(0, limits.MAX_CALL_ID)
    return lambda value: type(value) is dict and all(one(key) and count(item) for key, item in value.items())


def path(value: object) -> bool:
    """A list of keys (text) and indexes (integers)."""
    return type(value) is list and all(type(item) in (str, int) for item in value) and len(value) <= limits.MAX_ITEMS


def describe(value: Any) -> str:
    """`value` in a few characters for an error text: never its content, which may be a client's state."""
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return repr(value) if limits.INT_MIN <= value <= limits.INT_MAX else "an integer beyond 64 bits"
    if type(value) in (str, bytes, list, dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
