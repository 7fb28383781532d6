"""What both halves of the sparrow family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.options import Option, OptionTable

OPTIONS: Final = OptionTable(
    (Option("truncate", bool, False, "cut texts above the model's 512 tokens instead of refusing them"),)
)

BUNDLED: Final = {
    "nano-general": (
        "sparrow-nano-general-v1.1.sparrow",
        "d1d3ee04cdfa58f325bb7f06b701df92bc29a3debea59743bf14a7a6215ef2e3",
    ),
    "nano-robot": (
        "sparrow-nano-robot-v1.2.sparrow",
        "0fe7a7fee5b369c02c760e2c33c115b72e16a6a0a98e911ee5fea53a25248608",
    ),
}
"""Names that may be given instead of a path -> file and sha256 of the models inside the pinned wheel."""


def identity(name: str, digest: str) -> str:
    """Equal exactly for equal answers. `digest`: of the model file."""
    return f"{name}@sha256:{digest}"
