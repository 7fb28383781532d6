"""The laya family's own servers: body, answers, errors and health.

    bytes ──grammar──▶ Asked ──rows──▶ MarkedRowsRequest ──host──▶ raw logits ──native──▶ rounded answers
            serving

The English checkpoint has a worker of its own, which reads nothing else; its siblings are served by the package's
`laya-serve`. The two differ in bodies and errors, and answer alike. What is too long is cut silently, as the originals
cut it, whatever the option `truncate` says to the main port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, cast

from frontend.families.base import Prepared, Processor, context_of
from frontend.families.laya import finishing, grammar, native, serving
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.rendering import Rendered
from frontend.families.laya.rows import Compiled
from frontend.families.logits import BYTES_PER_LOGIT
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.refusal import Refused
from protocol.contracts.laya import ENGLISH, Config, Variant

WITHOUT_DEVICE: Final = "CUDA worker unavailable"
"""What the original's health says after its device has failed, and until it is restarted; here until the next
host is warm."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Rendered, ...]
    config: Config
    variant: Variant
    compiled: Compiled


class LayaNative(NativeProfile):
    """`POST /v1/systemone` and `GET /health` as the English worker answers them: all that is wrong is 422."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = LayaProcessor.PREPARE_WEIGHT
    ERROR_FIELD: ClassVar[str] = "error"

    def __new__(cls, processor: Processor) -> Self:
        """The profile of the server that the processor's checkpoint has; the worker's while it cannot be read."""
        variant = processor.variant if isinstance(processor, LayaProcessor) else None
        sibling = variant is not None and variant != ENGLISH
        return cast("Self", super().__new__(LayaServeNative if sibling else cls))

    def prepare(self, body: bytes) -> Prepared:
        """The rows of the whole request; none when it has no questions."""
        checkpoint = cast("LayaProcessor", self.processor).checkpoint
        try:
            asked = self.parse(body, checkpoint.variant)
            compiled = checkpoint.compile(asked.state, asked.questions, truncate=True)
        except Refused as error:
            raise NativeRefusal(422, error.message) from None
        payload = compiled.payload
        return Prepared(
            units=() if payload is None else (payload,),
            cost=compiled.tokens,
            work=0 if payload is None else BYTES_PER_LOGIT * len(payload.markers),
            context=_Context(asked.questions, checkpoint.config, checkpoint.variant, compiled),
        )

    def parse(self, body: bytes, variant: Variant) -> grammar.Asked:
        """State and questions of a body. Raises `Refused`, which is 422, or `NativeRefusal`."""
        return grammar.parse(grammar.read(body))

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in float32 and rounded, in request order."""
        context = context_of(prepared, _Context)
        compiled = context.compiled
        answers: dict[str, Any] = {}
        if compiled.payload is not None:
            logits = finishing.read_logits(outputs, compiled.payload)
            answers = native.answers(context.questions, logits, context.config.temperatures)
        return native.response(answers, compiled.tokens, context.variant)

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Ready and the model's name, or that there is no device to answer."""
        return {"status": "ready", "model": native.MODEL} if host.ready else {self.ERROR_FIELD: WITHOUT_DEVICE}


class LayaServeNative(LayaNative):
    """The same two of a sibling, as `laya-serve` answers them."""

    MAX_BODY_BYTES: ClassVar[int] = serving.MAX_BODY_BYTES
    ERROR_FIELD: ClassVar[str] = "detail"
    JSON_ONLY: ClassVar[bool] = False
    FAILED: ClassVar[str] = "inference failed"

    def parse(self, body: bytes, variant: Variant) -> grammar.Asked:
        """As `serving.parse`."""
        return serving.parse(body, variant)

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Which checkpoint there is, and where. The original's is never unready: it loads before it listens."""
        device = host.facts.get("device", "auto")
        variant = cast("LayaProcessor", self.processor).checkpoint.variant
        loaded = [variant.name] if host.ready else []
        return {"status": "ok" if host.ready else "unavailable", "loaded": loaded, "device": device}
