"""What both halves of the embedding family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from protocol.contracts import placement
from protocol.options import Option, OptionTable

SCALE: Final = 20.0
MAX_TEXT_TOKENS: Final = 32_768
DEFAULT_CACHE_MB: Final = 64
"""About 30,000 texts of a model with 384 numbers each."""
MAX_CACHE_MB: Final = 65_536

BACKENDS: Final = ("auto", "numpy", "torch")


def _numpy_on_the_cpu(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Rule: numpy has one device and one arithmetic."""
    if values["backend"] == "numpy" and (values["device"] not in ("auto", "cpu") or values["dtype"] != "float32"):
        return (
            "backend",
            "the backend numpy computes on the cpu in float32; leave out 'device' and 'dtype', or take torch",
        )
    return None


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
        Option(
            "backend",
            str,
            "auto",
            "what computes; auto: numpy for a BERT in float32 where there is no GPU, else torch",
            choices=BACKENDS,
        ),
        placement.DEVICE,
        replace(placement.DTYPE, default="float32", help="arithmetic of the model", choices=("float32", "bfloat16")),
    ),
    rules=(_numpy_on_the_cpu,),
)
