"""From logits to answers and bodies as the family's own servers give them: float32 softmax, rounded to 4 decimals.

    p                    logits / T, less their maximum, exp, divided by the sum; all in float32
    confidence           of a choice and a score 1 - H(p) / ln k within [0, 1], 1 for a single option;
                         of a noul max(p, 1 - p): these two are not comparable
    answer_confidence    max p, which is
    score                sum of i p_i, in float64
    act_probability      softmax of the action logits, the first, in float32

The first maximum is the answer. Numbers are rounded correctly from their exact binary value (Python's `round`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any, Final

from frontend.families.laya.finishing import Logits
from frontend.families.laya.rendering import Rendered
from protocol.contracts.laya import Temperatures, Variant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL: Final = "laya-rl-agent"
DECIMALS: Final = 4


def routing(variant: Variant) -> dict[str, Any]:
    """The original chooses among checkpoints; here there is the one, whether the request names it or not."""
    return {
        "model": variant.name,
        "repo": variant.repository,
        "reason": f"explicit model='{variant.name}'",
        "detection": None,
        "workflow": None,
    }


def response(answers: Mapping[str, Any], input_tokens: int, variant: Variant) -> dict[str, Any]:
    """The body of a 200."""
    usage = {"input_tokens": input_tokens, "output_tokens": 0}
    return {"model": MODEL, "answers": dict(answers), "usage": usage, "routing": routing(variant)}


def answers(
    questions: Sequence[Rendered], logits: Sequence[Logits], temperatures: Temperatures
) -> dict[str, dict[str, Any]]:
    """The answers by question id, in order, rounded. The logits are finite."""
    return {
        question.id: answer(
            question,
            probabilities(found.options, temperatures.of(question.kind, len(found.options))),
            float(probabilities(found.action, 1.0)[0]),
        )
        for question, found in zip(questions, logits, strict=True)
    }


def answer(question: Rendered, values: NDArray[np.float32], act: float) -> dict[str, Any]:
    """The answer to one question from its float32 probabilities."""
    best = float(values.max())
    shared = {"answer_confidence": _rounded(best), "action": {"act_probability": _rounded(act)}}
    if question.kind == "noul":
        yes = float(values[1])
        return {"type": "noul", "noul": _rounded(yes), "confidence": _rounded(max(yes, 1.0 - yes)), **shared}
    spread = {name: _rounded(float(value)) for name, value in zip(question.names, values, strict=True)}
    certain = _rounded(confidence(values))
    if question.kind == "choice":
        chosen = question.names[int(values.argmax())]
        return {"type": "choice", "choice": chosen, "probabilities": spread, "confidence": certain, **shared}
    return {
        "type": "score",
        "score": _rounded(score(values)),
        "legend": dict(zip(question.names, question.legend, strict=True)),
        "probabilities": spread,
        "confidence": certain,
        **shared,
    }


def probabilities(logits: Sequence[float], temperature: float) -> NDArray[np.float32]:
    """The softmax of finite float32 logits, in float32."""
    import numpy as np

    with np.errstate(over="ignore"):
        scaled = np.clip(np.array(logits, np.float32) / np.float32(temperature), -_LARGEST, _LARGEST)
        # A difference of two finite numbers may be -inf, whose exp is 0.
        distances = scaled - scaled.max()
    # Each value is rounded from an exact one, so that it does not depend on the machine's vector units.
    weights = np.exp(distances.astype(np.float64)).astype(np.float32)
    found: NDArray[np.float32] = weights / weights.sum(dtype=np.float32)
    return found


def score(values: NDArray[np.float32]) -> float:
    """The mean level, counted from 0."""
    return float(sum([index * value for index, value in enumerate(values.tolist())]))


def confidence(values: NDArray[np.float32]) -> float:
    """How far the distribution is from a flat one: 1 less its entropy in float32 as a share of the largest."""
    import numpy as np

    count = len(values)
    if count < 2:
        return 1.0
    logarithms = np.log(np.maximum(values, np.float32(1e-12)).astype(np.float64)).astype(np.float32)
    entropy = -(values * logarithms).sum(dtype=np.float32)
    return min(1.0, max(0.0, 1.0 - float(entropy) / log(count)))


def _rounded(value: float) -> float:
    return round(value, DECIMALS)


_LARGEST: Final = 3.4028234663852886e38
"""In float32: what a quotient beyond it counts as."""
