"""What both halves of the laya family agree on: options, file names, limits, identity. Pure.

Three checkpoints are published in one layout, English, typed decisions and multilingual. Each says itself how long its
rows are and which texts its special tokens have; which of the three a folder is, matters to names alone.

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
ROLES: Final = "tokenizer/tokenizer_config.json"
"""Says which token has which part."""
FRONT_FILES: Final = (CONFIG, TOKENIZER, ROLES)
"""What the front reads of a folder."""

MODEL_ID: Final = "laya"

KINDS: Final = ("choice", "score", "noul")
"""The types of question, by the number that the model knows them by."""

MAX_ROWS: Final = 16
MAX_MARKERS: Final = 2048
"""Questions of one request, and their options together: what one pass of the model takes."""

ROW_TOKENS: Final = 512
HEAD_TOKENS: Final = 192
"""Tokens of a row, and of its head and options, where a checkpoint does not say what it was trained on."""

LEAST_ROW_TOKENS: Final = 64
MOST_ROW_TOKENS: Final = 8192
"""Of `max_len`: ours below, and above what the encoder was trained on."""

LEAST_HEAD_TOKENS: Final = 32
"""Of `head_max_len`, which is at most `max_len`: ours."""

NAMED: Final = ("cls_token", "sep_token", "pad_token", "mask_token")
"""Fields of `ROLES` with the texts of the tokens of `Special`, in its order."""

USABLE: Final = (0.5, 5.0)

_BUCKETS: Final = ((2, "2"), (5, "3-5"), (10, "6-10"))
"""(most options, name), and what has more is in the last one."""
_LARGEST: Final = "11+"

OPTIONS: Final = OptionTable(
    (
        Option(
            "truncate",
            bool,
            False,
            "cut what is too long for the checkpoint's rows instead of refusing it",
            side="front",
        ),
        placement.DEVICE,
        placement.DTYPE,
    )
)


@dataclass(frozen=True, slots=True)
class Special:
    """Token ids that stand between the parts of a row."""

    begin: int
    """[CLS] in the English checkpoint"""
    end: int
    """[SEP]"""
    padding: int
    """[PAD]"""
    marker: int
    """[MASK]"""
    mask: str
    """The marker's text: in a client's text it is a space."""


def special(roles: object, encode: Callable[[Sequence[str]], list[list[int]]]) -> Special:
    """The special tokens of a tokenizer. `roles`: the value of `ROLES`. `encode`: the ids of each text, without added
    special tokens.

    Raises `ContractError` when a text is not named, or is not one token.
    """
    if not isinstance(roles, dict):
        raise ContractError(f"{ROLES} is not a JSON object")
    texts = [_named(roles, role) for role in NAMED]
    found: list[int] = []
    for role, text, tokens in zip(NAMED, texts, encode(texts), strict=True):
        if len(tokens) != 1:
            raise ContractError(f"{TOKENIZER} does not have {text} as one token, which is the {role} of {ROLES}")
        found += tokens
    begin, end, padding, marker = found
    return Special(begin, end, padding, marker, texts[-1])


def _named(roles: Mapping[str, object], role: str) -> str:
    value = roles.get(role)
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str) or not text:
        raise ContractError(f"{ROLES}: {role} is {value!r}, and not the text of a token")
    return text


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


@dataclass(frozen=True, slots=True)
class Config:
    """What `CONFIG` says."""

    row_tokens: int
    """Of a row, at most."""
    head_tokens: int
    """Of the head and the options of a row, at most."""
    temperatures: Temperatures


def read_config(document: object) -> Config:
    """The value of `CONFIG`; temperatures are 1 where it has none. Raises `ContractError` naming the field."""
    if not isinstance(document, dict):
        raise ContractError("it is not a JSON object")
    row_tokens = _within(document, "max_len", ROW_TOKENS, LEAST_ROW_TOKENS, MOST_ROW_TOKENS)
    head_tokens = _within(document, "head_max_len", HEAD_TOKENS, LEAST_HEAD_TOKENS, row_tokens)
    by_kind = document.get("temperature", [1.0] * len(KINDS))
    if not isinstance(by_kind, list) or len(by_kind) != len(KINDS):
        raise ContractError(f"temperature is not a list of {len(KINDS)}: for {', '.join(KINDS)}")
    by_bucket = document.get("temperature_by_options", {})
    if not isinstance(by_bucket, dict):
        raise ContractError("temperature_by_options is not an object")
    temperatures = Temperatures(
        by_kind=dict(zip(KINDS, map(usable, by_kind), strict=True)),
        by_bucket={name: usable(value) for name, value in by_bucket.items()},
    )
    return Config(row_tokens, head_tokens, temperatures)


def _within(document: Mapping[str, object], name: str, default: int, least: int, most: int) -> int:
    value = document.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise ContractError(f"{name} is {value!r}; a whole number from {least} to {most} is served")
    return value


@dataclass(frozen=True, slots=True)
class Variant:
    """What one of the published checkpoints is called by the family's own servers."""

    name: str
    repository: str
    aliases: tuple[str, ...]
    """What else a client may call it."""


ENGLISH: Final = Variant("english", "convaiinnovations/laya", ("en", "laya", "default"))
TYPED: Final = Variant(
    "typed-decisions",
    "convaiinnovations/laya/typed-decisions",
    ("typed", "typed_decisions", "decisions", "laya-typed-decisions", "convaiinnovations/laya-typed-decisions"),
)
MULTILINGUAL: Final = Variant(
    "multilingual",
    "convaiinnovations/laya/multilingual",
    ("multi", "ml", "laya-multilingual", "convaiinnovations/laya-multilingual"),
)
VARIANTS: Final = (ENGLISH, TYPED, MULTILINGUAL)


def variant(config: Config, special: Special) -> Variant:
    """Which of `VARIANTS` a checkpoint is like: tokens of another kind are those of many languages, and of the two
    English ones typed decisions has the longer rows."""
    if special.mask != "[MASK]":
        return MULTILINGUAL
    return ENGLISH if config.row_tokens == ROW_TOKENS else TYPED


def identity(files: Mapping[str, str], dtype: str, device: str) -> str:
    """Equal exactly for equal answers: weights, tokens, calibration, and arithmetic. `files`: sha256 by name."""
    return agreement.identity(MODEL_ID, files, agreement.arithmetic(dtype, device))
