"""What both halves of the embedding family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from protocol.contracts import agreement, placement
from protocol.contracts.agreement import ContractError
from protocol.options import Option, OptionTable

TOKENIZER: Final = "tokenizer.json"
SENTENCE: Final = "sentence_bert_config.json"
FRONT_FILES: Final = (TOKENIZER, SENTENCE)
"""What the front reads of a folder. The second need not be there."""

SCALE: Final = 20.0
"""What cosines are multiplied with before the softmax: the scale that sentence encoders of this kind were trained
with, to tell the text that belongs to another from those that do not."""

MAX_TEXT_TOKENS: Final = 32_768
"""Of one text, special tokens included, whatever a checkpoint says: the longest reading encoders of the field."""

MAX_TOKENS: Final = 65_536
"""Of one request: 20 s of a model of 22 million parameters on one CPU core (0.3 ms a token, measured), two thirds of
the default deadline."""

DEFAULT_CACHE_MB: Final = 64
"""About 30,000 texts of a model with 384 numbers each."""
MAX_CACHE_MB: Final = 65_536

BACKENDS: Final = ("auto", "numpy", "torch")


def _numpy_on_the_cpu(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Rule: numpy has one device and one arithmetic."""
    if values["backend"] == "numpy" and (values["device"] not in ("auto", "cpu") or values["dtype"] != "float32"):
        return "backend", "the backend numpy computes on the cpu in float32; take torch for another device or dtype"
    return None


OPTIONS: Final = OptionTable(
    (
        Option(
            "scale",
            float,
            SCALE,
            "what cosines are multiplied with before the softmax",
            side="front",
            above=0,
            most=1000,
        ),
        Option("truncate", bool, False, "cut texts above the model's tokens instead of refusing them", side="front"),
        Option(
            "max_tokens",
            int,
            None,
            "most tokens of one text",
            side="both",
            least=1,
            most=MAX_TEXT_TOKENS,
            unset="the checkpoint's",
        ),
        Option(
            "cache_mb",
            int,
            DEFAULT_CACHE_MB,
            "MiB of vectors kept for texts that come again; 0: none",
            least=0,
            most=MAX_CACHE_MB,
        ),
        Option(
            "backend",
            str,
            "auto",
            "what computes; auto: numpy for a BERT in float32 where there is no GPU, else torch",
            choices=BACKENDS,
        ),
        placement.DEVICE,
        replace(placement.DTYPE, default="float32", help="arithmetic of the model", choices=("float32", "bfloat16")),
    ),
    rules=(_numpy_on_the_cpu,),
)


def text_tokens(sentence: Mapping[str, Any], max_tokens: int | None) -> int:
    """Most tokens of one text, special tokens included. `sentence`: the object in `SENTENCE`, empty when there is none;
    `max_tokens`: the option, which replaces it. Raises `ContractError`."""
    if max_tokens is not None:
        return max_tokens
    if sentence.get("max_seq_length") is None:
        raise ContractError(
            f"{SENTENCE} does not say how many tokens a text may have (max_seq_length); the option 'max_tokens' can"
        )
    return agreement.count(sentence, SENTENCE, "max_seq_length", MAX_TEXT_TOKENS)


def identity(name: str, digest: str, dtype: str, device: str, pooling: str, longest: int, backend: str) -> str:
    """Equal exactly for equal answers: weights, tokens, and arithmetic. `digest`: of all files; `longest`: tokens of
    one text; `backend`: what computes."""
    parts = (f"{name}@sha256:{digest}", agreement.arithmetic(dtype, device), backend, pooling, f"max_tokens:{longest}")
    return "/".join(parts)
