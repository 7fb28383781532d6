"""The decider family in the front: one request in, all of its token rows out, logits in, answers out.

    rendering  questions and state as the texts the model was trained on
    tokens     which strings are encoded together; the label tokens
    rows       expansion, limits, cost, usage
    finishing  answers of the System One profile, float64
    grammar    the family's own request body    } for the native profile
    native     its arithmetic and its rounding  }
    checkpoint, config   what the folder says

The unit is one whole request. The host returns raw logits; everything after them is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from frontend.errors import InvalidRequest
from frontend.families import documents, logits
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.decider import finishing, rendering
from frontend.families.decider.checkpoint import Checkpoint, load
from frontend.families.decider.rows import Compiled, compile_rows
from frontend.families.refusal import Refused
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import decider as contract
from protocol.payloads import RowsRequest


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Question, ...]
    payload: RowsRequest
    temperatures: contract.Temperatures
    compiled: Compiled


class DeciderProcessor(CheckpointProcessor[Checkpoint]):
    """Prepares and finishes for `executor_host.executors.decider.executor`. One `RowsRequest` per request.

    The checkpoint is read when the processor is made, about a second for the released one the first time.
    """

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 32
    """Tokenizing reads about 2.5 MB/s and JSON 64 MB/s (measured); a score's levels repeat its question besides."""

    def read_checkpoint(self) -> Checkpoint:
        """As `CheckpointProcessor`."""
        return load(self.path)

    def prepare(self, request: DecisionRequest) -> Prepared:
        """The rows of the whole request; their cost is their tokens, the state counted in each.

        Raises `InvalidRequest` for what this model cannot be asked (choices need 2 to 255 options, scores 2 to
        10 levels, and both instructions), `TokensExceeded` for a state above 32,768 tokens unless `truncate`
        cuts it, or for a row above 36,864, and `RequestTooLarge` above 1,024 rows or 1,048,576 tokens.
        """
        checkpoint = self.checkpoint
        try:
            questions = [documents.rendered(question, rendering.question) for question in request.questions]
            truncate = bool(self.options["truncate"])
            compiled = compile_rows(request.state, questions, checkpoint.vocabulary, truncate=truncate)
        except Refused as error:
            raise error.for_systemone() from None
        if compiled.payload is None:
            raise InvalidRequest.at(("questions",), "there are no questions; at least 1 is expected", "too_short")
        context = _Context(request.questions, compiled.payload, checkpoint.temperatures, compiled)
        work = logits.BYTES_PER_LOGIT * int(compiled.payload.candidates.sum())
        return Prepared((compiled.payload,), cost=compiled.processed_tokens, work=work, context=context)

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the output that `logits.read` describes.

        A state that was cut is reported as `x_truncated: {"kept", "total"}`, in tokens of the state part.
        """
        context = context_of(prepared, _Context)
        rows = logits.read(outputs, context.payload.candidates.tolist())
        answers = finishing.answers(context.questions, rows, context.temperatures)
        compiled = context.compiled
        extras: dict[str, Any] = {}
        if compiled.state_tokens < compiled.whole_state_tokens:
            extras["x_truncated"] = {"kept": compiled.state_tokens, "total": compiled.whole_state_tokens}
        return Decision(answers, input_tokens=compiled.input_tokens, extras=extras)
