"""From logits to System One answers, in float64 and without rounding.

    choice   softmax(logits / T)
    noul     softmax(logits / T), the probability of yes
    score    each level i has logits [no, yes] of its own: fit_i = sigmoid((yes - no) / T), and the
             distribution over the levels is fit / sum(fit)

T is the temperature of the question's type; all rows of a score use the score's. The score's division is
done on logarithms, where it never meets a sum of zero: if no level fits at all, the answer is still how they
compare. The native arithmetic (`native`) rounds such fits to 0 in float32, and only there the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite, log1p

from frontend.families import answering
from frontend.requests.answers import Answer, AnswerError, softmax
from frontend.requests.questions import Choice, Noul, Question
from protocol.contracts.decider import Temperatures


def answers(
    questions: Sequence[Question], rows: Sequence[Sequence[float]], temperatures: Temperatures
) -> tuple[tuple[str, Answer], ...]:
    """One answer per question, in order, from the logits of their rows, in order.

    Raises `InternalError` when a logit is not finite.
    """
    counts = [1 if isinstance(question, (Choice, Noul)) else len(question.levels) for question in questions]
    return answering.answers(questions, answering.split(rows, counts), lambda q, mine: _answer(q, mine, temperatures))


def _answer(question: Question, rows: Sequence[Sequence[float]], temperatures: Temperatures) -> Answer:
    if isinstance(question, (Choice, Noul)):
        temperature = temperatures.choice if isinstance(question, Choice) else temperatures.noul
        return answering.answer(question, softmax(rows[0], temperature))
    return answering.answer(question, softmax([log_fit(no, yes, temperatures.score) for no, yes in rows]))


def log_fit(no: float, yes: float, temperature: float) -> float:
    """The logarithm of the probability of yes, for float32 logits. Raises `AnswerError` when one is not finite."""
    if not (isfinite(no) and isfinite(yes)):
        raise AnswerError(f"the logits of a level are {no} and {yes}")
    lead = (yes - no) / temperature
    return -log1p(exp(-lead)) if lead >= 0.0 else lead - log1p(exp(lead))
