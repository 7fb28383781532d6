"""What both halves of the cua-s1 family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.contracts import placement
from protocol.options import Option, OptionTable

REVISION: Final = "16818868b0cc7813808aae4e87b417657046ab79"
"""The released revision of cua-ai/cua-s1-4b-0.2 whose files are known."""

OPTIONS: Final = OptionTable(
    (
        Option(
            "adapter",
            str,
            None,
            "the folder of the text adapter; not with a merged export",
            unset="text, within the base model's folder",
        ),
        Option(
            "revision",
            str,
            None,
            "the released adapter's revision: refuse files that are not exactly its",
            choices=(REVISION,),
        ),
        placement.DEVICE,
        placement.DTYPE,
        Option("graphs", bool, False, "record and replay prompts of the same length on a GPU"),
    )
)
