"""From rendered questions to token rows: the chat around each prompt, limits, cost.

One row is one candidate's whole prompt, read at its last token. What usage reports is what is read: the tokens
of all rows, each with its own copy of the state.

    <chat prefix>Context:\\n<state>\\n\\n | Question: ...<chat suffix>

A request has one state and many candidates, so encoding the left side once is most of the work saved. It is only
right for a tokenizer that never joins what stands left and right of the bar. The released ones do not (a line
break never shares a token with a letter after it); any other is caught, because the first row of each request is
also encoded whole and compared, and what is around the bar is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from frontend.families.checkpoints import EncodeAll
from frontend.families.open_jev.rendering import Rendered, context
from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.open_jev import MAX_ROWS, MAX_TOKENS, Chat
from protocol.long_texts import TooManyTokens, bounded_all
from protocol.payloads import RowsRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUESTIONS: Final = (1, 4096)
"""Questions of one request."""

BATCH: Final = 256
"""Candidates encoded at a time, after the first one of each question. The lengths are looked at in between."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A whole request as rows, one candidate each, question by question."""

    payload: RowsRequest
    tokens: int
    """Of all rows, the chat included: what usage reports and admission counts."""

    @property
    def candidates(self) -> int:
        """How many rows there are."""
        return self.payload.rows


def check_questions(count: int) -> None:
    """Raises `Refused` for a number of questions that no request may have."""
    least, most = QUESTIONS
    if not least <= count <= most:
        raise Refused("questions must be nonempty and within the server question limit", ("questions",))


def check_candidates(questions: Sequence[Rendered]) -> None:
    """Raises `Refused` for more candidates than a request may have."""
    if sum([question.count for question in questions]) > MAX_ROWS:
        raise Refused("request exceeds the candidate limit", ("questions",))


def compile_rows(
    state: object, questions: Sequence[Rendered], encode: EncodeAll, *, chat: Chat, max_length: int
) -> Compiled:
    """All rows of a request, or `Refused` before anything is sent: with reason `tokens` for a row above
    `max_length`, with reason `size` above `MAX_TOKENS`. Nothing is ever cut.
    """
    check_questions(len(questions))
    check_candidates(questions)
    try:
        return _compiled(state, questions, encode, chat, max_length)
    except TooManyTokens as error:
        raise _too_long(questions[error.at], f"{error.least} tokens or more", max_length) from None


def _compiled(state: object, questions: Sequence[Rendered], encode: EncodeAll, chat: Chat, max_length: int) -> Compiled:
    """As `compile_rows`. Raises `TooManyTokens`, too: `at` is the question."""
    rows = _Rows(chat.prefix + context(state), chat.suffix, encode, questions[0].candidate(0), max_length)
    # Of each question the first candidate: together no more text than the request has. What is too long by its
    # instructions alone is found here, before they are made and encoded once for each option.
    others_first = [(owner, question.candidate(0)) for owner, question in enumerate(questions)][1:]
    found = [[end] for end in (rows.first, *rows.ends(others_first))]
    total = 0
    last = len(questions)
    for owner, (end,) in enumerate(found):
        total += rows.length(end)
        if rows.length(end) > max_length:
            last = owner
            break
    # The first question that is too long is the one that is named, whichever of its candidates it is.
    others = ((owner, index) for owner in range(last) for index in range(1, questions[owner].count))
    while batch := list(islice(others, BATCH)):
        ends = rows.ends([(owner, questions[owner].candidate(index)) for owner, index in batch])
        for (owner, _), end in zip(batch, ends, strict=True):
            if rows.length(end) > max_length:
                raise _too_long(questions[owner], f"{rows.length(end)} tokens", max_length)
            found[owner].append(end)
            total += rows.length(end)
        _check_total(total)
    if last < len(questions):
        raise _too_long(questions[last], f"{rows.length(found[last][0])} tokens", max_length)
    _check_total(total)
    owners = [owner for owner, ends in enumerate(found) for _ in ends]
    return Compiled(_payload(rows.start, [end for ends in found for end in ends], owners), total)


def _too_long(question: Rendered, size: str, max_length: int) -> Refused:
    message = f"question {printable(question.id)}: {size} exceeds max_length={max_length}; no silent truncation"
    return Refused(message, ("questions", question.id), reason="tokens")


def _check_total(tokens: int) -> None:
    if tokens > MAX_TOKENS:
        message = f"the candidates of the request have more than {MAX_TOKENS} tokens in total"
        raise Refused(message, ("questions",), reason="size")


class _Rows:
    """Encodes the rows of one request: `start`, which all of them begin with, and the rest of each."""

    def __init__(self, start: str, suffix: str, encode: EncodeAll, first: str, max_length: int) -> None:
        try:
            head, end = bounded_all(encode, [start, first + suffix], max_length)
        except TooManyTokens as error:
            raise TooManyTokens(error.least) from None  # either is in the first question's row
        split = True
        # A text that is too long by far is not encoded again: at the seam a few tokens could change and no more.
        if len(head) + len(end) <= 2 * max_length:
            (whole,) = encode([start + first + suffix])
            split = whole == head + end
        self.start: list[int] = head if split else []
        self.first: list[int] = end if split else whole
        """What follows `start` in the first row."""
        self._text = "" if split else start
        self._suffix = suffix
        self._encode, self._most = encode, max_length

    def ends(self, candidates: Sequence[tuple[int, str]]) -> list[list[int]]:
        """What follows `start` in the rows of these candidates, each with its question. Raises `TooManyTokens`, whose
        `at` is that of the question."""
        texts = [self._text + candidate + self._suffix for _, candidate in candidates]
        try:
            return bounded_all(self._encode, texts, self._most) if texts else []
        except TooManyTokens as error:
            raise TooManyTokens(error.least, candidates[error.at][0]) from None

    def length(self, end: Sequence[int]) -> int:
        """Tokens of the row that ends so."""
        return len(self.start) + len(end)


def _payload(start: Sequence[int], ends: Sequence[list[int]], owners: Sequence[int]) -> RowsRequest:
    import numpy as np

    head = np.array(start, np.int32)
    parts: list[NDArray[np.int32]] = []
    for end in ends:
        parts += (head, np.array(end, np.int32))
    return RowsRequest(
        tokens=np.concatenate(parts),
        lengths=np.array([len(start) + len(end) for end in ends], np.int32),
        candidates=np.ones(len(ends), np.int32),
        questions=np.array(owners, np.int32),
        shared=len(start),
    )
