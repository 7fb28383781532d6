"""What both halves of the kev family agree on: options, file names, delimiters, limits, identity. Pure.

Two layouts are served: a *LoRA checkpoint*, which has `ADAPTER_CONFIG` and whose tokenizer and weights are its base
model's, and a *merged* one, which has all of them itself. Both have `HEAD` and `TRAINING`; of the families that have a
`HEAD` only this one has `TRAINING`.

Source: the family's published code, github.com/jaredpalmer/kev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.contracts import agreement, placement
from protocol.contracts.agreement import ContractError
from protocol.options import Option, OptionTable

MODEL_ID: Final = "kev"

TRAINING: Final = "training_config.json"
HEAD: Final = "head.pt"
ADAPTER_CONFIG: Final = "adapter_config.json"
TOKENIZER: Final = "tokenizer.json"
FRONT_FILES: Final = (TOKENIZER,)
"""What the front reads of a folder: the base model's, of a LoRA checkpoint."""

DELIMITERS: Final = ("<|fim_prefix|>", "<|fim_middle|>", "<|box_start|>", "<|box_end|>", "<|fim_suffix|>")
"""Texts of the tokens of `Delimiters`, in its order: special tokens that the base models hardly use."""

OPTIONS_OF_CHOICE: Final = (1, 255)
LEVELS: Final = (2, 255)
"""Options of a choice, and levels of a score."""

MAX_HEAD_DIM: Final = 65_536

DEFAULT_MAX_LENGTH: Final = 8_192
MAX_LENGTH: Final = 73_728
"""Tokens of a row, which is the state and one question: what the family's server takes, and at most a state of 65,536
tokens, the 27B's, with a question of 8,192. Longer ones are refused, never cut."""

MAX_QUESTIONS: Final = 4_096
MAX_MARKERS: Final = 65_536
"""Questions of one request, and their options together. Ours, as the next: the family has no such bounds."""

MAX_TOKENS: Final = 16_777_216
"""Tokens of all rows of one request, each as long as the longest: a message of 64 MiB."""

OPTIONS: Final = OptionTable(
    (
        Option(
            "base", str, None, "a LoRA checkpoint's base model: its folder, with tokenizer and weights", side="both"
        ),
        Option(
            "max_length",
            int,
            DEFAULT_MAX_LENGTH,
            "most tokens of the state and one question",
            side="both",
            least=16,
            most=MAX_LENGTH,
        ),
        placement.DEVICE,
        placement.DTYPE,
        placement.PREFIX_CACHE,
        placement.PREFIX_SEGMENT,
    )
)


@dataclass(frozen=True, slots=True)
class Delimiters:
    """Token ids that stand between the parts of a row."""

    state: int
    """Before the state."""
    question: int
    """Before the instructions."""
    option: int
    """Before an option."""
    option_end: int
    """After an option: where it is read."""
    decide: int
    """At the end of a row: where the question is read."""


def delimiters(encode: Callable[[Sequence[str]], list[list[int]]]) -> Delimiters:
    """The delimiters of a tokenizer. `encode`: the ids of each text, without added special tokens.

    Raises `ContractError` when one of their texts is not one token.
    """
    found = []
    for text, tokens in zip(DELIMITERS, encode(DELIMITERS), strict=True):
        if len(tokens) != 1:
            raise ContractError(f"{TOKENIZER} does not have {text} as one token: not a tokenizer of Qwen")
        found += tokens
    return Delimiters(*found)


def read_training(document: Mapping[str, Any]) -> int:
    """Values of a query of the head, from the object in `TRAINING`. Raises `ContractError`."""
    arguments = document.get("args")
    if not isinstance(arguments, dict):
        raise ContractError(f"{TRAINING}: args is {arguments!r}; an object with head_dim is expected")
    return agreement.count(arguments, f"{TRAINING}: args", "head_dim", MAX_HEAD_DIM)


def identity(files: Mapping[str, str], dtype: str, device: str, max_length: int) -> str:
    """Equal exactly for equal answers: weights, tokens, head, calibration, and arithmetic. `files`: sha256 by name."""
    how = (agreement.arithmetic(dtype, device), f"max_length:{max_length}")
    return agreement.identity(MODEL_ID, files, *how)
