"""Options that every family on torch has: where a model runs, in which arithmetic, and what is recorded there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.options import DEVICE as DEVICE_SYNTAX
from protocol.options import Option

DEVICE: Final = Option(
    "device", str, "auto", "where the model runs; auto: a GPU where there is one", syntax=DEVICE_SYNTAX
)

DTYPE: Final = Option(
    "dtype",
    str,
    "auto",
    "arithmetic of the model; auto: bfloat16 on a GPU, float32 on a CPU",
    choices=("auto", "float32", "bfloat16"),
)

MAX_PREFIX_CACHE_MB: Final = 1_048_576
"""A terabyte: above any device's memory."""

PREFIX_CACHE: Final = Option(
    "prefix_cache_mb",
    int,
    0,
    "memory of the host, in MiB, for texts that are kept between requests; 0: none are",
    least=0,
    most=MAX_PREFIX_CACHE_MB,
)

PREFIX_SEGMENT: Final = Option(
    "prefix_segment",
    int,
    None,
    "tokens of a segment in which a kept text is read",
    least=16,
    most=8_192,
    unset="128 on a CPU, 512 on a GPU",
)

EXECUTIONS: Final = ("auto", "rows", "packed", "shared")
"""How the rows of a unit are read: each alone, several in one pass, or what they share once."""


def no_graphs_of_kept(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Rule: a pass that goes on from a kept state is not one that was recorded."""
    if values["graphs"] and values["prefix_cache_mb"]:
        return "graphs", "the option 'graphs' does not go with a prefix_cache_mb above 0"
    return None


def no_graphs_of_shared(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Rule: what is shared differs from unit to unit, so there is nothing that could be replayed."""
    if values["graphs"] and values["execution"] == "shared":
        return "graphs", "the option 'graphs' does not go with the execution 'shared'"
    return None
