"""What both halves of the cua-s1 family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Final

from protocol.contracts import agreement, placement
from protocol.contracts.agreement import ContractError
from protocol.options import Option, OptionTable

MODEL_ID: Final = "cua-s1-4b-0.2"
REVISION: Final = "16818868b0cc7813808aae4e87b417657046ab79"
"""The released revision of cua-ai/cua-s1-4b-0.2 whose files are known."""

TOKENIZER: Final = "tokenizer.json"
FRONT_FILES: Final = (TOKENIZER,)
"""What the front reads of a folder: the tokenizer, which is that of the base model."""

MARKER: Final = "cua_s1_export.json"
"""What a merged export has."""

ADAPTER: Final = "text"
"""Where a base model's adapter is looked for, within its folder."""

LETTERS: Final = ascii_uppercase
"""What options are called, in order."""

LETTER_IDS: Final = tuple(range(32, 58))
"""Their token ids."""

MAX_PROMPT_TOKENS: Final = 16_384
"""Tokens of one question's prompt. Nothing is ever cut."""

SYSTEM: Final = (
    "You are a one-pass computer-use decision model. You are shown the current state of a screen and a fixed, "
    "closed list of candidate (element, action) options, each given a single letter. Choose exactly one option: "
    "the single best next action to take. Answer with ONLY that option's letter -- no words, no punctuation, no "
    "explanation."
)

USER: Final = (
    "{goal}App: Cua Driver\nTask family: closed-candidate decision\n\n"
    "Accessibility tree:\n{state}\n\nOptions:\n{options}\n\nAnswer with a single letter."
)

CHAT: Final = (
    "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n"
)

MARKERS: Final = ("<|im_start|>", "<|im_end|>", "<think>")
"""What of `CHAT` must be one token each."""

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
        placement.PREFIX_CACHE,
        placement.PREFIX_SEGMENT,
    ),
    rules=(placement.no_graphs_of_kept,),
)


def check_tokens(encode: Callable[[Sequence[str]], list[list[int]]]) -> None:
    """Raises `ContractError` for a tokenizer that the prompts are not made for. `encode`: the ids of each text, without
    added special tokens."""
    for letter, token, found in zip(LETTERS, LETTER_IDS, encode(list(LETTERS)), strict=True):
        if found != [token]:
            raise ContractError(f"the letter {letter} is {found}, not the token {token}")
    for marker, tokens in zip(MARKERS, encode(MARKERS), strict=True):
        if len(tokens) != 1:
            raise ContractError(f"{marker} is not one token")


def identity(digest: str, dtype: str, device: str) -> str:
    """Equal exactly for equal answers: weights, tokens, and arithmetic. `digest`: of all files."""
    return f"{MODEL_ID}@sha256:{digest}/{agreement.arithmetic(dtype, device)}"
