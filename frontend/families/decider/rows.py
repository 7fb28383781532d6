"""From rendered questions to the rows of a request: expansion, limits, cost and usage.

A choice or a noul is one row. Each level of a score is a row of its own that asks whether the level fits, so
the model never sees its number or its neighbours. The tokens of the state are made once and stand at the
front of every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frontend.families.decider.rendering import Rendered, state_text
from frontend.families.decider.tokens import Vocabulary
from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.decider import MAX_ROW_TOKENS, MAX_ROWS, MAX_STATE_TOKENS, MAX_TOKENS
from protocol.long_texts import TooManyTokens
from protocol.payloads import RowsRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVEL_QUESTION: Final = "{text}\nProposed answer: {level}\nDoes the proposed answer fit?"
LEVEL_OPTIONS: Final = ("no", "yes")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A whole request as rows. `payload` is None exactly when there are no questions."""

    payload: RowsRequest | None
    state_tokens: int
    """Tokens of the state part in every row."""

    whole_state_tokens: int
    """The same before the cut; equal when nothing was cut."""

    input_tokens: int
    """What usage reports: the longest common prefix of all rows once, and the rest of each."""

    processed_tokens: int
    """The sum of the row lengths: the cost."""


def row_count(question: Rendered) -> int:
    """How many rows a question becomes."""
    return len(question.legend) if question.kind == "score" else 1


def row_texts(question: Rendered) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(question text, option texts) of each row of a question, in order."""
    if question.kind == "score":
        for level in question.options:
            yield LEVEL_QUESTION.format(text=question.text, level=level), LEVEL_OPTIONS
    else:
        yield question.text, question.options


def compile_rows(state: object, questions: Sequence[Rendered], vocabulary: Vocabulary, *, truncate: bool) -> Compiled:
    """All rows of a request, or `Refused` before anything is sent: with reason `tokens` for a row or (without
    `truncate`) a state that is too long, with reason `size` for too many rows or tokens in total.

    Tokenizing is what takes time here, about 0.4 s per MiB of text. It stops at the first row that is too
    long, so no request costs more than its own text once and `MAX_TOKENS`.
    """
    count = sum(map(row_count, questions))
    if count > MAX_ROWS:
        message = f"request exceeds expanded row budget: {count} rows, at most {MAX_ROWS}"
        raise Refused(message, ("questions",), reason="size")
    try:
        whole = vocabulary.state(state_text(state), cut=truncate)
    except TooManyTokens as error:
        raise _state_too_long(f"{error.least} tokens or more") from None
    if len(whole) > MAX_STATE_TOKENS and not truncate:
        raise _state_too_long(f"{len(whole)} tokens")
    context = whole[:MAX_STATE_TOKENS]
    ends: list[list[int]] = []
    candidates: list[int] = []
    owners: list[int] = []
    processed = 0
    for owner, question in enumerate(questions):
        for text, options in row_texts(question):
            try:
                end = vocabulary.question(text, options)
            except TooManyTokens as error:
                raise _row_too_long(question, f"{len(context) + error.least} tokens or more") from None
            length = len(context) + len(end)
            if length > MAX_ROW_TOKENS:
                raise _row_too_long(question, f"{length} tokens")
            processed += length
            if processed > MAX_TOKENS:
                message = f"request exceeds expanded token budget of {MAX_TOKENS} tokens"
                raise Refused(message, ("questions",), reason="size")
            ends.append(end)
            candidates.append(len(options))
            owners.append(owner)
    shared = _common_prefix(ends)
    return Compiled(
        payload=_payload(context, ends, candidates, owners) if ends else None,
        state_tokens=len(context),
        whole_state_tokens=len(whole),
        input_tokens=len(context) + shared + sum([len(end) - shared for end in ends]) if ends else 0,
        processed_tokens=processed,
    )


def _state_too_long(size: str) -> Refused:
    return Refused(f"the state has {size}; this model reads {MAX_STATE_TOKENS}", ("state",), reason="tokens")


def _row_too_long(question: Rendered, size: str) -> Refused:
    message = f'question "{printable(question.id)}" makes a row of {size} with the state; at most {MAX_ROW_TOKENS}'
    return Refused(message, ("questions", question.id), reason="tokens")


def _common_prefix(rows: Sequence[list[int]]) -> int:
    """Length of the longest common prefix; the whole length of a single row."""
    if not rows:
        return 0
    # What the first and the last in order have in common, all between them have too.
    first, last = min(rows), max(rows)
    for index, token in enumerate(first):
        if token != last[index]:
            return index
    return len(first)


def _payload(
    context: list[int], ends: Sequence[list[int]], candidates: Sequence[int], owners: Sequence[int]
) -> RowsRequest:
    import numpy as np

    start = np.array(context, np.int32)
    parts: list[NDArray[np.int32]] = []
    for end in ends:
        parts += (start, np.array(end, np.int32))
    return RowsRequest(
        tokens=np.concatenate(parts),
        lengths=np.array([len(context) + len(end) for end in ends], np.int32),
        candidates=np.array(candidates, np.int32),
        questions=np.array(owners, np.int32),
        shared=len(context),
    )
