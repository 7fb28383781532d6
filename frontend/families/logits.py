"""Raw logits of a host: reading them from its output, and the float32 softmax of the families' own dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frontend.errors import InternalError

BYTES_PER_LOGIT: Final = 64
"""What `finish` does with one logit takes about as long as reading this many bytes of JSON."""


def read(outputs: Sequence[object], counts: Sequence[int]) -> list[list[float]]:
    """The logits of each row or question, as the float64 of their float32.

    The one output is `{"logits": float32 [sum of counts], "counts": int32 [rows], ...}`, the rows in the order in which
    they were asked, and its `counts` those given. Anything else is an `InternalError`; whether the numbers are finite
    is for the caller.
    """
    import numpy as np

    if len(outputs) != 1 or not isinstance(outputs[0], Mapping):
        raise InternalError("the model's output is not one map")
    logits, found = outputs[0].get("logits"), outputs[0].get("counts")
    if not (isinstance(logits, np.ndarray) and logits.dtype == np.float32 and logits.ndim == 1):
        raise InternalError("the model's logits are not one line of float32")
    if not (isinstance(found, np.ndarray) and np.array_equal(found, counts)):
        raise InternalError("the model's logits are not those of the rows it was sent")
    if len(logits) != sum(counts):
        raise InternalError(f"the model gave {len(logits)} logits for {sum(counts)} candidates")
    numbers: list[float] = logits.tolist()
    rows, start = [], 0
    for count in counts:
        rows.append(numbers[start : start + count])
        start += count
    return rows


def softmax32(logits: Sequence[float], temperature: float) -> list[float]:
    """The softmax of `logits / temperature` in float32, widened. `logits` are float32 values.

    Raises `InternalError` when a logit, or its quotient in float32, is not finite.
    """
    import numpy as np

    with np.errstate(over="ignore"):
        scaled = np.array(logits, np.float32) / np.float32(temperature)
    if not np.isfinite(scaled).all():
        raise InternalError("a logit of the model is not finite")
    # Each float32 value is rounded from an exact one, so it depends neither on the machine's vector units nor on
    # the order of a sum; multiplying by the reciprocal is what the reference's kernel does. Within 2 ulp of it.
    weights = np.exp((scaled - scaled.max()).astype(np.float64)).astype(np.float32)
    row = weights * (np.float32(1.0) / np.float32(weights.sum(dtype=np.float64)))
    values: list[float] = row.tolist()
    return values
