"""What both halves of the laya family agree on: options, file names, limits, identity. Pure.

A temperature outside `USABLE` is moved to its nearer end: the released checkpoint has one of 0.1006 for choices of
eleven options or more, which would report a probability of 0.24 as 0.99. One that is no number counts as 1.

Source: the family's published package, laya 0.3.20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from protocol.contracts import agreement, placement
from protocol.contracts.agreement import ContractError
from protocol.options import Option, OptionTable

CONFIG: Final = "rl_agent_config.json"
TOKENIZER: Final = "tokenizer/tokenizer.json"
FRONT_FILES: Final = (CONFIG, TOKENIZER)
"""What the front reads of a folder."""

MODEL_ID: Final = "laya"

KINDS: Final = ("choice", "score", "noul")
"""The types of question, by the number that the model knows them by."""

MAX_ROWS: Final = 16
MAX_MARKERS: Final = 2048
"""Questions of one request, and their options together: what one pass of the model takes."""

MAX_ROW_TOKENS: Final = 512
MAX_HEAD_TOKENS: Final = 192
"""Tokens of a row, and of its head and options: what the model was trained on."""

FIXED: Final[Mapping[str, int]] = {"max_len": MAX_ROW_TOKENS, "head_max_len": MAX_HEAD_TOKENS}
"""Fields of `CONFIG` that have this value when they are there: rows of this family are theirs."""

SPECIAL: Final = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
"""Texts of the tokens of `Special`, in its order. Tokenizers of the other languages' checkpoints have other ones."""

USABLE: Final = (0.5, 5.0)

_BUCKETS: Final = ((2, "2"), (5, "3-5"), (10, "6-10"))
"""(most options, name), and what has more is in the last one."""
_LARGEST: Final = "11+"

OPTIONS: Final = OptionTable(
    (
        Option(
            "truncate", bool, False, "cut what is too long for a row of 512 tokens instead of refusing it", side="front"
        ),
        placement.DEVICE,
        placement.DTYPE,
    )
)


@dataclass(frozen=True, slots=True)
class Special:
    """Token ids that stand between the parts of a row."""

    begin: int
    """[CLS]"""
    end: int
    """[SEP]"""
    padding: int
    """[PAD]"""
    marker: int
    """[MASK]"""


def special(encode: Callable[[Sequence[str]], list[list[int]]]) -> Special:
    """The special tokens of a tokenizer. `encode`: the ids of each text, without added special tokens.

    Raises `ContractError` when one of their texts is not one token.
    """
    found = []
    for text, tokens in zip(SPECIAL, encode(SPECIAL), strict=True):
        if len(tokens) != 1:
            raise ContractError(f"does not have {text} as one token: not the English checkpoint")
        found += tokens
    return Special(*found)


def bucket(kind: str, options: int) -> str:
    """What temperatures by number of options are called: `choice:3-5`."""
    for most, name in _BUCKETS:
        if options <= most:
            return f"{kind}:{name}"
    return f"{kind}:{_LARGEST}"


@dataclass(frozen=True, slots=True)
class Temperatures:
    """What the logits of a question are divided by. All are within `USABLE`."""

    by_kind: Mapping[str, float]
    """For each of `KINDS`."""

    by_bucket: Mapping[str, float]
    """By the names of `bucket`, for those that have one of their own."""

    def of(self, kind: str, options: int) -> float:
        """The temperature of a question of this type with so many options."""
        return self.by_bucket.get(bucket(kind, options), self.by_kind[kind])


def usable(value: object) -> float:
    """`value` as a temperature within `USABLE`; 1 for what is no finite number. A text of a number is one."""
    if not isinstance(value, (int, float, str)):
        return 1.0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return 1.0
    least, most = USABLE
    return min(most, max(least, number)) if isfinite(number) else 1.0


def read_config(document: object) -> Temperatures:
    """The temperatures in the value of `CONFIG`; all 1 where it has none. Raises `ContractError` naming the field."""
    if not isinstance(document, dict):
        raise ContractError("it is not a JSON object")
    for name, expected in FIXED.items():
        value = document.get(name, expected)
        if type(value) is not int or value != expected:
            raise ContractError(f"{name} is {value!r}; this family serves {expected}")
    by_kind = document.get("temperature", [1.0] * len(KINDS))
    if not isinstance(by_kind, list) or len(by_kind) != len(KINDS):
        raise ContractError(f"temperature is not a list of {len(KINDS)}: for {', '.join(KINDS)}")
    by_bucket = document.get("temperature_by_options", {})
    if not isinstance(by_bucket, dict):
        raise ContractError("temperature_by_options is not an object")
    return Temperatures(
        by_kind=dict(zip(KINDS, map(usable, by_kind), strict=True)),
        by_bucket={name: usable(value) for name, value in by_bucket.items()},
    )


def identity(files: Mapping[str, str], dtype: str, device: str) -> str:
    """Equal exactly for equal answers: weights, tokens, calibration, and arithmetic. `files`: sha256 by name."""
    return agreement.identity(MODEL_ID, files, agreement.arithmetic(dtype, device))
