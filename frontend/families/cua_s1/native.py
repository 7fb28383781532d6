"""What the family's own servers answer: their arithmetic and their 200 body.

    probabilities   softmax of the letter logits in float64, each rounded to float32 and reported widened
    choice          the first most probable option
    confidence      max(0, 1 - H(p) / ln n), natural logarithm, 1 for a single option; nothing else is rounded

The input is logits: how they come about is the same for all profiles (`projection`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Any, Final

from frontend.errors import InternalError
from frontend.families.refusal import Reason
from frontend.requests.questions import Choice
from protocol.contracts.cua_s1 import MODEL_ID, REVISION

MODEL: Final = f"cua-ai/{MODEL_ID}@{REVISION}:text"
"""What a response calls the model: adapter, revision, modality."""

STATUS: Final[Mapping[Reason, int]] = {"form": 400, "invalid": 422, "tokens": 413, "size": 413}
"""Of a refusal, by its reason."""

INFERENCE_FAILED: Final = "inference failed"
"""The `detail` of every 500; its cause is for the log only."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One question's answer: the chosen option, and each option's probability in request order."""

    choice: str
    names: tuple[str, ...]
    probabilities: tuple[float, ...]
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The response's object."""
        return {
            "type": "choice",
            "choice": self.choice,
            "probabilities": dict(zip(self.names, self.probabilities, strict=True)),
            "confidence": self.confidence,
        }


def probabilities(logits: Sequence[float]) -> tuple[float, ...]:
    """The softmax of float32 logits, at least one. Raises `InternalError` when one is not finite."""
    if not all(map(isfinite, logits)):
        raise InternalError("a letter's logit is not finite")
    top = max(logits)
    weights = [exp(logit - top) for logit in logits]
    total = sum(weights)
    return tuple([_float32(weight / total) for weight in weights])


def confidence(values: Sequence[float]) -> float:
    """1 less the entropy as a share of its maximum; 1 for a single option."""
    if len(values) == 1:
        return 1.0
    entropy = -sum([value * log(value) for value in values if value > 0.0])
    return max(0.0, 1.0 - entropy / log(len(values)))


def answer(question: Choice, logits: Sequence[float]) -> Answer:
    """The answer from one logit per option. `InternalError` as above, and when there are more or fewer."""
    if len(logits) != len(question.options):
        raise InternalError(f"{len(logits)} logits for {len(question.options)} options")
    values = probabilities(logits)
    names = tuple([name for name, _ in question.options])
    return Answer(names[values.index(max(values))], names, values, confidence(values))


def body(questions: Sequence[Choice], logits: Sequence[Sequence[float]], input_tokens: int) -> dict[str, Any]:
    """The 200 body: answers in request order, from each question's logits in the same order.

    `input_tokens`: the tokens of all prompts together.
    """
    answers = {question.id: answer(question, row).to_json() for question, row in zip(questions, logits, strict=True)}
    return {"model": MODEL, "answers": answers, "usage": {"input_tokens": input_tokens, "output_tokens": 0}}


def _float32(value: float) -> float:
    """`value`, within [0, 1], rounded to float32 and widened."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
