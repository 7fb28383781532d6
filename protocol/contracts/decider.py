"""What both halves of the decider family agree on: options, file names, limits, identity. Pure.

Source: the family's published runtime, decider-ai 1.8.1, for the labels and the temperatures.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from string import ascii_uppercase
from typing import Final

from protocol.contracts import agreement, placement
from protocol.contracts.agreement import ContractError
from protocol.options import Option, OptionTable

CONFIG: Final = "decider_config.json"
TOKENIZER: Final = "tokenizer.json"
FRONT_FILES: Final = (TOKENIZER, CONFIG)
"""What the front reads of a folder."""

VERSION: Final = "2b-v11"
MODEL_ID: Final = f"decider-{VERSION}"

KINDS: Final = ("choice", "noul", "score")

LABELS: Final = 255
"""Label tokens of a checkpoint, and the most options of a question."""

MAX_STATE_TOKENS: Final = 32_768
"""Tokens of the state part: what the model was trained to read. Above: cut to its first ones, or refused."""

MAX_ROW_TOKENS: Final = MAX_STATE_TOKENS + 4_096
"""Tokens of one row: a full state, and 4,096 for the question."""

MAX_ROWS: Final = 1_024
"""Rows of one request."""

MAX_TOKENS: Final = 1_048_576
"""Tokens of all rows of one request, the state counted in each: what the executor may have to read."""

FIXED: Final[Mapping[str, object]] = {
    "version": VERSION,
    "layout": "plain",
    "max_options": LABELS,
    "max_state_tokens": MAX_STATE_TOKENS,
    "isolated_levels": True,
    "neutralize_none": False,
}
"""Fields of `CONFIG` that must be there with this value: the prompts and limits of this family are theirs."""

ABSENT_OR_FALSE: Final = ("chat_template", "schema_first", "schema_first_trained")
ABSENT: Final = ("temperature_by_options", "temperature_schema_first", "temperature_schema_first_by_type")

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
            "how rows are read: each alone, in groups, or their common start once; auto on a GPU: rows",
            choices=placement.EXECUTIONS,
        ),
        Option("batch_rows", int, MAX_BATCH_ROWS, "most rows of a packed group", least=1, most=MAX_BATCH_ROWS),
        Option("batch_tokens", int, MAX_BATCH_TOKENS, "most tokens of a packed group", least=1, most=MAX_BATCH_TOKENS),
        Option("graphs", bool, False, "record and replay passes on a GPU; not with shared"),
        placement.PREFIX_CACHE,
        placement.PREFIX_SEGMENT,
    ),
    rules=(placement.no_graphs_of_shared, placement.no_graphs_of_kept),
)


@dataclass(frozen=True, slots=True)
class Temperatures:
    """What the logits of each type of question are divided by: finite, above 0, and exact in float32."""

    choice: float
    noul: float
    score: float


def read_config(document: object) -> Temperatures:
    """The temperatures in the value of `CONFIG`. Raises `ContractError` naming the field; what is refused would have
    the rows rendered, or the answers made, in another way."""
    if not isinstance(document, dict):
        raise ContractError("it is not a JSON object")
    for name, expected in FIXED.items():
        value = document.get(name)
        if type(value) is not type(expected) or value != expected:
            raise ContractError(f"{name} is {value!r}; this family serves {expected!r}")
    for name in ABSENT_OR_FALSE:
        if document.get(name, False) is not False:
            raise ContractError(f"{name} is {document[name]!r}; this family serves checkpoints without it")
    for name in ABSENT:
        if name in document:
            raise ContractError(f"{name} is set; this family serves checkpoints without it")
    if "temperature" not in document:
        raise ContractError("temperature is missing")
    default = _temperature("temperature", document["temperature"], text=True)
    by_type = document.get("temperature_by_type", {})
    if not isinstance(by_type, dict):
        raise ContractError("temperature_by_type is not an object")
    values = dict.fromkeys(KINDS, default)
    for kind, value in by_type.items():
        if kind not in KINDS:
            raise ContractError(f"temperature_by_type names {kind!r}; the types are {', '.join(KINDS)}")
        values[kind] = _temperature(f"temperature_by_type.{kind}", value, text=False)
    return Temperatures(**values)


def label_names() -> list[str]:
    """Candidates for labels in order: A to Z, then AA to ZZ."""
    return [*ascii_uppercase, *(first + second for first in ascii_uppercase for second in ascii_uppercase)]


def labels(encode: Callable[[str], list[int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and token ids of the `LABELS` labels: the first of `label_names` that are one token each.

    `encode`: the ids of a text, without added special tokens. Raises `ContractError`: the tokenizer has too few of
    them, or two are equal, so it is not the one that the model was trained with.
    """
    names, tokens = [], []
    for name in label_names():
        found = encode(name)
        if len(found) == 1:
            names.append(name)
            tokens += found
        if len(names) == LABELS:
            break
    if len(set(tokens)) != LABELS:
        raise ContractError(f"{len(set(tokens))} different label tokens; the model was trained with {LABELS} labels")
    return tuple(names), tuple(tokens)


def identity(files: Mapping[str, str], dtype: str, device: str, execution: str, max_rows: int, max_tokens: int) -> str:
    """Equal exactly for equal answers: weights, prompts, calibration, and arithmetic. `files`: sha256 by name."""
    how = f"{execution}:{max_rows}x{max_tokens}"
    return agreement.identity(MODEL_ID, files, agreement.arithmetic(dtype, device), how)


def _temperature(name: str, value: object, *, text: bool) -> float:
    """`value` rounded to float32. `text`: whether a number in a string will do."""
    if (isinstance(value, (int, float)) and not isinstance(value, bool)) or (text and isinstance(value, str)):
        try:
            number: float = struct.unpack("<f", struct.pack("<f", float(value)))[0]
        except (ValueError, OverflowError):
            number = 0.0
        if isfinite(number) and number > 0.0:
            return number
    raise ContractError(f"{name} is {value!r}; a finite number above 0 is expected, in float32 too")
