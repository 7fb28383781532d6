"""The kev family's own server: body, answers, errors and health.

    bytes ──grammar──▶ Asked ──rows──▶ MarkedRowsRequest ──host──▶ logits ──native──▶ rounded answers

All that is wrong with a request is 422, invalid JSON included; nothing is ever cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from frontend.families.base import Prepared, context_of
from frontend.families.kev import grammar, native
from frontend.families.kev.processor import KevProcessor
from frontend.families.kev.rows import Compiled
from frontend.families.logits import BYTES_PER_LOGIT, read
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.refusal import Refused


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    asked: grammar.Asked
    compiled: Compiled


class KevNative(NativeProfile):
    """`POST /v1/systemone` as the original answers it, and a `GET /health`, which it does not have."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = KevProcessor.PREPARE_WEIGHT

    def prepare(self, body: bytes) -> Prepared:
        """The rows of the whole request."""
        try:
            asked = grammar.parse(grammar.read(body))
            compiled = cast("KevProcessor", self.processor).compile(asked.state, asked.questions)
        except Refused as error:
            raise NativeRefusal(422, error.message) from None
        work = BYTES_PER_LOGIT * len(compiled.payload.markers)
        return Prepared((compiled.payload,), cost=compiled.tokens, work=work, context=_Context(asked, compiled))

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in request order, rounded."""
        context = context_of(prepared, _Context)
        logits = read(outputs, context.compiled.payload.counts.tolist())
        answers = native.answers(context.asked.questions, logits)
        encode = cast("KevProcessor", self.processor).checkpoint.encode
        return native.response(context.asked.model, answers, context.compiled.tokens, encode, seconds)

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Ready or not, and the name that a request without one asks for."""
        return {"status": "ready" if host.ready else "unavailable", "model": grammar.DEFAULT_MODEL}
