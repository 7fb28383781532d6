"""What both halves of the clef family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.contracts import agreement, placement
from protocol.options import Option, OptionTable

DEFAULT_MAX_LENGTH: Final = 16_384
"""Tokens of a request: what the original reads unless it is told otherwise."""

MAX_LENGTH: Final = 65_536
"""The most it can be told."""

OPTIONS: Final = OptionTable(
    (
        Option("max_length", int, DEFAULT_MAX_LENGTH, "most tokens of one request", least=1, most=MAX_LENGTH),
        Option("truncate", bool, False, "cut the end of a state that is too long instead of refusing it"),
        placement.DEVICE,
        placement.DTYPE,
        placement.PREFIX_CACHE,
        placement.PREFIX_SEGMENT,
    )
)


def identity(name: str, digest: str, dtype: str, device: str, longest: int, truncate: bool) -> str:
    """Equal exactly for equal answers: weights, tokens, limits and arithmetic. `digest`: of all files; `longest`:
    tokens of one request."""
    limit = f"max_length:{longest}{':truncate' if truncate else ''}"
    return f"{name}@sha256:{digest}/{agreement.arithmetic(dtype, device)}/{limit}"
