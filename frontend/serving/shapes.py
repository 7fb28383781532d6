"""What a unit is to a batch, as its payload says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontend.runtime.shape import Shape
from protocol.payloads import Batchable, Payload
from protocol.tensors import Blob


def of(payload: Payload | Batchable, fields: Mapping[str, Any]) -> Shape | None:
    """The shape of a unit with this payload, whose wire `fields` these are; None for one that is sent alone."""
    if not hasattr(payload, "extent"):
        return None
    key, rows, longest = payload.extent()
    return Shape(key, rows, longest, sum(map(_bytes, fields.values())))


def _bytes(value: object) -> int:
    if isinstance(value, Blob):
        return memoryview(value.data).nbytes
    held = getattr(value, "nbytes", None)
    return held if isinstance(held, int) else 64
