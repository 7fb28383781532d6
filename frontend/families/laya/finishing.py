"""From logits to System One answers, in float64 and without rounding.

    choice, score   softmax(logits / T)
    noul            softmax(logits / T), the probability of the true side

T is the temperature for the question's type and number of options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from frontend.answers import Answer, AnswerError, choice_answer, noul_answer, score_answer, softmax
from frontend.errors import InternalError
from frontend.families.laya.config import Temperatures
from frontend.questions import Choice, Noul, Question, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from protocol.payloads import MarkedRowsRequest


@dataclass(frozen=True, slots=True)
class Logits:
    """What the model says of one question, raw."""

    options: NDArray[np.float32]
    """[options], in order."""

    action: NDArray[np.float32]
    """[actions], of which the first is to act."""


def read_logits(outputs: Sequence[object], payload: MarkedRowsRequest) -> list[Logits]:
    """The logits of each question, in the order of `payload`.

    The one output is `{"logits": float32 [sum of counts], "counts": int32 [questions], "action": float32
    [questions, actions], ...}`. Anything else is an `InternalError`, and so is a number that is not finite.
    """
    import numpy as np

    if len(outputs) != 1 or not isinstance(outputs[0], Mapping):
        raise InternalError("the model's output is not one map")
    output: Mapping[str, Any] = outputs[0]
    logits, counts, action = (output.get(name) for name in ("logits", "counts", "action"))
    rows = payload.rows
    if not (_floats(logits, 1) and _floats(action, 2) and len(action) == rows and action.shape[1] > 0):
        raise InternalError("the model's logits are not float32 numbers for every question")
    if not (isinstance(counts, np.ndarray) and np.array_equal(counts, payload.counts[:rows])):
        raise InternalError("the model's logits are not those of the questions it was sent")
    if len(logits) != int(counts.sum()):
        raise InternalError(f"the model gave {len(logits)} logits for {int(counts.sum())} options")
    if not (np.isfinite(logits).all() and np.isfinite(action).all()):
        raise InternalError("a logit of the model is not finite")
    options = np.split(logits, np.cumsum(counts)[:-1])
    return [Logits(*pair) for pair in zip(options, action, strict=True)]


def _floats(value: object, dimensions: int) -> TypeGuard[NDArray[np.float32]]:
    import numpy as np

    return isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim == dimensions


def answers(
    questions: Sequence[Question], logits: Sequence[Logits], temperatures: Temperatures
) -> tuple[tuple[str, Answer], ...]:
    """One answer per question, in order."""
    done: list[tuple[str, Answer]] = []
    for question, found in zip(questions, logits, strict=True):
        try:
            done.append((question.id, _answer(question, found.options.tolist(), temperatures)))
        except AnswerError as error:
            raise InternalError(
                f'the model\'s answer to question "{printable(question.id)}" is not usable: {error}'
            ) from None
    return tuple(done)


def act_probability(found: Logits) -> float:
    """The probability of acting on the answer, in float64."""
    return softmax(found.action.tolist())[0]


def _answer(question: Question, logits: Sequence[float], temperatures: Temperatures) -> Answer:
    count = len(logits)
    if isinstance(question, Choice):
        return choice_answer(question, softmax(logits, temperatures.of("choice", count)))
    if isinstance(question, Noul):
        return noul_answer(question, softmax(logits, temperatures.of("noul", count))[1])
    return score_answer(question, softmax(logits, temperatures.of("score", count)))
