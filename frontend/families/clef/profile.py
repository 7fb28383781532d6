"""The clef family's own dialect over HTTP: body, answers, errors and health.

    bytes ──grammar──▶ Asked ──▶ TextRequest ──host──▶ raw logits ──native──▶ rounded answers

The published inference file has no server. Its request, its response and its error texts are served as they are; what
only a server has (statuses, the error body, health) is this project's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from frontend.errors import RequestError, TokensExceeded
from frontend.families.base import Prepared, context_of
from frontend.families.clef import grammar, native
from frontend.families.clef.processor import read, whole_request
from frontend.families.native import HostView, NativeProfile


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    asked: grammar.Asked
    counts: tuple[int, ...]


class ClefNative(NativeProfile):
    """`POST /v1/systemone` as the published file answers a request, and `GET /health`."""

    MAX_BODY_BYTES: ClassVar[int] = grammar.MAX_BODY_BYTES

    def prepare(self, body: bytes) -> Prepared:
        """The one unit of the whole request."""
        asked = grammar.parse(grammar.read(body))
        counts = tuple([grammar.options(question) for question in asked.questions.values()])
        questions = [{"id": name, **question} for name, question in asked.questions.items()]
        return whole_request(asked.state, questions, counts, _Context(asked, counts))

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The answers in request order, rounded. A state that was cut is seen in the tokens alone, as with the file."""
        context = context_of(prepared, _Context)
        rows, tokens, _ = read(outputs, context.counts)
        questions = context.asked.questions
        return {
            "model": context.asked.model,
            "answers": {
                name: native.answer(question, row)
                for (name, question), row in zip(questions.items(), rows, strict=True)
            },
            "usage": {"input_tokens": tokens, "output_tokens": 0},
        }

    def health(self, host: HostView) -> Mapping[str, Any]:
        """Ready or not, and what is served, as the host said when it was ready."""
        limits: Any = host.facts.get("limits", {})
        return {
            "status": "ready" if host.ready else "unavailable",
            "model": host.facts.get("name", "clef"),
            "dtype": host.facts.get("dtype"),
            "max_length": limits.get("tokens"),
            "truncate": host.facts.get("truncate"),
        }

    def refusal(self, error: RequestError) -> tuple[int, str]:
        """As every profile's, and 422 for a request that the host found too long."""
        if error.error_type == TokensExceeded.error_type:
            return 422, error.message
        return super().refusal(error)
