"""From logits to System One answers, in float64 and without rounding.

    choice, score   softmax(logits / T)
    noul            softmax(logits / T), the probability of the true side

T is the temperature for the question's type and number of options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frontend.errors import InternalError
from frontend.families import answering
from frontend.families.logits import read
from frontend.requests.answers import Answer, softmax
from frontend.requests.questions import Choice, Noul, Question
from protocol.contracts.laya import Temperatures

if TYPE_CHECKING:
    from protocol.payloads import MarkedRowsRequest


@dataclass(frozen=True, slots=True)
class Logits:
    """What the model says of one question, raw: float32 values."""

    options: Sequence[float]
    """[options], in order."""

    action: Sequence[float]
    """[actions], of which the first is to act."""


def read_logits(outputs: Sequence[object], payload: MarkedRowsRequest) -> list[Logits]:
    """The logits of each question, in the order of `payload`.

    The one output is what `families.logits.read` reads, with `action`: float32 [questions, actions]. Anything else is
    an `InternalError`, and so is a number that is not finite.
    """
    import numpy as np

    options = read(outputs, payload.counts[: payload.rows].tolist())
    (output,) = outputs
    assert isinstance(output, Mapping)
    action = output.get("action")
    if not (isinstance(action, np.ndarray) and action.dtype == np.float32 and action.ndim == 2):
        raise InternalError("the model's actions are not rows of float32")
    if len(action) != payload.rows or action.shape[1] == 0:
        raise InternalError("the model's actions are not those of the questions it was sent")
    if not (np.isfinite(output["logits"]).all() and np.isfinite(action).all()):
        raise InternalError("a logit of the model is not finite")
    return [Logits(*pair) for pair in zip(options, action.tolist(), strict=True)]


def answers(
    questions: Sequence[Question], logits: Sequence[Logits], temperatures: Temperatures
) -> tuple[tuple[str, Answer], ...]:
    """One answer per question, in order."""
    return answering.answers(questions, logits, lambda q, found: _answer(q, found.options, temperatures))


def act_probability(found: Logits) -> float:
    """The probability of acting on the answer, in float64."""
    return softmax(found.action)[0]


def _answer(question: Question, logits: Sequence[float], temperatures: Temperatures) -> Answer:
    kind = "choice" if isinstance(question, Choice) else "noul" if isinstance(question, Noul) else "score"
    return answering.answer(question, softmax(logits, temperatures.of(kind, len(logits))))
