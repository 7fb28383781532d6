"""The clef family in the front: a whole request as one text out, the logits of every option in, answers out.

The host encodes: here the envelope is checked and serialised, and nothing of the checkpoint is read. Ids of questions
travel with them, because the model reads them; a request is one unit and its questions are never split, because they
are decided together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frontend.errors import InvalidRequest
from frontend.families import answering, documents, logits
from frontend.families.base import Decision, Prepared, Processor, context_of
from frontend.requests.answers import softmax
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import clef as contract
from protocol.payloads import TextRequest

MAX_QUESTIONS: Final = 64
"""Questions of one request: the hosted service's documented number."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Question, ...]
    counts: tuple[int, ...]


class ClefProcessor(Processor):
    """Prepares and finishes for `executor_host.executors.clef.executor`. One `TextRequest` per request."""

    OPTIONS = contract.OPTIONS

    def prepare(self, request: DecisionRequest) -> Prepared:
        """One `TextRequest`; its cost is the UTF-8 bytes of the document.

        Raises `InvalidRequest` above `MAX_QUESTIONS`. Limits in tokens are the host's to check: only it counts them.
        """
        if len(request.questions) > MAX_QUESTIONS:
            message = f"{len(request.questions)} questions; this model decides at most {MAX_QUESTIONS} together"
            raise InvalidRequest.at(("questions",), message, "too_long")
        questions = [{"id": question.id, **documents.fields(question)} for question in request.questions]
        counts = tuple([answering.count(question) for question in request.questions])
        return whole_request(request.state, questions, counts, _Context(request.questions, counts))

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the output that `read` describes.

        A state that was cut is reported as `x_truncated: {"kept", "total"}`, in tokens of the state.
        """
        context = context_of(prepared, _Context)
        rows, tokens, truncated = read(outputs, context.counts)
        answers = answering.answers(context.questions, rows, lambda q, row: answering.answer(q, softmax(row), yes=0))
        return Decision(answers, tokens, extras={} if truncated is None else {"x_truncated": truncated})


def whole_request(
    state: object, questions: Sequence[Mapping[str, Any]], counts: Sequence[int], context: object
) -> Prepared:
    """The one unit of a request of `{"id", "type", "instructions", "criteria"}` questions, in either dialect."""
    payload = TextRequest(documents.encode({"state": state, "questions": questions}).encode())
    return Prepared((payload,), cost=len(payload.document), work=logits.BYTES_PER_LOGIT * sum(counts), context=context)


def read(outputs: Sequence[object], counts: Sequence[int]) -> tuple[list[list[float]], int, dict[str, int] | None]:
    """Logits of each question, tokens that the model read, and what was kept of a state that was cut.

    The one output has what `logits.read` and `documents.usage` read. The logits of a question are in request order,
    those of a noul [true, false]. Anything else is an `InternalError`.
    """
    rows = logits.read(outputs, counts)
    (output,) = outputs
    assert isinstance(output, Mapping)
    return rows, *documents.usage(output)
