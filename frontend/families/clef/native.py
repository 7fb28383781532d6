"""From logits to answers as the published inference file gives them: float32 softmax, float64 after it, rounded.

    noul     P(true)
    choice   the first most probable option in request order, and its probability as confidence
    score    sum of index * p; the largest probability as confidence; the levels as they were sent

There is no temperature. Numbers are rounded correctly from their exact binary value (Python's `round`) to four
decimals, scores too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from frontend.families.logits import softmax32

DECIMALS: Final = 4


def answer(question: Mapping[str, Any], logits: Sequence[float]) -> dict[str, Any]:
    """The answer to one question from its logits, which are in request order, those of a noul [true, false].

    Raises `InternalError` when one is not finite.
    """
    values = softmax32(logits, 1.0)
    if question["type"] == "noul":
        return {"type": "noul", "noul": _rounded(values[0])}
    best = max(values)
    if question["type"] == "choice":
        names = list(question["criteria"])
        return {
            "type": "choice",
            "choice": names[values.index(best)],
            "confidence": _rounded(best),
            "probabilities": {name: _rounded(value) for name, value in zip(names, values, strict=True)},
        }
    return {
        "type": "score",
        "score": _rounded(sum([level * value for level, value in enumerate(values)])),
        "confidence": _rounded(best),
        "legend": {str(level): description for level, description in enumerate(question["criteria"])},
        "probabilities": {str(level): _rounded(value) for level, value in enumerate(values)},
    }


def _rounded(value: float) -> float:
    return round(value, DECIMALS)
