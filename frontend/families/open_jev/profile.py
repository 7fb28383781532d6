"""The open-jev family's own server: body, answers, errors and health.

    bytes ──grammar──▶ Asked ──rows──▶ RowsRequest ──host──▶ raw scores ──native──▶ answers, not rounded

All that is wrong with a request is 422 in the original's words, invalid JSON included; nothing is ever cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from frontend.families.base import Prepared, context_of
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.open_jev import finishing, grammar, native
from frontend.families.open_jev.checkpoint import Checkpoint
from frontend.families.open_jev.processor import BYTES_PER_SCORE, OpenJevProcessor
from frontend.families.open_jev.rendering import Rendered
from frontend.families.open_jev.rows import Compiled
from frontend.families.refusal import Refused


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Rendered, ...]
    checkpoint: Checkpoint
    compiled: Compiled


class OpenJevNative(NativeProfile):
    """`POST /v1/systemone` and `GET /health` as the original worker answers them."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = OpenJevProcessor.PREPARE_WEIGHT
    ERROR_FIELD: ClassVar[str] = "error"
    FAILED: ClassVar[str] = native.FAILED

    def prepare(self, body: bytes) -> Prepared:
        """The rows of the whole request."""
        checkpoint = cast("OpenJevProcessor", self.processor).checkpoint
        try:
            asked = grammar.parse(grammar.read(body), grammar.names(checkpoint))
            compiled = checkpoint.compile(asked.state, asked.questions)
        except Refused as error:
            raise NativeRefusal(422, error.message) from None
        context = _Context(asked.questions, checkpoint, compiled)
        work = BYTES_PER_SCORE * compiled.candidates
        return Prepared((compiled.payload,), cost=compiled.tokens, work=work, context=context)

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in request order, and what was read. `inference_seconds` begins after the tokenizing here,
        which the original counts in."""
        context = context_of(prepared, _Context)
        terms, compiled = context.checkpoint.terms, context.compiled
        scores = finishing.read_scores(outputs, compiled.payload)
        (output,) = outputs
        return native.response(
            native.answers(context.questions, scores, terms.temperature),
            model_id=terms.model_id,
            base_revision=terms.base_revision,
            temperature=terms.temperature,
            max_length=terms.max_length,
            candidates=compiled.candidates,
            input_tokens=compiled.tokens,
            seconds=seconds,
            shared=isinstance(output, Mapping) and output.get("execution") == "shared",
        )

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Ready or not, and the base model's name."""
        processor = cast("OpenJevProcessor", self.processor)
        return {"status": "ready" if host.ready else "unavailable", "model": processor.model_id}
