"""From candidate scores to answers and bodies as the family's own workers give them.

    p_i          exp((v_i - max v) / T) / sum, over the complete question, in float64; a noul's v is [0, score]
    choice       the first most probable option; confidence (p_max - 1/n) / (1 - 1/n), 1 for a single one
    score        sum of i p_i; confidence max(0, 1 - d / u), d = sum of p_i |i - mode|, u = mean of |i - (n-1)/2|
    noul         p[true], without a confidence

Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, isfinite
from typing import Any, Final

from frontend.errors import InternalError
from frontend.families.open_jev.rendering import Rendered

METHOD: Final = "native_merged_lora_decision_head"
PREFIX_CACHE: Final[Mapping[bool, Mapping[str, object]]] = {
    False: {"enabled": False, "mode": "independent_candidates"},
    # Ours alone: the original never shares.
    True: {"enabled": True, "mode": "shared_prefix"},
}
"""What is said of it, by whether the candidates' common beginning was read once."""

FAILED: Final = "model inference failed"


def response(
    answers: Mapping[str, Any],
    *,
    model_id: str,
    base_revision: str,
    temperature: float,
    max_length: int,
    candidates: int,
    input_tokens: int,
    seconds: float,
    shared: bool = False,
) -> dict[str, Any]:
    """The body of a 200. `seconds`: how long the model took. `shared`: whether candidates shared their beginning."""
    return {
        "model": model_id,
        "answers": dict(answers),
        "usage": {"input_tokens": input_tokens, "output_tokens": 0},
        "metadata": {
            "method": METHOD,
            "temperature": temperature,
            "candidate_sequences": candidates,
            "inference_seconds": seconds,
            "base_revision": base_revision,
            "max_length": max_length,
            "prefix_cache": dict(PREFIX_CACHE[shared]),
        },
    }


def answers(questions: Sequence[Rendered], scores: Sequence[float], temperature: float) -> dict[str, dict[str, Any]]:
    """The answers by question id, in order, from one score per candidate, in order.

    Raises `InternalError` when the scores are not as many as the candidates, or one is not finite.
    """
    done: dict[str, dict[str, Any]] = {}
    start = 0
    for question in questions:
        count = question.count
        values = scores[start : start + count]
        done[question.id] = answer(question, [0.0, *values] if question.kind == "noul" else values, temperature)
        start += count
    if start != len(scores):
        raise InternalError(FAILED)
    return done


def answer(question: Rendered, logits: Sequence[float], temperature: float) -> dict[str, Any]:
    """The answer to one question, from the logits of its names: a noul's are those of [false, true].

    Raises `InternalError` for another number of logits, for one that is not finite, and for a temperature that is
    not a finite number above 0.
    """
    if len(logits) != len(question.names):
        raise InternalError(FAILED)
    values = probabilities(logits, temperature)
    if question.kind == "noul":
        return {"type": "noul", "noul": values[1]}
    named = dict(zip(question.names, values, strict=True))
    if question.kind == "choice":
        best = question.names[values.index(max(values))]
        return {"type": "choice", "choice": best, "probabilities": named, "confidence": choice_confidence(values)}
    return {
        "type": "score",
        "score": sum([index * value for index, value in enumerate(values)]),
        "probabilities": named,
        "confidence": score_confidence(values),
        "legend": dict(zip(question.names, question.legend, strict=True)),
    }


def probabilities(logits: Sequence[float], temperature: float) -> list[float]:
    """The softmax of one complete question. Raises `InternalError` as `answer` does."""
    if not (isfinite(temperature) and temperature > 0.0 and logits and all(map(isfinite, logits))):
        raise InternalError(FAILED)
    top = max(logits)
    weights = [exp((value - top) / temperature) for value in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def choice_confidence(values: Sequence[float]) -> float:
    """How far the mode is above chance; 1 for a single option."""
    count = len(values)
    return 1.0 if count == 1 else (max(values) - 1 / count) / (1 - 1 / count)


def score_confidence(values: Sequence[float]) -> float:
    """How close the mass is to the mode, 0 where it is as spread as a uniform one or more. Two levels or more."""
    count = len(values)
    mode = values.index(max(values))
    spread = sum([value * abs(index - mode) for index, value in enumerate(values)])
    uniform = sum([abs(index - (count - 1) / 2) for index in range(count)]) / count
    return max(0.0, 1.0 - spread / uniform)
