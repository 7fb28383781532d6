"""The transformers family in the front: one text request out, one list of scores per question in.

The host reads the text itself, with transformers' own parsing and templates, so preparing is bounding and serialising.
The ids of the questions are sent along: a checkpoint's template may write them into its prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frontend.errors import InternalError, RequestTooLarge
from frontend.families import answering, documents
from frontend.families.base import Decision, Prepared, Processor
from frontend.requests.answers import softmax
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import transformers as contract
from protocol.payloads import TextRequest

MAX_DOCUMENT_BYTES: Final = 4_194_304
"""UTF-8 bytes of the state and the questions together. The host writes and tokenizes each question with the whole
state, and cannot be interrupted in one of them: two seconds for as much (measured, 2 MB/s)."""

BYTES_PER_SCORE: Final = 64
"""What `finish` does with one score takes about as long as reading this many bytes of JSON."""


class TransformersProcessor(Processor):
    """Prepares and finishes for `executor_host.executors.transformers.executor`. One unit per request."""

    OPTIONS = contract.OPTIONS

    def prepare(self, request: DecisionRequest) -> Prepared:
        """One `TextRequest`; its cost is the UTF-8 bytes of the document.

        Raises `RequestTooLarge` above `MAX_DOCUMENT_BYTES`. Tokens and labels are the host's to check.
        """
        questions = [{"id": question.id, **documents.fields(question)} for question in request.questions]
        document = documents.encode({"state": request.state, "questions": questions}).encode()
        if len(document) > MAX_DOCUMENT_BYTES:
            size = f"the state and the questions have {len(document)} bytes"
            raise RequestTooLarge(f"{size}; the limit of one request is {MAX_DOCUMENT_BYTES}")
        scores = sum(len(question["criteria"] or ()) or 2 for question in questions)
        work = scores * BYTES_PER_SCORE
        return Prepared((TextRequest(document),), cost=len(document), work=work, context=request.questions)

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers, normalised in float64.

        The one output is `{"scores": float64 [sum of counts], "counts": [int, ...], "tokens": int}` and what is of no
        interest here. Anything else is an `InternalError`.
        """
        questions: tuple[Question, ...] = prepared.context  # type: ignore[assignment]
        scores, counts, tokens = _read(outputs)
        if len(counts) != len(questions) or sum(counts) != len(scores):
            raise InternalError(f"the model gave {len(counts)} answers to {len(questions)} questions")
        parts = answering.split(scores, counts)
        answers = answering.answers(questions, parts, lambda q, mine: answering.answer(q, softmax(mine)))
        return Decision(answers, input_tokens=tokens)


def _read(outputs: Sequence[object]) -> tuple[list[float], list[int], int]:
    """The host's output, checked as far as it can be without the questions."""
    if len(outputs) != 1 or not isinstance(outputs[0], Mapping):
        raise InternalError("the model's output is not one map")
    scores, counts = outputs[0].get("scores"), outputs[0].get("counts")
    tokens, _ = documents.usage(outputs[0])
    if scores is None or not hasattr(scores, "tolist") or not isinstance(counts, (list, tuple)):
        raise InternalError("the model's output has no scores or no counts")
    if not all(type(count) is int and count > 0 for count in counts):
        raise InternalError("the model's output has a count that is none")
    return scores.tolist(), list(counts), tokens
