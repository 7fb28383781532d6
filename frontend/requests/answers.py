"""The numeric contract: from a model's numbers to typed answers, in float64 and without rounding.

Every family finishes here, so that all models keep the same promises:

* probabilities are finite, within [0, 1], in request order, and sum to 1 within 1e-12;
* `choice` is the first of the most probable options, as is the mode that a score's confidence uses;
* `score` is the expected level counted from 0, clamped into [0, n-1] (a strict client refuses
  2.0000000000000004);
* `confidence` is 0 for a uniform distribution and 1 for a certain one or for a single option;
* `noul` is the probability of yes, not of the winning side.

Formulas: the hosted service's, as published with its documentation (n options or levels).

    choice   (max - 1/n) / (1 - 1/n)
    score    max(0, 1 - S/U),  S = sum p_i |i - m|,  U = mean of |i - (n-1)/2|,  m the most probable level

Plain Python floats on purpose: the front imports no numpy, and a request has few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite
from typing import Any, Final, TypeAlias

from frontend.requests.questions import Choice, Noul, Score, Text

PROBABILITY_SLACK: Final = 1e-6
"""How far outside [0, 1] a single probability of yes may lie and still be clamped: float32 rounding of a
sum is below 1e-6. Farther out it is not a probability."""


class AnswerError(ValueError):
    """The numbers are not a distribution, or not one of this question. The model's fault, never the client's."""


def softmax(logits: Sequence[float], temperature: float = 1.0) -> tuple[float, ...]:
    """Probabilities of `logits / temperature`; they sum to 1 within 1e-12.

    Raises `AnswerError` when there are no logits, when one is not finite, or when the temperature is not a
    finite number above 0.
    """
    if not (isfinite(temperature) and temperature > 0.0):
        raise AnswerError(f"a temperature of {temperature} is not a finite number above 0")
    if not logits:
        raise AnswerError("there are no logits")
    for logit in logits:
        if not isfinite(logit):
            raise AnswerError(f"a logit is {logit}")
    top = max(logits)
    # Subtracting first keeps exp within [0, 1]; a spread beyond the float range becomes exp(-inf) = 0.
    weights = [exp((float(logit) - top) / temperature) for logit in logits]
    total = fsum(weights)
    return tuple([weight / total for weight in weights])


def normalise(probabilities: Sequence[float]) -> tuple[float, ...]:
    """The same proportions with a sum of 1 within 1e-12.

    Raises `AnswerError` when there are none, when one is not finite or negative, or when all are zero.
    """
    if not probabilities:
        raise AnswerError("there are no probabilities")
    for probability in probabilities:
        if not 0.0 <= probability < _INFINITY:  # false for NaN too
            raise AnswerError(f"a probability is {probability}")
    try:
        total = fsum(probabilities)
    except OverflowError:
        top = max(probabilities)
        return normalise([probability / top for probability in probabilities])
    if total == 0.0:
        raise AnswerError("all probabilities are zero")
    return tuple([probability / total for probability in probabilities])


def choice_confidence(probabilities: Sequence[float]) -> float:
    """How far the best option is above chance, in [0, 1]; 1 for a single option."""
    count = len(probabilities)
    if count == 1:
        return 1.0
    chance = 1.0 / count
    return _clamp((max(probabilities) - chance) / (1.0 - chance), 1.0)


def score_confidence(probabilities: Sequence[float]) -> float:
    """How close the mass is to the most probable level, in [0, 1]; 1 for a single level."""
    count = len(probabilities)
    if count == 1:
        return 1.0
    mode = probabilities.index(max(probabilities))
    spread = fsum([probability * abs(level - mode) for level, probability in enumerate(probabilities)])
    uniform = (count * count // 2) / (2 * count)  # U in closed form
    return _clamp(1.0 - spread / uniform, 1.0)


def expected_score(probabilities: Sequence[float]) -> float:
    """The mean level, counted from 0, in [0, n-1]."""
    mean = fsum([level * probability for level, probability in enumerate(probabilities)])
    return _clamp(mean, float(len(probabilities) - 1))


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The chosen option and every option's probability, in request order."""

    choice: str
    probabilities: tuple[tuple[str, float], ...]
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The System One shape."""
        return {
            "type": "choice",
            "choice": self.choice,
            "probabilities": dict(self.probabilities),
            "confidence": self.confidence,
        }


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The probability of yes, and nothing else: the shape has no confidence."""

    noul: float

    def to_json(self) -> dict[str, Any]:
        """The System One shape."""
        return {"type": "noul", "noul": self.noul}


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The expected level, the levels as they were sent, and each level's probability."""

    score: float
    levels: tuple[Text, ...]
    probabilities: tuple[float, ...]
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The System One shape. The legend repeats every level unchanged, structured ones included."""
        return {
            "type": "score",
            "score": self.score,
            "legend": {str(index): level for index, level in enumerate(self.levels)},
            "probabilities": {str(index): value for index, value in enumerate(self.probabilities)},
            "confidence": self.confidence,
        }


Answer: TypeAlias = ChoiceAnswer | NoulAnswer | ScoreAnswer


def tempered(answer: Answer, temperature: float) -> Answer:
    """The answer that logits divided by `temperature` would have given: p^(1/T), normalised, and all that follows
    from the probabilities. The choice stays the one that was made, in a tie as well. `temperature`: finite, above 0."""
    if temperature == 1.0:
        return answer
    if isinstance(answer, NoulAnswer):
        return NoulAnswer(_tempered((answer.noul, 1.0 - answer.noul), temperature)[0])
    if isinstance(answer, ChoiceAnswer):
        names, given = zip(*answer.probabilities, strict=True)
        values = _tempered(given, temperature)
        return ChoiceAnswer(answer.choice, tuple(zip(names, values, strict=True)), choice_confidence(values))
    values = _tempered(answer.probabilities, temperature)
    return ScoreAnswer(expected_score(values), answer.levels, values, score_confidence(values))


def _tempered(probabilities: Sequence[float], temperature: float) -> tuple[float, ...]:
    # Relative to the largest, so that one at least stays 1, however small the others become.
    top = max(probabilities)
    return normalise([(probability / top) ** (1.0 / temperature) for probability in probabilities])


def winner(answer: Answer) -> tuple[str | bool | int, float]:
    """What is most probable, and how probable: the option, true or false, or the level's number from 0. The first of
    equals; of a noul, true."""
    if isinstance(answer, ChoiceAnswer):
        return answer.choice, max(probability for _, probability in answer.probabilities)
    if isinstance(answer, NoulAnswer):
        return answer.noul >= 0.5, max(answer.noul, 1.0 - answer.noul)
    top = max(answer.probabilities)
    return answer.probabilities.index(top), top


def choice_answer(question: Choice, probabilities: Sequence[float]) -> ChoiceAnswer:
    """The answer from one probability per option; they are normalised here. `AnswerError` as `normalise`."""
    values = _distribution(probabilities, len(question.options))
    names = [name for name, _ in question.options]
    # On the normalised values: a client that sees a tie must see the first of them chosen.
    best = values.index(max(values))
    return ChoiceAnswer(names[best], tuple(zip(names, values, strict=True)), choice_confidence(values))


def noul_answer(question: Noul, p_yes: float) -> NoulAnswer:
    """The answer from the probability of yes. `AnswerError` when it is not a probability."""
    if not -PROBABILITY_SLACK <= p_yes <= 1.0 + PROBABILITY_SLACK:  # false for NaN too
        raise AnswerError(f"the probability of yes is {p_yes}")
    return NoulAnswer(_clamp(float(p_yes), 1.0))


def score_answer(question: Score, probabilities: Sequence[float]) -> ScoreAnswer:
    """The answer from one probability per level; they are normalised here. `AnswerError` as `normalise`."""
    values = _distribution(probabilities, len(question.levels))
    return ScoreAnswer(expected_score(values), question.levels, values, score_confidence(values))


_INFINITY: Final = float("inf")


def _distribution(probabilities: Sequence[float], count: int) -> tuple[float, ...]:
    if len(probabilities) != count:
        raise AnswerError(f"{len(probabilities)} probabilities for {count} candidates")
    return normalise(probabilities)


def _clamp(value: float, top: float) -> float:
    return 0.0 if value < 0.0 else min(value, top)
