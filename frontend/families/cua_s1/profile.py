"""The cua-s1 family's own server: body, order of checks, answers, errors and health.

    bytes ─grammar─▶ choices ─prompt─▶ a prompt each ─host─▶ hidden state ─projection─▶ logits ─native─▶ body

The last three happen once per question, and other requests' questions come between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from frontend.families.base import Prepared
from frontend.families.cua_s1 import grammar, native
from frontend.families.cua_s1.processor import CuaS1Processor, asked, logits
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.refusal import Refused


class CuaS1Native(NativeProfile):
    """`POST /v1/systemone` and `GET /health` as the original workers answer them."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = CuaS1Processor.PREPARE_WEIGHT
    JSON_ONLY: ClassVar[bool] = False
    TOO_COSTLY: ClassVar[int] = 413
    FAILED: ClassVar[str] = native.INFERENCE_FAILED
    PREPARATION_FAILED: ClassVar[str] = native.INFERENCE_FAILED

    @property
    def _family(self) -> CuaS1Processor:
        return cast("CuaS1Processor", self.processor)

    def prepare(self, body: bytes) -> Prepared:
        """One unit per question. A request is refused as a whole, by the first thing wrong with it."""
        try:
            request = grammar.parse(grammar.read(body))
            return self._family.compile(request.state, request.choices)
        except Refused as error:
            raise NativeRefusal(native.STATUS[error.reason], error.message) from None

    def absorb(self, prepared: Prepared, index: int, output: object) -> object:
        """The logits of question `index`."""
        return self._family.absorb(prepared, index, output)

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in the original's arithmetic, in request order."""
        request = asked(prepared)
        return native.body(request.questions, logits(prepared, outputs), request.input_tokens)

    def health(self, host: HostView) -> Mapping[str, Any]:
        """The original cannot be asked before it is ready."""
        return {"status": "ready" if host.ready else "unavailable", "model": native.MODEL}
