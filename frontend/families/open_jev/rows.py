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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from frontend.families.open_jev.rendering import Refused, Rendered, context
from frontend.questions import printable
from protocol.payloads import RowsRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Encode: TypeAlias = Callable[[Sequence[str]], list[list[int]]]
"""The token ids of several strings, special tokens that a text spells included. Safe in several threads at once."""

QUESTIONS: Final = (1, 4096)
"""Questions of one request."""

MAX_ROWS: Final = 65_536
"""Candidates of one request."""

MAX_TOTAL_TOKENS: Final = 16_777_216
"""Tokens of all rows of one request: ours, because the family has no bound but those above, whose product is a
message of a gigabyte. These are 64 MiB, and minutes of the fastest card."""

BATCH: Final = 32
"""Candidates of a question encoded at a time, after its first one alone. The lengths are looked at in between: what
is too long is refused before its instructions were made and encoded once for each option."""


@dataclass(frozen=True, slots=True)
class Chat:
    """What stands around a prompt: one message of a user, and the answer that begins without thinking."""

    prefix: str
    suffix: str


DEFAULT_CHAT: Final = Chat("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
"""The base models' template, for checkpoints that do not bring it rendered."""


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
    state: object, questions: Sequence[Rendered], encode: Encode, *, chat: Chat, max_length: int
) -> Compiled:
    """All rows of a request, or `Refused` before anything is sent: with reason `tokens` for a row above
    `max_length`, with reason `size` above `MAX_TOTAL_TOKENS`. Nothing is ever cut.
    """
    check_questions(len(questions))
    check_candidates(questions)
    rows = _Rows(chat.prefix + context(state), chat.suffix, encode, questions[0].candidate(0))
    ends: list[list[int]] = []
    owners: list[int] = []
    total = 0
    for owner, question in enumerate(questions):
        for batch in _batches(question.count):
            for end in rows.ends([question.candidate(index) for index in batch]):
                length = len(rows.start) + len(end)
                if length > max_length:
                    message = (
                        f"question {printable(question.id)}: {length} tokens exceeds max_length={max_length};"
                        " no silent truncation"
                    )
                    raise Refused(message, ("questions", question.id), reason="tokens")
                total += length
                if total > MAX_TOTAL_TOKENS:
                    message = f"the candidates of the request have more than {MAX_TOTAL_TOKENS} tokens in total"
                    raise Refused(message, ("questions",), reason="size")
                ends.append(end)
                owners.append(owner)
    return Compiled(_payload(rows.start, ends, owners), total)


def _batches(count: int) -> Iterator[range]:
    """The first candidate, then `BATCH` at a time."""
    yield range(1)
    for start in range(1, count, BATCH):
        yield range(start, min(start + BATCH, count))


class _Rows:
    """Encodes the rows of one request: `start`, which all of them begin with, and the rest of each."""

    def __init__(self, start: str, suffix: str, encode: Encode, first: str) -> None:
        end = first + suffix
        whole, head, tail = encode([start + end, start, end])
        split = whole == head + tail
        self.start: list[int] = head if split else []
        self._text = "" if split else start
        self._suffix = suffix
        self._encode = encode

    def ends(self, candidates: Sequence[str]) -> list[list[int]]:
        return self._encode([self._text + candidate + self._suffix for candidate in candidates])


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
    )
