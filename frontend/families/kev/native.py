"""From logits to answers and bodies as the family's own server gives them: float32 softmax, rounded to 2 decimals.

    choice      the first most probable option; confidence (p_max - 1/n) / (1 - 1/n), 1 for a single one
    score       sum of i p_i; confidence 1 - (sum of p_i |i - mode|) / (n - 1), with the first mode
    noul        p[yes], without a confidence
    legend      the levels as the model reads them

`output_tokens` counts the tokens of the answers' JSON: nothing is generated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from frontend.families.checkpoints import EncodeAll
from frontend.families.kev.rendering import Rendered
from frontend.families.logits import softmax32

DECIMALS: Final = 2


def response(
    model: str, answers: Mapping[str, Any], input_tokens: int, encode: EncodeAll, seconds: float
) -> dict[str, Any]:
    """The body of a 200. `encode`: of the checkpoint's tokenizer. `seconds`: how long the model took."""
    (said,) = encode([json.dumps(answers)])
    return {
        "model": model,
        "answers": dict(answers),
        "usage": {"input_tokens": input_tokens, "output_tokens": len(said)},
        "latency_ms": round(seconds * 1000, 1),
    }


def answers(questions: Sequence[Rendered], logits: Sequence[Sequence[float]]) -> dict[str, dict[str, Any]]:
    """The answers by question id, in order, rounded. Raises `InternalError` for a logit that is not finite."""
    return {
        question.id: answer(question, softmax32(found, 1.0)) for question, found in zip(questions, logits, strict=True)
    }


def answer(question: Rendered, values: Sequence[float]) -> dict[str, Any]:
    """The answer to one question from one probability per option."""
    if question.kind == "noul":
        return {"type": "noul", "noul": _rounded(values[1])}
    spread = {name: _rounded(value) for name, value in zip(question.names, values, strict=True)}
    mode = values.index(max(values))
    if question.kind == "choice":
        return {
            "type": "choice",
            "choice": question.names[mode],
            "confidence": _rounded(choice_confidence(values)),
            "probabilities": spread,
        }
    return {
        "type": "score",
        "score": _rounded(sum([index * value for index, value in enumerate(values)])),
        "legend": dict(zip(question.names, question.options, strict=True)),
        "probabilities": spread,
        "confidence": _rounded(score_confidence(values, mode)),
    }


def choice_confidence(values: Sequence[float]) -> float:
    """How far the mode is above chance; 1 for a single option."""
    count = len(values)
    return 1.0 if count == 1 else (max(values) - 1 / count) / (1 - 1 / count)


def score_confidence(values: Sequence[float], mode: int) -> float:
    """1 less the mean distance from the mode as a share of the longest there is. Two levels or more."""
    return 1.0 - sum([value * abs(index - mode) for index, value in enumerate(values)]) / (len(values) - 1)


def _rounded(value: float) -> float:
    return round(value, DECIMALS)
