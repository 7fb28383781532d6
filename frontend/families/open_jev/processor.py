"""The open-jev family in the front: one request in, a token row per candidate out, scores in, answers out.

    rendering   questions and state as the prompts the model was trained on
    rows        chat, tokens, limits, cost
    finishing   answers of the System One profile, float64
    grammar     the family's own request body     } for the native profile
    native      its arithmetic and its bodies     }
    checkpoint  what the folder says

The unit is one whole request: every candidate's forward and the scalar head. The host returns raw scores;
everything after them is done here, over complete questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from frontend.families import documents
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.open_jev import finishing, rendering
from frontend.families.open_jev.checkpoint import Checkpoint, load
from frontend.families.open_jev.rows import check_candidates, check_questions
from frontend.families.refusal import Refused
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import open_jev as contract
from protocol.payloads import RowsRequest

BYTES_PER_SCORE: Final = 64
"""What `finish` does with one score takes about as long as reading this many bytes of JSON."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Question, ...]
    payload: RowsRequest
    temperature: float
    tokens: int


class OpenJevProcessor(CheckpointProcessor[Checkpoint]):
    """Prepares and finishes for `executor_host.executors.open_jev.executor`. One `RowsRequest` per request.

    The checkpoint's tokenizer is read when the processor is made, about a second for the released ones.
    """

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 32
    """Tokenizing reads about 2.5 MB/s and JSON 64 MB/s (measured); the instructions are in each candidate besides."""

    def read_checkpoint(self) -> Checkpoint:
        """As `CheckpointProcessor`."""
        return load(self.path, self.options["base"], self.options["max_length"])

    @property
    def model_id(self) -> str | None:
        """The base model, None while the checkpoint cannot be read."""
        return None if self._checkpoint is None else self._checkpoint.terms.model_id

    def prepare(self, request: DecisionRequest) -> Prepared:
        """The rows of the whole request; their cost is their tokens, the state counted in each.

        Raises `InvalidRequest` for what this model cannot be asked (questions need instructions, choices 1 to 255
        options, scores 2 to 10 levels, nouls no description or both; 4,096 questions and 65,536 candidates at
        most), `TokensExceeded` for a candidate above `max_length`, and `RequestTooLarge` for too many tokens.
        """
        checkpoint = self.checkpoint
        try:
            check_questions(len(request.questions))
            questions = [documents.rendered(question, rendering.question) for question in request.questions]
            check_candidates(questions)
            compiled = checkpoint.compile(request.state, questions)
        except Refused as error:
            raise error.for_systemone() from None
        context = _Context(request.questions, compiled.payload, checkpoint.terms.temperature, compiled.tokens)
        work = BYTES_PER_SCORE * compiled.candidates
        return Prepared((compiled.payload,), cost=compiled.tokens, work=work, context=context)

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the output that `finishing.read_scores` describes."""
        context = context_of(prepared, _Context)
        scores = finishing.read_scores(outputs, context.payload)
        answers = finishing.answers(context.questions, scores, context.temperature)
        return Decision(answers, input_tokens=context.tokens)
