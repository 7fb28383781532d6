"""From rendered questions to token rows: the chat around the schema, limits, cost.

    <chat> {"context": ..., "schema": [...]} \\n\\nRequested field: | "id" <end of the chat, where the answer begins>

One question is one row, read at its last token. All rows of a request are the same up to the bar, which is nearly all
of them, so the left side is encoded once. That is only right for a tokenizer that never joins what stands left and
right of it. The released ones do not (a colon is never joined with a space after it); any other is caught, because the
first row of each request is also encoded whole and compared, and what is around the bar is the same in all of them.

What usage reports, and admission counts, are the tokens of all rows, each with the state and all questions: what the
original submits and counts. What the host reads once is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frontend.families.checkpoints import EncodeAll
from frontend.families.nimble.rendering import Rendered, context, safe_json
from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.nimble import ASKED, CHAT, LETTERS, MAX_QUESTIONS, SYSTEM, TAIL, WIDE_SYSTEM
from protocol.long_texts import TooManyTokens, bounded_all
from protocol.payloads import RowsRequest


@dataclass(frozen=True, slots=True)
class Compiled:
    """A whole request as rows, one question each."""

    payload: RowsRequest
    tokens: int
    """Of all rows."""
    prefix: int
    """Tokens with which all rows begin, of those that the text before the id is made of: what the original's server
    reads once, before the rows."""


def check_questions(count: int) -> None:
    """Raises `Refused` for a number of questions that no request may have."""
    if not 1 <= count <= MAX_QUESTIONS:
        raise Refused(f"there are {count} questions; 1 to {MAX_QUESTIONS} are taken", ("questions",))


def prompts(state: object, questions: Sequence[Rendered], codes: Sequence[str]) -> tuple[str, list[str]]:
    """What all prompts of a request begin with, and the rest of each. Raises `Refused` for a state that is blank."""
    wide = max([len(question.values) for question in questions]) > LETTERS
    document = {"context": context(state), "schema": [question.field(codes) for question in questions]}
    start = CHAT.format(system=WIDE_SYSTEM if wide else SYSTEM) + safe_json(document) + ASKED
    return start, [f" {safe_json(question.id)}{TAIL}" for question in questions]


def compile_rows(
    state: object, questions: Sequence[Rendered], encode: EncodeAll, codes: Sequence[str], max_length: int
) -> Compiled:
    """All rows of a request, or `Refused` before anything is sent: for a number of questions, and with reason `tokens`
    for a row above `max_length`. Nothing is ever cut."""
    check_questions(len(questions))
    start, texts = prompts(state, questions, codes)
    try:
        head, gap, *ends = bounded_all(encode, [start, " ", *texts], max_length)
    except TooManyTokens as error:
        question = questions[max(0, error.at - 2)]
        raise _too_long(question, f"{error.least} tokens or more", max_length) from None
    # A text that is too long by far is not encoded again: at the seam a few tokens could change and no more.
    if len(head) + len(ends[0]) <= 2 * max_length:
        (whole,) = encode([start + texts[0]])
        if whole != head + ends[0]:
            head, (gap, *ends) = [], encode([start + " ", *(start + text for text in texts)])
    for question, end in zip(questions, ends, strict=True):
        if (length := len(head) + len(end)) > max_length:
            raise _too_long(question, f"{length} tokens", max_length)
    prefix = len(head) + min([_common(gap, end) for end in ends])
    return Compiled(_payload(head, ends, questions), len(head) * len(ends) + sum(map(len, ends)), prefix)


def _too_long(question: Rendered, size: str, most: int) -> Refused:
    message = (
        f"the prompt of question {printable(question.id)!r}, which has the state and all questions, has {size}; at most"
        f" {most} are taken"
    )
    return Refused(message, ("questions", question.id), reason="tokens")


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def _payload(head: Sequence[int], ends: Sequence[Sequence[int]], questions: Sequence[Rendered]) -> RowsRequest:
    import numpy as np

    start = np.array(head, np.int32)
    parts = [part for end in ends for part in (start, np.array(end, np.int32))]
    return RowsRequest(
        tokens=np.concatenate(parts),
        lengths=np.array([len(start) + len(end) for end in ends], np.int32),
        candidates=np.array([len(question.values) for question in questions], np.int32),
        questions=np.arange(len(ends), dtype=np.int32),
    )
