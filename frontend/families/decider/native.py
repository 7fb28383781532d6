"""From logits to answers as the family's own servers give them: float32 softmax, float64 after it, rounded.

    probabilities   per row: logits / T, less their maximum, exp, divided by the sum; all in float32
    choice, noul    the row's probabilities divided by their sum once more, in float64
    score           fit_i = probability of yes of level i; mass = sum(fit), or 1e-9 when that is 0;
                    distribution = fit / mass

Formulas, ties and decimals are the contract's (1.5): the first maximum is the mode; a distribution that sums
to 0 counts as uniform in the two confidences, and nowhere else; numbers are rounded correctly from their exact
binary value (Python's `round`) to four decimals, a score to two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

from frontend.families.decider.rendering import Rendered
from frontend.families.decider.rows import row_count
from frontend.families.logits import softmax32
from protocol.contracts.decider import Temperatures

DECIMALS: Final = 4
SCORE_DECIMALS: Final = 2

NO_MASS: Final = 1e-9
"""What the fits of a score are divided by when they are all 0."""


@dataclass(frozen=True, slots=True)
class Noul:
    """The probability of yes."""

    noul: float

    def to_json(self) -> dict[str, Any]:
        """The response's object, rounded."""
        return {"type": "noul", "noul": _rounded(self.noul)}


@dataclass(frozen=True, slots=True)
class Choice:
    """The first most probable option, and each option's probability in request order. Not rounded."""

    choice: str
    names: tuple[str, ...]
    probabilities: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """The response's object, rounded."""
        return {
            "type": "choice",
            "choice": self.choice,
            "confidence": _rounded(choice_confidence(self.probabilities)),
            "x_p_max": _rounded(max(self.probabilities)),
            "certainty": _rounded(certainty(self.probabilities)),
            "probabilities": {
                name: _rounded(value) for name, value in zip(self.names, self.probabilities, strict=True)
            },
        }


@dataclass(frozen=True, slots=True)
class Score:
    """The mean level, counted from 0, each level's probability, and how each fits by itself. Not rounded."""

    score: float
    legend: tuple[str, ...]
    probabilities: tuple[float, ...]
    fits: tuple[float, ...]
    mass: float

    def to_json(self) -> dict[str, Any]:
        """The response's object, rounded."""
        return {
            "type": "score",
            "score": round(self.score, SCORE_DECIMALS),
            "confidence": _rounded(score_confidence(self.probabilities)),
            "x_p_max": _rounded(max(self.probabilities)),
            "certainty": _rounded(certainty(self.probabilities)),
            "legend": {str(index): level for index, level in enumerate(self.legend)},
            "probabilities": {str(index): _rounded(value) for index, value in enumerate(self.probabilities)},
            "level_fit": {str(index): _rounded(value) for index, value in enumerate(self.fits)},
            "fit_mass": _rounded(self.mass),
        }


def answers(
    questions: Sequence[Rendered], rows: Sequence[Sequence[float]], temperatures: Temperatures
) -> list[tuple[str, Noul | Choice | Score]]:
    """One answer per question, in order, from the logits of their rows, in order. `InternalError` as above."""
    done = []
    start = 0
    for question in questions:
        count = row_count(question)
        temperature: float = getattr(temperatures, question.kind)
        spread = [softmax32(row, temperature) for row in rows[start : start + count]]
        done.append((question.id, answer(question, spread)))
        start += count
    return done


def answer(question: Rendered, rows: Sequence[Sequence[float]]) -> Noul | Choice | Score:
    """The answer from the float32 probabilities of the question's rows."""
    if question.kind == "score":
        fits = tuple([row[1] for row in rows])
        mass = sum(fits) or NO_MASS
        levels = _normalised([fit / mass for fit in fits])
        mean = sum([index * value for index, value in enumerate(levels)])
        return Score(mean, question.legend, levels, fits, mass)
    values = _normalised(rows[0])
    if question.kind == "noul":
        return Noul(values[1])
    return Choice(question.names[values.index(max(values))], question.names, values)


def choice_confidence(values: Sequence[float]) -> float:
    """How far the mode is above chance: (n p - 1) / (n - 1) within [0, 1]. Two options or more."""
    count = len(values)
    return _within((count * max(_or_uniform(values)) - 1) / (count - 1))


def score_confidence(values: Sequence[float]) -> float:
    """How close the mass is to the mode: 1 - sum p_i |i - k| / D within [0, 1]. Two levels or more.

    k is the mode, D = (1/n) sum |i - (n-1)/2| the mean distance of the levels from their middle.
    """
    count, values = len(values), _or_uniform(values)
    mode = values.index(max(values))
    spread = sum([value * abs(index - mode) for index, value in enumerate(values)])
    middle = (count - 1) / 2
    return _within(1.0 - spread / (sum([abs(index - middle) for index in range(count)]) / count))


def certainty(values: Sequence[float]) -> float:
    """1 less the entropy as a share of its maximum: 0 for a flat distribution, 1 for a certain one."""
    entropy = -sum([value * log(value) for value in values if value > 0.0])
    return max(0.0, 1.0 - entropy / log(len(values)))


def _normalised(values: Sequence[float]) -> tuple[float, ...]:
    total = sum(values) or 1.0
    return tuple([value / total for value in values])


def _or_uniform(values: Sequence[float]) -> Sequence[float]:
    """What the confidences see."""
    total = sum(values)
    return [1.0 / len(values)] * len(values) if total == 0.0 else [value / total for value in values]


def _within(value: float) -> float:
    return min(1.0, max(0.0, value))


def _rounded(value: float) -> float:
    return round(value, DECIMALS)
