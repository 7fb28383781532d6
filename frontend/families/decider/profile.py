"""The decider family's own server: body, order of checks, answers, errors and health.

    bytes ──grammar──▶ Asked ──rows──▶ RowsRequest ──host──▶ raw logits ──native──▶ rounded answers

The state is cut silently, as the original cuts it, whatever the option `truncate` says to the main port. All
that is wrong with a request is 422 in the original's words; the first wrong thing is named.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from frontend.families import logits
from frontend.families.base import Prepared, context_of
from frontend.families.decider import grammar, native
from frontend.families.decider.processor import DeciderProcessor
from frontend.families.decider.rendering import Rendered
from frontend.families.decider.rows import Compiled, compile_rows
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.families.refusal import Refused
from protocol.contracts.decider import KINDS, MODEL_ID, Temperatures

REFERENCE_REVISION: Final = "50d0be0d7cb43d2066965ce5fa7f3fe4e489a60f"
"""The commit of the original runtime whose rows and answers these are."""

EXECUTIONS: Final = {"rows": "eager", "packed": "eager", "shared": "shared", "auto": "auto"}
"""The host's word for how rows are read -> the original's."""

PREFIX_MODES: Final = {"rows": "off", "packed": "off", "shared": "shared", "auto": "auto"}
PREFIX_COUNTS: Final = ("shared_requests", "auto_independent_requests", "saved_tokens")
GRAPH_COUNTS: Final = ("requested", "captures", "replays", "fallbacks", "invalidations")


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Rendered, ...]
    temperatures: Temperatures
    compiled: Compiled


class DeciderNative(NativeProfile):
    """`POST /v1/systemone` and `GET /health` as the original worker answers them."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES
    PREPARE_WEIGHT: ClassVar[int] = DeciderProcessor.PREPARE_WEIGHT
    READY_FIRST: ClassVar[bool] = True

    def prepare(self, body: bytes) -> Prepared:
        """The rows of the whole request; none when it has no questions."""
        checkpoint = cast("DeciderProcessor", self.processor).checkpoint
        try:
            asked = grammar.parse(grammar.read(body))
            compiled = compile_rows(asked.state, asked.questions, checkpoint.vocabulary, truncate=True)
        except Refused as error:
            raise NativeRefusal(422, error.message) from None
        payload = compiled.payload
        return Prepared(
            units=() if payload is None else (payload,),
            cost=compiled.processed_tokens,
            work=0 if payload is None else logits.BYTES_PER_LOGIT * int(payload.candidates.sum()),
            context=_Context(asked.questions, checkpoint.temperatures, compiled),
        )

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in float32 and rounded, in request order."""
        context = context_of(prepared, _Context)
        answers: dict[str, Any] = {}
        payload = context.compiled.payload
        if payload is not None:
            rows = logits.read(outputs, payload.candidates.tolist())
            done = native.answers(context.questions, rows, context.temperatures)
            answers = {name: answer.to_json() for name, answer in done}
        usage = {"input_tokens": context.compiled.input_tokens, "output_tokens": 0}
        return {"model": MODEL_ID, "answers": answers, "usage": usage}

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Counters are those of the last answer of this host, its warm-up included, and 0 before the first one."""
        facts = host.facts
        limits: Any = facts.get("limits", {})
        execution = str(facts.get("execution", ""))
        temperatures: Any = facts.get("temperatures", {})
        graph: Any = host.statistics.get("graph", {})
        # After a failure there is no model, so there is nothing recorded either.
        graphs = host.ready and bool(graph.get("enabled", facts.get("graphs", False)))
        how = "graph" if graphs else EXECUTIONS.get(execution, execution)
        return {
            "status": "ready" if host.ready else "unavailable",
            "model": MODEL_ID,
            "checkpoint_revision": facts.get("checkpoint_revision"),
            "reference_revision": REFERENCE_REVISION,
            "dtype": facts.get("dtype"),
            "execution": how if host.ready else "unavailable",
            "temperatures": {kind: shortest(temperatures[kind]) for kind in KINDS if kind in temperatures},
            "batch_limits": {"rows": limits.get("batch_rows"), "tokens": limits.get("batch_tokens")},
            "prefix_mode": PREFIX_MODES.get(execution, "off"),
            "prefix": {name: host.statistics.get(name, 0) for name in PREFIX_COUNTS},
            "graph": {
                "enabled": graphs,
                "cached_shapes": graph.get("cached_shapes", 0) if host.ready else 0,
                **{name: graph.get(name, 0) for name in GRAPH_COUNTS},
            },
        }


def shortest(value: float) -> float:
    """The number with the fewest digits that is `value` in float32, as a float32 is written: 1.164, where
    widening it gives 1.1640000343322754."""
    for digits in range(1, 9):
        number = float(f"{value:.{digits}g}")
        try:
            if struct.unpack("<f", struct.pack("<f", number))[0] == value:
                return number
        except OverflowError:
            pass  # rounded up beyond the largest one
    return float(f"{value:.9g}")
