"""Which rows go through the model together. Pure planning: lengths in, ranges of rows out.

Rows keep their order, and a group is filled from another request only in a batch, which the operator has switched on:
else an answer depends on its own request alone. Rows of a group are padded on the right to the longest one; a causal
model reads every row before its padding, so what the padding holds cannot reach an answer.

Source: the family's published runtime, decider-ai 1.8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_ROWS: Final = 4
"""Most rows of a packed group. With 8 the published native worker left its own gate of 0.02 in probability on
structured Unicode input, in bfloat16."""

MAX_TOKENS: Final = 4096
"""Most tokens of a packed group, padding not counted. A longer row runs alone."""


def groups(
    lengths: Sequence[int],
    *,
    max_rows: int = MAX_ROWS,
    max_tokens: int | None = MAX_TOKENS,
    max_padded: int | None = None,
    max_padding: int | None = None,
) -> list[range]:
    """The rows in groups, in order. A row opens a new group where the current one has `max_rows` rows, or would have

    * more than `max_tokens` tokens,
    * more than `max_padded` tokens, padding included: a bound on memory,
    * more than `max_padding` tokens of padding more than without it: a pass of its own is cheaper then.

    `lengths`: tokens of each row, 1 or more. Every group has a row, whatever its length. None is no bound.
    Raises `ValueError` for a bound that no row could keep.
    """
    if max_rows < 1 or any(bound is not None and bound < 1 for bound in (max_tokens, max_padded)):
        raise ValueError("a group holds at least one row of one token")
    found: list[range] = []
    start = tokens = longest = 0
    for row, length in enumerate(lengths):
        count = row - start
        padded = (count + 1) * max(longest, length)
        padding_before, padding_after = count * longest - tokens, padded - tokens - length
        full = (
            count == max_rows
            or (max_tokens is not None and tokens + length > max_tokens)
            or (max_padded is not None and padded > max_padded)
            or (max_padding is not None and padding_after - padding_before > max_padding)
        )
        if count and full:
            found.append(range(start, row))
            start, tokens, longest = row, 0, 0
        tokens += length
        longest = max(longest, length)
    if lengths:
        found.append(range(start, len(lengths)))
    return found


def distinct(rows: Sequence[NDArray[np.int32]]) -> tuple[list[int], list[int]]:
    """Which rows are the first of their kind, and the place of each row's kind among these."""
    kinds: dict[bytes, int] = {}
    first: list[int] = []
    places: list[int] = []
    for index, row in enumerate(rows):
        place = kinds.setdefault(np.ascontiguousarray(row).tobytes(), len(first))
        if place == len(first):
            first.append(index)
        places.append(place)
    return first, places
