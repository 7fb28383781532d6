"""What both halves of the laya family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.contracts import placement
from protocol.options import Option, OptionTable

OPTIONS: Final = OptionTable(
    (
        Option(
            "truncate", bool, False, "cut what is too long for a row of 512 tokens instead of refusing it", side="front"
        ),
        placement.DEVICE,
        placement.DTYPE,
    )
)
