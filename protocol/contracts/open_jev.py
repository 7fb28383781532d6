"""What both halves of the open-jev family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.contracts import placement
from protocol.options import Option, OptionTable

DEFAULT_MAX_LENGTH: Final = 4_096
MAX_LENGTH: Final = 16_384
"""Tokens of one candidate, its prompt included."""

OPTIONS: Final = OptionTable(
    (
        Option(
            "base", str, None, "a LoRA checkpoint's base model: its folder, with tokenizer and weights", side="both"
        ),
        Option(
            "max_length",
            int,
            None,
            "most tokens of one prompt",
            side="both",
            least=1,
            most=MAX_LENGTH,
            unset=f"the export's, or {DEFAULT_MAX_LENGTH}",
        ),
        Option("unreleased", bool, False, "serve a checkpoint of another revision or size than the released ones"),
        placement.DEVICE,
        placement.DTYPE,
        Option(
            "execution",
            str,
            "auto",
            "how candidates are read; auto: packed for the 27B, else rows",
            choices=placement.EXECUTIONS,
        ),
        Option("graphs", bool, False, "record and replay groups of candidates on a GPU; not with shared"),
    ),
    rules=(placement.no_graphs_of_shared,),
)
