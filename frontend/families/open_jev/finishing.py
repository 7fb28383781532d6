"""From candidate scores to System One answers, in float64 and without rounding.

    choice, score   softmax(scores / T) over all candidates of the question
    noul            softmax([0, score] / T), the probability of yes

T is the checkpoint's, the same for every type. A question is normalised as a whole, however its candidates were
read: the scores of a part would be other decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from frontend.errors import InternalError
from frontend.families import answering
from frontend.requests.answers import Answer, softmax
from frontend.requests.questions import Noul, Question

if TYPE_CHECKING:
    from protocol.payloads import RowsRequest


def read_scores(outputs: Sequence[object], payload: RowsRequest) -> list[float]:
    """The score of each row, as the float64 of its float32.

    The one output is `{"logits": float32 [rows], ...}`, in the order of `payload`. Anything else is an
    `InternalError`; whether the numbers are finite is for the caller.
    """
    import numpy as np

    if len(outputs) != 1 or not isinstance(outputs[0], Mapping):
        raise InternalError("the model's output is not one map")
    logits = outputs[0].get("logits")
    if not (isinstance(logits, np.ndarray) and logits.dtype == np.float32 and logits.ndim == 1):
        raise InternalError("the model's logits are not one line of float32")
    if len(logits) != payload.rows:
        raise InternalError(f"the model gave {len(logits)} logits for {payload.rows} candidates")
    scores: list[float] = logits.tolist()
    return scores


def answers(
    questions: Sequence[Question], scores: Sequence[float], temperature: float
) -> tuple[tuple[str, Answer], ...]:
    """One answer per question, in order, from one score per candidate, in order.

    Raises `InternalError` when a score is not finite.
    """
    parts = answering.split(scores, map(candidates, questions))
    return answering.answers(questions, parts, lambda q, mine: _answer(q, mine, temperature))


def candidates(question: Question) -> int:
    """How many prompts a question becomes."""
    return 1 if isinstance(question, Noul) else answering.count(question)


def _answer(question: Question, scores: Sequence[float], temperature: float) -> Answer:
    logits = [0.0, *scores] if isinstance(question, Noul) else scores
    return answering.answer(question, softmax(logits, temperature))
