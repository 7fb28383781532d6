"""The laya family in the front: one request in, one padded batch of rows out, logits in, answers out.

    rendering   questions and state as the texts the model was trained on
    rows        tokens, cuts, markers, limits, padding
    finishing   answers of the System One profile, float64
    grammar     the family's own request body     } for the native profile
    serving     the siblings' request body        }
    native      arithmetic and rounding           }
    checkpoint  what the folder says

The unit is one whole request, scorer and action head included. The host returns raw logits; everything after them
is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from frontend.errors import InvalidRequest
from frontend.families import documents
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.laya import finishing, rendering
from frontend.families.laya.checkpoint import Checkpoint, load
from frontend.families.laya.rows import Compiled
from frontend.families.logits import BYTES_PER_LOGIT
from frontend.families.refusal import Refused
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import laya as contract


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Question, ...]
    temperatures: contract.Temperatures
    compiled: Compiled


class LayaProcessor(CheckpointProcessor[Checkpoint]):
    """Prepares and finishes for `executor_host.executors.laya.executor`. One `MarkedRowsRequest` per request."""

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 32
    """As of the other families that tokenize here: about 2.5 MB/s, where JSON is read at 64 MB/s (measured there)."""

    def read_checkpoint(self) -> Checkpoint:
        """As `CheckpointProcessor`."""
        return load(self.path)

    @property
    def variant(self) -> contract.Variant | None:
        """Which of the published checkpoints it is like, None while it cannot be read."""
        return None if self._checkpoint is None else self._checkpoint.variant

    def prepare(self, request: DecisionRequest) -> Prepared:
        """The rows of the whole request; their cost is their tokens, the state counted in each.

        Raises `InvalidRequest` for what this model cannot be asked (questions need instructions; at most 16 of
        them, with 2,048 options together), and `TokensExceeded` for whatever is too long, unless `truncate` cuts
        it. More options than a row has room for, some 126, are too long even then.
        """
        checkpoint = self.checkpoint
        try:
            questions = [documents.rendered(question, rendering.question) for question in request.questions]
            truncate = bool(self.options["truncate"])
            compiled = checkpoint.compile(request.state, questions, truncate=truncate)
        except Refused as error:
            raise error.for_systemone() from None
        if compiled.payload is None:
            raise InvalidRequest.at(("questions",), "there are no questions; at least 1 is expected", "too_short")
        return Prepared(
            units=(compiled.payload,),
            cost=compiled.tokens,
            work=BYTES_PER_LOGIT * len(compiled.payload.markers),
            context=_Context(request.questions, checkpoint.config.temperatures, compiled),
        )

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the output that `finishing.read_logits` describes.

        `x_act_probability` gives the model's second number for each question. What was cut is reported as
        `x_truncated: {"kept", "total"}`, in tokens of all rows.
        """
        context = context_of(prepared, _Context)
        compiled = context.compiled
        assert compiled.payload is not None
        logits = finishing.read_logits(outputs, compiled.payload)
        answers = finishing.answers(context.questions, logits, context.temperatures)
        extras: dict[str, Any] = {
            "x_act_probability": {
                name: finishing.act_probability(found) for (name, _), found in zip(answers, logits, strict=True)
            }
        }
        if compiled.tokens < compiled.whole_tokens:
            extras["x_truncated"] = {"kept": compiled.tokens, "total": compiled.whole_tokens}
        return Decision(answers, input_tokens=compiled.tokens, extras=extras)
