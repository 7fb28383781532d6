"""The nimble family's own server: body, answers, errors and health.

    bytes ──grammar──▶ Asked ──rows──▶ RowsRequest ──host──▶ raw logits ──native──▶ answers, not rounded

All that is wrong with a request is 422, invalid JSON included; nothing is ever cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from frontend.families.base import Prepared, context_of
from frontend.families.logits import BYTES_PER_LOGIT, read
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.nimble import grammar, native
from frontend.families.nimble.processor import NimbleProcessor
from frontend.families.nimble.rows import Compiled
from frontend.families.refusal import Refused
from protocol.contracts.nimble import V1, V2

TOTAL_PROMPTS: Final = 32
"""The rows of a request, and what they share, have together at most the tokens of so many longest prompts."""

NAMES: Final = frozenset((V1.name, V2.name))
"""What the published checkpoints are called."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    asked: grammar.Asked
    compiled: Compiled


class NimbleNative(NativeProfile):
    """`POST /v1/systemone` and `GET /health` as the original answers them."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = NimbleProcessor.PREPARE_WEIGHT
    ERROR_FIELD: ClassVar[str] = "error"
    FAILED: ClassVar[str] = native.FAILED

    @property
    def _processor(self) -> NimbleProcessor:
        return cast("NimbleProcessor", self.processor)

    def error_body(self, text: str) -> dict[str, Any]:
        """`{"error": {"message": text}}`."""
        return {self.ERROR_FIELD: {"message": text}}

    def prepare(self, body: bytes) -> Prepared:
        """The rows of the whole request."""
        processor = self._processor
        checkpoint = processor.checkpoint
        most = min(checkpoint.schema.trained, len(checkpoint.codes.names))
        try:
            asked = grammar.parse(grammar.read(body), NAMES, fill=processor.fill, most=most)
            compiled = processor.compile(asked.state, asked.questions)
        except Refused as error:
            raise NativeRefusal(422, error.message) from None
        total = TOTAL_PROMPTS * (processor.options["max_length"] + 1)
        if compiled.prefix + compiled.tokens > total:
            raise NativeRefusal(422, f"the prompts of the request have more than {total} tokens in total")
        work = BYTES_PER_LOGIT * int(compiled.payload.candidates.sum())
        return Prepared((compiled.payload,), cost=compiled.tokens, work=work, context=_Context(asked, compiled))

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in request order."""
        context = context_of(prepared, _Context)
        questions, compiled = context.asked.questions, context.compiled
        logits = read(outputs, compiled.payload.candidates.tolist())
        answers = native.answers(questions, logits, self._processor.divisor)
        return native.response(context.asked.model, answers, compiled.prefix + compiled.tokens, len(questions))

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Ready or not. How long the start took is not known here, which the original says with null, too."""
        return {"status": "ok" if host.ready else "unavailable", "startup_seconds": None}
