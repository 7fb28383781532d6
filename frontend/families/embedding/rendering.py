"""Which texts of a question are compared with the state, and how the cosines become an answer.

    choice   a text per option, "name: description"                 softmax(scale x cosines)
    score    a text per level                                       softmax(scale x cosines)
    noul     the two described sides                                softmax(scale x cosines), the part of "true"
    noul     one described side alone, or else the instructions,    1 / (1 + exp(-STEEPNESS x (cosine - MIDDLE)))
             read as a statement

Otherwise instructions are not read: an encoder finds what is about the same things, and instructions are about the
same things whatever the answer is. One option or level is answered without the model.

The statement reading only says how much the state and the statement are about the same things; a negation or a
number changes nothing. Its answers are kept near 0.5, and the questions that got one are named in `x_statement`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frontend.requests.answers import Answer, choice_answer, noul_answer, score_answer, softmax
from frontend.requests.questions import Choice, Noul, Question, Text, printable

MIDDLE: Final = 0.2
"""The cosine that says nothing: below it are statements about something else, above it those about the same thing
(measured with all-MiniLM-L6-v2, where the former are about 0.0 and the latter 0.2 to 0.6)."""

STEEPNESS: Final = 2.0
"""A cosine of 1 gives 0.83 and one of 0 gives 0.40: no answer of the statement reading looks like a sure one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One question as texts."""

    question: Question
    how: Literal["single", "candidates", "sides", "statement", "counterstatement"]
    texts: tuple[str, ...]
    """Options, levels, the sides "false" and "true", or the one statement; none for a single option or level."""

    @property
    def weak(self) -> bool:
        """Whether the answer is one of the statement reading."""
        return self.how in ("statement", "counterstatement")

    def place(self, index: int) -> str:
        """What text `index` is called, for people."""
        name = printable(self.question.id)
        if isinstance(self.question, Choice):
            return f'option "{printable(self.question.options[index][0])}" of question "{name}"'
        if not isinstance(self.question, Noul):
            return f'level {index} of question "{name}"'
        if self.how == "sides":
            return f'side "{("false", "true")[index]}" of question "{name}"'
        return f'the statement of question "{name}"'


def text(value: Text) -> str:
    """A string as it is, an object or an array as JSON in the order it was sent."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read(question: Question) -> Reading:
    """The texts of a question."""
    if isinstance(question, Choice):
        if len(question.options) == 1:
            return Reading(question, "single", ())
        return Reading(question, "candidates", tuple([_option(*option) for option in question.options]))
    if not isinstance(question, Noul):
        if len(question.levels) == 1:
            return Reading(question, "single", ())
        return Reading(question, "candidates", tuple(map(text, question.levels)))
    no, yes = (_described(question.side(name)) for name in ("false", "true"))
    if yes and no:
        return Reading(question, "sides", (no, yes))
    if no:
        return Reading(question, "counterstatement", (no,))
    return Reading(question, "statement", (yes or _described(question.instructions),))


def answer(reading: Reading, cosines: Sequence[float], scale: float) -> Answer:
    """The answer in float64, from one cosine per text. Raises `AnswerError`."""
    question = reading.question
    if isinstance(question, Noul):
        if reading.how == "sides":
            return noul_answer(question, softmax(cosines, 1.0 / scale)[1])
        (cosine,) = cosines
        no_and_yes = softmax((0.0, STEEPNESS * (cosine - MIDDLE)))
        return noul_answer(question, no_and_yes[reading.how == "statement"])
    probabilities = (1.0,) if reading.how == "single" else softmax(cosines, 1.0 / scale)
    if isinstance(question, Choice):
        return choice_answer(question, probabilities)
    return score_answer(question, probabilities)


def _option(name: str, description: Text | None) -> str:
    described = _described(description)
    return f"{name}: {described}" if described else name


def _described(value: Text | None) -> str:
    """The text of a description, "" when it describes nothing."""
    if not value or (isinstance(value, str) and not value.strip()):
        return ""
    return text(value)
