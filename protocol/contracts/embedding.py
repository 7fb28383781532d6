"""What both halves of the embedding family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from protocol.contracts import placement
from protocol.options import Option, OptionTable

SCALE: Final = 20.0
MAX_TEXT_TOKENS: Final = 32_768
DEFAULT_CACHE_MB: Final = 64
"""About 30,000 texts of a model with 384 numbers each."""
MAX_CACHE_MB: Final = 65_536

OPTIONS: Final = OptionTable(
    (
        Option(
            "scale",
            float,
            SCALE,
            "what cosines are multiplied with before the softmax",
            side="front",
            above=0,
            most=1000,
        ),
        Option("truncate", bool, False, "cut texts above the model's tokens instead of refusing them", side="front"),
        Option(
            "max_tokens",
            int,
            None,
            "most tokens of one text",
            side="both",
            least=1,
            most=MAX_TEXT_TOKENS,
            unset="the checkpoint's",
        ),
        Option(
            "cache_mb",
            int,
            DEFAULT_CACHE_MB,
            "MiB of vectors kept for texts that come again; 0: none",
            least=0,
            most=MAX_CACHE_MB,
        ),
        placement.DEVICE,
        replace(placement.DTYPE, default="float32", help="arithmetic of the model", choices=("float32", "bfloat16")),
    )
)
