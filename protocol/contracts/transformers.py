"""What both halves of the transformers family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from protocol.contracts import agreement, placement
from protocol.options import Option, OptionTable

MAX_TOKENS: Final = 1_048_576
"""Of all prompts of a request, as transformers would read them. Some seconds of tokenizing, and 8 MB of ids."""

DEFAULT_MAX_TOKENS: Final = 32_768
"""Of one prompt, where neither the configuration nor the model says less."""


def _nothing_kept_of_rows(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Rule: what is kept is a state to go on from."""
    if values["execution"] == "rows" and values["prefix_cache_mb"]:
        return "prefix_cache_mb", "the option 'prefix_cache_mb' does not go with the execution 'rows'"
    return None


OPTIONS: Final = OptionTable(
    (
        placement.DEVICE,
        replace(placement.DTYPE, choices=("auto", "float32", "bfloat16", "float16")),
        Option(
            "execution",
            str,
            "auto",
            "how prompts are read: each alone, or what they share once; auto: shared where that is exact",
            choices=("auto", "rows", "shared"),
        ),
        Option(
            "max_tokens",
            int,
            None,
            "most tokens of one prompt",
            least=1,
            most=MAX_TOKENS,
            unset=f"the model's, at most {DEFAULT_MAX_TOKENS}",
        ),
        placement.PREFIX_CACHE,
        placement.PREFIX_SEGMENT,
    ),
    rules=(_nothing_kept_of_rows,),
)


def identity(name: str, digest: str, version: str, dtype: str, device: str, execution: str) -> str:
    """Equal exactly for equal answers: files, prompts, which are those of transformers' `version`, and arithmetic.
    `digest`: of all files."""
    return "/".join(
        (f"{name}@sha256:{digest}", f"transformers-{version}", agreement.arithmetic(dtype, device), execution)
    )
