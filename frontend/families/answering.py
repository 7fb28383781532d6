"""From a model's numbers to the answers of a request, where families differ in the numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from frontend.errors import InternalError
from frontend.requests.answers import Answer, AnswerError, choice_answer, noul_answer, score_answer
from frontend.requests.questions import Choice, Noul, Question, printable

GivenT = TypeVar("GivenT")


def count(question: Question) -> int:
    """How many options, levels or sides a question has."""
    if isinstance(question, Noul):
        return 2
    return len(question.options if isinstance(question, Choice) else question.levels)


def answer(question: Question, probabilities: Sequence[float], *, yes: int = 1) -> Answer:
    """The answer from one probability per option, level or side. `yes`: the place of a noul's true side.

    Raises `AnswerError`.
    """
    if isinstance(question, Choice):
        return choice_answer(question, probabilities)
    if isinstance(question, Noul):
        if len(probabilities) != 2:
            raise AnswerError(f"{len(probabilities)} probabilities for 2 candidates")
        return noul_answer(question, probabilities[yes])
    return score_answer(question, probabilities)


def answers(
    questions: Sequence[Question], given: Iterable[GivenT], make: Callable[[Question, GivenT], Answer]
) -> tuple[tuple[str, Answer], ...]:
    """One answer per question, in order, from what is given for each.

    Raises `InternalError` naming the question where `make` raises `AnswerError`: the model's numbers are no answer.
    """
    return tuple(
        [(question.id, _made(question, value, make)) for question, value in zip(questions, given, strict=True)]
    )


def _made(question: Question, value: GivenT, make: Callable[[Question, GivenT], Answer]) -> Answer:
    try:
        return make(question, value)
    except AnswerError as error:
        name = printable(question.id)
        raise InternalError(f'the model\'s answer to question "{name}" is not usable: {error}') from None


def split(values: Sequence[GivenT], counts: Iterable[int]) -> list[Sequence[GivenT]]:
    """The values of each question, of which there are so many, in order."""
    parts, start = [], 0
    for number in counts:
        parts.append(values[start : start + number])
        start += number
    return parts
