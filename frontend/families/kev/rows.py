"""From rendered questions to the rows of a request: tokens, marks, limits, cost.

    <|fim_prefix|> state <|fim_middle|> instructions { <|box_start|> option <|box_end|> }* <|fim_suffix|>

One question is one row, read at the end of each option and at its own end. Each part is tokenized by itself. All rows
begin with the same state, which the host reads once; what usage reports, and admission counts, is the state once and
every question. Nothing is ever cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frontend.families.checkpoints import EncodeAll
from frontend.families.kev.rendering import Rendered, for_tokens, laid_out
from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.kev import MAX_MARKERS, MAX_QUESTIONS, MAX_TOKENS, Delimiters
from protocol.long_texts import TooManyTokens, bounded_all
from protocol.payloads import MarkedRowsRequest


@dataclass(frozen=True, slots=True)
class Compiled:
    """A whole request as rows, one question each."""

    payload: MarkedRowsRequest
    tokens: int
    """Of the state once and of every question."""


def compile_rows(
    state: object, questions: Sequence[Rendered], encode: EncodeAll, delimiters: Delimiters, max_length: int
) -> Compiled:
    """All rows of a request, or `Refused` before anything is sent: for too many questions or options, with reason
    `tokens` for a state or a row above `max_length`, with reason `size` for too much in total."""
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise Refused(f"there are {len(questions)} questions; 1 to {MAX_QUESTIONS} are taken", ("questions",))
    options = sum([len(question.options) for question in questions])
    if options > MAX_MARKERS:
        raise Refused(f"the questions have {options} options; at most {MAX_MARKERS} are taken", ("questions",))
    texts = [laid_out(state)]
    for question in questions:
        texts += (question.instructions, *question.options)
    try:
        parts = iter(bounded_all(encode, [for_tokens(text) for text in texts], max_length))
    except TooManyTokens as error:
        if not error.at:
            raise _state_too_long(f"{error.least} tokens or more", max_length) from None
        at = error.at
        for question in questions:
            at -= 1 + len(question.options)
            if at <= 0:
                message = f"question {printable(question.id)!r} has {error.least} tokens or more; at most {max_length}"
                raise Refused(f"{message} are taken", ("questions", question.id), reason="tokens") from None
        raise AssertionError("the text is the state's or a question's") from None
    start = [delimiters.state, *next(parts)]
    if len(start) > max_length:
        raise _state_too_long(f"{len(start)} tokens", max_length)
    made = [_branch(question, parts, delimiters) for question in questions]
    for question, (branch, _) in zip(questions, made, strict=True):
        if len(start) + len(branch) > max_length:
            message = (
                f"question {printable(question.id)!r} has {len(branch)} tokens, and the state {len(start)}; together"
                f" at most {max_length} are taken"
            )
            raise Refused(message, ("questions", question.id), reason="tokens")
    if len(made) * (len(start) + max([len(branch) for branch, _ in made])) > MAX_TOKENS:
        raise Refused(f"the rows of the request have more than {MAX_TOKENS} tokens", ("questions",), reason="size")
    tokens = len(start) + sum([len(branch) for branch, _ in made])
    return Compiled(_payload(start, made), tokens)


def _state_too_long(size: str, most: int) -> Refused:
    return Refused(f"the state has {size}; at most {most} are taken", ("state",), reason="tokens")


def _branch(question: Rendered, parts: Iterator[list[int]], delimiters: Delimiters) -> tuple[list[int], list[int]]:
    """What follows the state in the row of a question, and where in it the options end."""
    branch = [delimiters.question, *next(parts)]
    ends = []
    for _ in question.options:
        branch += (delimiters.option, *next(parts), delimiters.option_end)
        ends.append(len(branch) - 1)
    branch.append(delimiters.decide)
    return branch, ends


def _payload(start: list[int], made: Sequence[tuple[list[int], list[int]]]) -> MarkedRowsRequest:
    import numpy as np

    lengths = np.array([len(start) + len(branch) for branch, _ in made], np.int32)
    tokens = np.zeros((len(made), int(lengths.max())), np.int32)
    tokens[:, : len(start)] = start
    for index, (branch, _) in enumerate(made):
        tokens[index, len(start) : lengths[index]] = branch
    return MarkedRowsRequest(
        tokens=tokens,
        lengths=lengths,
        kinds=np.zeros(len(made), np.int32),
        markers=np.array([len(start) + end for _, ends in made for end in ends], np.int32),
        counts=np.array([len(ends) for _, ends in made], np.int32),
    )
