"""What a field of a message may hold: how it is checked, and how docs/wire.md calls it.

A message annotates each of its fields with a `Field`; the check, the encoder, the decoder and the test of the
document all read it there. A check answers whether a value is of the declared kind; one of a container also walks it
and raises what the walk finds. Booleans are not integers here, though Python says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from protocol import limits
from protocol.trees import check_tree

Check = Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class Field:
    """One kind of field: its check, and the words of docs/wire.md for its type and its range."""

    check: Check
    type: str
    range: str = ""


def _short(value: float) -> str:
    """A bound as the document writes it: powers by their exponents, so that they can be read."""
    powers = {2**31: "2^31", 2**31 - 1: "2^31-1", 2**63 - 1: "2^63-1", 10**18: "10^18"}
    if abs(value) in powers:
        return f"{'-' if value < 0 else ''}{powers[int(abs(value))]}"
    return f"{value:,}"


def text(limit: int, *, empty: bool = True) -> Field:
    """A text of at most `limit` characters."""
    low = 0 if empty else 1
    return Field(
        lambda value: type(value) is str and low <= len(value) <= limit, "text", f"{low}..{limit:,} characters"
    )


def exactly(length: int) -> Field:
    """A text of `length` ASCII characters."""
    return Field(
        lambda value: type(value) is str and len(value) == length and value.isascii(),
        "text",
        f"{length} ASCII characters",
    )


def integer(low: int, high: int) -> Field:
    """An integer `low`..`high`, both included."""
    return Field(lambda value: type(value) is int and low <= value <= high, "integer", f"{_short(low)}..{_short(high)}")


def number(low: float, high: float) -> Field:
    """An integer or float between `low` and `high`, both included; NaN fails both comparisons."""
    return Field(
        lambda value: type(value) in (int, float) and low <= value <= high,  # type: ignore[operator]
        "number",
        f"{_short(low)}..{_short(high)}",
    )


def one_of(*values: str, called: str = "") -> Field:
    """One of the listed texts; `called` is how the document names them when it lists them elsewhere."""
    allowed = frozenset(values)
    *most, last = (f"`{value}`" for value in values)
    # The type first: comparing a decoded array with a text has no truth value, and a list has no hash.
    return Field(
        lambda value: type(value) is str and value in allowed, "text", called or f"{', '.join(most)} or {last}"
    )


def optional(field: Field) -> Field:
    """Nil, or what `field` accepts."""
    check = field.check
    return Field(lambda value: value is None or check(value), f"{field.type} or nil", field.range)


def texts(limit: int) -> Field:
    """A list of non-empty texts of at most `limit` characters each."""
    one = text(limit, empty=False)
    return Field(
        lambda value: type(value) is list and all(map(one.check, value)) and len(value) <= limits.MAX_ITEMS,
        "list",
        f"of texts of {one.range}",
    )


def integers(low: int, high: int) -> Field:
    """A list of integers `low`..`high`."""
    one = integer(low, high)
    return Field(
        lambda value: type(value) is list and all(map(one.check, value)) and len(value) <= limits.MAX_ITEMS,
        "list",
        f"of integers {one.range}",
    )


def mapped(limit: int, item: Field) -> Field:
    """A map of `item` by non-empty texts of at most `limit` characters."""
    key, value_check = text(limit, empty=False).check, item.check
    return Field(
        lambda value: type(value) is dict and all(key(name) and value_check(entry) for name, entry in value.items()),
        "map",
        f"of {item.type}s {item.range}",
    )


def _tree(value: object) -> bool:
    if type(value) is not dict:
        return False
    check_tree(value)
    return True


def _trees(value: object) -> bool:
    if type(value) is not list or not all(type(item) is dict for item in value):
        return False
    check_tree(value)
    return True


def _path(value: object) -> bool:
    return type(value) is list and all(type(item) in (str, int) for item in value) and len(value) <= limits.MAX_ITEMS


COUNT = integer(0, limits.MAX_CALL_ID)
"""How many, or which one: 0 or above."""

NUMBER = number(-(10**18), 10**18)
"""Any integer or float that a clock or a size could have; NaN and infinities are none."""

BOOLEAN = Field(lambda value: type(value) is bool, "boolean")
"""True or False."""

TREE = Field(_tree, "map")
"""A map with text keys, of whatever a body may hold."""

TREES = Field(_trees, "list of maps")
"""A list of maps."""

PATH = Field(_path, "list", "of texts and integers")
"""A list of keys (text) and indexes (integers)."""


def describe(value: Any) -> str:
    """`value` in a few characters for an error text: never its content, which may be a client's state."""
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return repr(value) if limits.INT_MIN <= value <= limits.INT_MAX else "an integer beyond 64 bits"
    if type(value) in (str, bytes, list, dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


Name = Annotated[str, text(limits.MAX_NAME_CHARS, empty=False)]
Incarnation = Annotated[str, text(limits.MAX_INCARNATION_CHARS, empty=False)]
DeploymentId = Annotated[str, text(limits.MAX_DEPLOYMENT_CHARS, empty=False)]
Text = Annotated[str, text(limits.MAX_TEXT_CHARS)]
OptionalText = Annotated[str | None, optional(text(limits.MAX_TEXT_CHARS))]
PublicKey = Annotated[str, exactly(limits.CURVE_KEY_CHARS)]
Count = Annotated[int, COUNT]
Seconds = Annotated[float, NUMBER]
Boolean = Annotated[bool, BOOLEAN]
Tree = Annotated[dict[str, Any], TREE]
OptionalTree = Annotated[dict[str, Any] | None, optional(TREE)]
Trees = Annotated[list[dict[str, Any]], TREES]
Path = Annotated[list[Any], PATH]
