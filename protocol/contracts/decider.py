"""What both halves of the decider family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from typing import Final

from protocol.contracts import placement
from protocol.options import Option, OptionTable

REVISION: Final = "533964dae8be954c5b5e19fa4948e48408094c1e"
"""The released revision of Mapika/decider-2b whose files are known."""

MAX_BATCH_ROWS: Final = 4
MAX_BATCH_TOKENS: Final = 4_096
"""Of a packed group: where `backbones/packing.py` stops, and its defaults."""

OPTIONS: Final = OptionTable(
    (
        Option("truncate", bool, False, "cut a state above 32,768 tokens instead of refusing it", side="front"),
        Option(
            "revision",
            str,
            None,
            "the released revision: refuse a folder whose files are not exactly its",
            choices=(REVISION,),
        ),
        placement.DEVICE,
        placement.DTYPE,
        Option(
            "execution",
            str,
            "auto",
            "how rows are read: each alone, packed into groups, or their common start once",
            choices=placement.EXECUTIONS,
        ),
        Option("batch_rows", int, MAX_BATCH_ROWS, "most rows of a packed group", least=1, most=MAX_BATCH_ROWS),
        Option("batch_tokens", int, MAX_BATCH_TOKENS, "most tokens of a packed group", least=1, most=MAX_BATCH_TOKENS),
        Option("graphs", bool, False, "record and replay packed groups on a GPU; auto is packed then"),
    ),
    rules=(placement.no_graphs_of_shared,),
)
