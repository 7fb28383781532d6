"""From logits to answers and bodies as the family's own server gives them: float64, not rounded.

p_i         exp((v_i - max v) / T) / sum
choice      the first most probable option
score       sum of i p_i; the legend is what describes the levels
noul        p[true], without a confidence
confidence  1 - H(p) / ln n: how concentrated the distribution is, and not the hosted service's figure
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, isfinite, log
from typing import Any, Final

from frontend.errors import InternalError
from frontend.families.nimble.rendering import Rendered

FAILED: Final = "model inference failed"


def response(model: str, answers: Mapping[str, Any], input_tokens: int, questions: int) -> dict[str, Any]:
    """The body of a 200. The original has one token generated for what the rows share and one for each row, counts
    them, and throws them away."""
    usage = {"input_tokens": input_tokens, "output_tokens": questions + 1}
    return {"model": model, "answers": dict(answers), "usage": usage}


def answers(
    questions: Sequence[Rendered], logits: Sequence[Sequence[float]], temperature: float
) -> dict[str, dict[str, Any]]:
    """The answers by question id, in order. Raises `InternalError` for a logit that is not finite."""
    return {
        question.id: answer(question, probabilities(found, temperature))
        for question, found in zip(questions, logits, strict=True)
    }


def answer(question: Rendered, values: Sequence[float]) -> dict[str, Any]:
    """The answer to one question from one probability per value."""
    if question.kind == "noul":
        return {"type": "noul", "noul": values[1]}
    named = dict(zip(question.names, values, strict=True))
    if question.kind == "choice":
        best = question.names[values.index(max(values))]
        return {"type": "choice", "choice": best, "probabilities": named, "confidence": confidence(values)}
    return {
        "type": "score",
        "score": sum([index * value for index, value in enumerate(values)]),
        "legend": dict(zip(question.names, question.texts, strict=True)),
        "probabilities": named,
        "confidence": confidence(values),
    }


def probabilities(logits: Sequence[float], temperature: float) -> list[float]:
    """The softmax of one question. Raises `InternalError` for a logit that is not finite."""
    if not all(map(isfinite, logits)):
        raise InternalError(FAILED)
    top = max(logits)
    weights = [exp((value - top) / temperature) for value in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def confidence(values: Sequence[float]) -> float:
    """1 less the entropy as a share of the largest there is; 1 for a single value."""
    if len(values) == 1:
        return 1.0
    entropy = -sum([value * log(value) for value in values if value > 0.0])
    return min(1.0, max(0.0, 1.0 - entropy / log(len(values))))
