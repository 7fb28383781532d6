"""The kev family in the front: one request in, one marked row per question out, logits in, answers out.

    rendering   questions and state as the texts the model was trained on
    rows        tokens, marks, limits, cost
    grammar     the family's own request body     } for the native profile
    native      its arithmetic and its rounding   }
    checkpoint  what the folder says

The unit is one whole request. The host returns logits that its head's temperature has divided already, because it
stands in a file that only a device library reads; everything after them is done here, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from frontend.families import answering, documents
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.kev import rendering
from frontend.families.kev.checkpoint import Checkpoint, load
from frontend.families.kev.rows import Compiled
from frontend.families.logits import BYTES_PER_LOGIT, read
from frontend.families.refusal import Refused
from frontend.requests.answers import softmax
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import kev as contract


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Question, ...]
    compiled: Compiled


class KevProcessor(CheckpointProcessor[Checkpoint]):
    """Prepares and finishes for `executor_host.executors.kev.executor`. One `MarkedRowsRequest` per request."""

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 32
    """As of the other families that tokenize here: about 2.5 MB/s, where JSON is read at 64 MB/s (measured there)."""

    def read_checkpoint(self) -> Checkpoint:
        """As `CheckpointProcessor`."""
        return load(self.path, self.options["base"])

    def compile(self, state: object, questions: Sequence[rendering.Rendered]) -> Compiled:
        """The rows of a request. Raises `Refused` as `rows.compile_rows`."""
        return self.checkpoint.compile(state, questions, self.options["max_length"])

    def prepare(self, request: DecisionRequest) -> Prepared:
        """The rows of the whole request; their cost is their tokens, the state counted once.

        Raises `InvalidRequest` for what this model cannot be asked (questions need instructions; choices have 1 to 255
        options, scores 2 to 255 levels; 4,096 questions and 65,536 options at most), `TokensExceeded` for a state, or a
        state with a question, above `max_length`, and `RequestTooLarge` for too many tokens.
        """
        try:
            questions = [documents.rendered(question, rendering.question) for question in request.questions]
            compiled = self.compile(request.state, questions)
        except Refused as error:
            raise error.for_systemone() from None
        work = BYTES_PER_LOGIT * len(compiled.payload.markers)
        return Prepared(
            (compiled.payload,), cost=compiled.tokens, work=work, context=_Context(request.questions, compiled)
        )

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the output that `families.logits.read` describes."""
        context = context_of(prepared, _Context)
        logits = read(outputs, context.compiled.payload.counts.tolist())
        answers = answering.answers(
            context.questions, logits, lambda question, found: answering.answer(question, softmax(found))
        )
        return Decision(answers, input_tokens=context.compiled.tokens)
