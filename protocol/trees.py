"""What may lie inside the map and list fields of a body: how deep, how wide, which keys, which leaves.

One walk per field does it all, on the sender's values and on the receiver's. Outputs are lists of
numbers, so a list of nothing but leaves is judged in one pass of the interpreter's own code.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgpack

from protocol import limits
from protocol.errors import LimitExceeded, Malformed

_LEAVES: Final = frozenset((str, int, float, bool, bytes, type(None)))

# The packer takes these two as they are, so only this walk keeps them off the wire.
_FOREIGN: Final = frozenset((msgpack.ExtType, msgpack.Timestamp))


def check_tree(container: Collection[Any], level: int = 2) -> None:
    """Raise `Malformed` or `LimitExceeded` if `container` is not fit for a body, where it is on `level`.

    The body's own map is level 1 and its fields are checked by name, so a field's value is on level 2.
    Leaves the packer must convert (arrays, blobs) are judged there.
    """
    if level > limits.MAX_DEPTH:
        raise LimitExceeded(f"a body has at most {limits.MAX_DEPTH} levels")
    if len(container) > limits.MAX_ITEMS:
        raise LimitExceeded(f"a list or map has at most {limits.MAX_ITEMS} items")
    items = container
    if isinstance(container, dict):
        for key in container:
            if type(key) is not str:
                raise Malformed("map keys are text")
        items = container.values()
    for item in items:
        kind = type(item)
        if kind in _LEAVES:
            continue
        if kind is list and _LEAVES.issuperset(map(type, item)) and level < limits.MAX_DEPTH:
            if len(item) > limits.MAX_ITEMS:
                raise LimitExceeded(f"a list or map has at most {limits.MAX_ITEMS} items")
        elif kind is list or kind is dict:
            check_tree(item, level + 1)
        elif kind in _FOREIGN:
            raise Malformed(f"a {kind.__name__} is not part of this protocol")
        elif isinstance(item, (tuple, list, dict)):  # the packer writes subclasses as what they derive from
            check_tree(item, level + 1)


def check_count(container: Collection[Any]) -> None:
    """Raise `LimitExceeded` if there are too many lists and maps in a body, or too many items in all of them together.

    For bodies that are large enough to have them: `container` was checked with `check_tree`, so it is not deep.
    """
    containers = items = 0
    waiting = [container]
    while waiting:
        held = waiting.pop()
        containers += 1
        items += len(held)
        if containers > limits.MAX_CONTAINERS:
            raise LimitExceeded(f"a body has at most {limits.MAX_CONTAINERS} lists and maps")
        if items > limits.MAX_ITEMS_IN_ALL:
            raise LimitExceeded(f"the lists and maps of a body have at most {limits.MAX_ITEMS_IN_ALL} items in all")
        values = held.values() if isinstance(held, dict) else held
        waiting += [value for value in values if isinstance(value, (list, tuple, dict))]
