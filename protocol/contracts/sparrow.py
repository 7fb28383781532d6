"""What both halves of the sparrow family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.options import Option, OptionTable

OPTIONS: Final = OptionTable(
    (Option("truncate", bool, False, "cut texts above the model's 512 tokens instead of refusing them"),)
)
