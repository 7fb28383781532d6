"""The laya family's own server: body, answers, errors and health.

    bytes ──grammar──▶ Asked ──rows──▶ MarkedRowsRequest ──host──▶ raw logits ──native──▶ rounded answers

What is too long is cut silently, as the original cuts it, whatever the option `truncate` says to the main port.
All that is wrong with a request is 422, invalid JSON included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from frontend.families.base import Prepared, context_of
from frontend.families.laya import finishing, grammar, native
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.rendering import Rendered
from frontend.families.laya.rows import Compiled, compile_rows
from frontend.families.logits import BYTES_PER_LOGIT
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.refusal import Refused
from protocol.contracts.laya import Temperatures

WITHOUT_DEVICE: Final = "CUDA worker unavailable"
"""What the original's health says after its device has failed, and until it is restarted; here until the next
host is warm."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Rendered, ...]
    temperatures: Temperatures
    compiled: Compiled


class LayaNative(NativeProfile):
    """`POST /v1/systemone` and `GET /health` as the original worker answers them."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = LayaProcessor.PREPARE_WEIGHT
    ERROR_FIELD: ClassVar[str] = "error"

    def prepare(self, body: bytes) -> Prepared:
        """The rows of the whole request; none when it has no questions."""
        checkpoint = cast("LayaProcessor", self.processor).checkpoint
        try:
            asked = grammar.parse(grammar.read(body))
            compiled = compile_rows(asked.state, asked.questions, checkpoint.encode, checkpoint.special, truncate=True)
        except Refused as error:
            raise NativeRefusal(422, error.message) from None
        payload = compiled.payload
        return Prepared(
            units=() if payload is None else (payload,),
            cost=compiled.tokens,
            work=0 if payload is None else BYTES_PER_LOGIT * len(payload.markers),
            context=_Context(asked.questions, checkpoint.temperatures, compiled),
        )

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in float32 and rounded, in request order."""
        context = context_of(prepared, _Context)
        compiled = context.compiled
        answers: dict[str, Any] = {}
        if compiled.payload is not None:
            logits = finishing.read_logits(outputs, compiled.payload)
            answers = native.answers(context.questions, logits, context.temperatures)
        return native.response(answers, compiled.tokens)

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Ready and the model's name, or that there is no device to answer."""
        return {"status": "ready", "model": native.MODEL} if host.ready else {self.ERROR_FIELD: WITHOUT_DEVICE}
