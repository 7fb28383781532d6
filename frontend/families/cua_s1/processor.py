"""The cua-s1 family in the front: one prompt per question in, one hidden state back, a letter out.

    prompt      what the model reads, and how much of it
    projection  the letters' logits of a hidden state
    grammar     the family's own request body    }
    native      its arithmetic and its answers   } for the native profile
    profile     its server's other words         }
    checkpoint  the tokenizer

The unit is one question: the executor is free for another request's question before the next one of this request
asks for it. Between the two the letters are projected, and numbers that are none end the request there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from frontend.errors import InternalError
from frontend.families import answering
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.cua_s1 import grammar
from frontend.families.cua_s1.checkpoint import Tokenizer, load
from frontend.families.cua_s1.projection import Letters
from frontend.families.cua_s1.prompt import MAX_OPTIONS, prompts
from frontend.families.refusal import Refused
from frontend.requests.answers import Answer, softmax
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question, Text
from protocol.contracts import cua_s1 as contract
from protocol.payloads import PromptRequest

BYTES_PER_LOGIT: Final = 64
"""What `finish` does with one logit takes about as long as reading this many bytes of JSON."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What `absorb` and `finish` need of a prepared request."""

    questions: tuple[Choice, ...]
    input_tokens: int
    """Tokens of all prompts together."""


class CuaS1Processor(CheckpointProcessor[Tokenizer]):
    """Prepares and finishes for `executor_host.executors.cua_s1.executor`. One `PromptRequest` per question.

    The tokenizer is read when the processor is made, about a second for the released one the first time.
    """

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 64
    """Tokenizing reads 2 MB/s and JSON 64 MB/s (measured), and every question repeats the state."""

    def __init__(self, facts: Mapping[str, object], options: Mapping[str, object], path: str | None = None) -> None:
        """As `Processor`. `facts["files"]` is the sha256 of every file the host has loaded, by its name, and
        `facts["letters"]` what `Letters.of` reads."""
        super().__init__(facts, options, path)
        self._letters = Letters.of(facts) if facts else None

    def read_checkpoint(self) -> Tokenizer:
        """As `CheckpointProcessor`."""
        return load(self.path)

    def compile(self, state: Text, questions: tuple[Choice, ...]) -> Prepared:
        """The units of a request that either dialect has found well formed; their cost is their tokens.

        Raises `Refused` when a prompt is too long, before any has been sent.
        """
        made = prompts(state, questions, self.checkpoint.encode)
        total = sum(map(len, made))
        work = BYTES_PER_LOGIT * sum([len(question.options) for question in questions])
        units = tuple([PromptRequest(np.array(tokens, np.int32)) for tokens in made])
        return Prepared(units, cost=total, work=work, context=Asked(questions, total))

    def prepare(self, request: DecisionRequest) -> Prepared:
        """Raises `InvalidRequest` for what this model cannot be asked (an empty state, nouls and scores, more than
        26 options), `RequestTooLarge` above 64 questions, `TokensExceeded` for a prompt above 16,384 tokens."""
        self.checkpoint  # noqa: B018  an unreadable checkpoint is said before anything is looked at
        try:
            grammar.checked_state(request.state)
            grammar.check_count(len(request.questions))
            questions = tuple([_choice(question) for question in request.questions])
            return self.compile(request.state, questions)
        except Refused as error:
            raise error.for_systemone() from None

    def absorb(self, prepared: Prepared, index: int, output: object) -> tuple[float, ...]:
        """The logits of the options of question `index`. Raises `InternalError` when they are not finite, so that
        no further question of the request is asked."""
        request = asked(prepared)
        if self._letters is None:
            raise InternalError("the host has handed over no letter rows")
        return self._letters.logits(output, len(request.questions[index].options))

    def settled(self, prepared: Prepared, index: int, kept: object) -> Sequence[tuple[str, Answer]]:
        """A unit is a question, so its answer is known when it has run."""
        question = asked(prepared).questions[index]
        return answering.answers((question,), (kept,), _answer) if isinstance(kept, tuple) else ()

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from what `absorb` has kept of each question."""
        request = asked(prepared)
        rows = logits(prepared, outputs)
        answers = answering.answers(request.questions, rows, _answer)
        return Decision(answers, input_tokens=request.input_tokens)


def logits(prepared: Prepared, outputs: Sequence[object]) -> list[tuple[float, ...]]:
    """The kept outputs of all questions as what they are; `InternalError` when they are something else."""
    questions = asked(prepared).questions
    rows = [row for row in outputs if isinstance(row, tuple)]
    if [len(row) for row in rows] != [len(question.options) for question in questions] or len(rows) != len(outputs):
        raise InternalError("there is not one logit for each option of each question")
    return rows


def asked(prepared: Prepared) -> Asked:
    """What `compile` has kept of a request; `InternalError` when it was not this family's."""
    return context_of(prepared, Asked)


def _choice(question: object) -> Choice:
    if not isinstance(question, Choice):
        name = str(getattr(question, "id", ""))
        raise grammar.unsupported(name, "noul" if isinstance(question, Noul) else "score")
    if not 1 <= len(question.options) <= MAX_OPTIONS:
        raise grammar.wrong_options(question.id)
    return question


def _answer(question: Question, row: Sequence[float]) -> Answer:
    return answering.answer(question, softmax(row))
