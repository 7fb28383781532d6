"""From rendered questions to the padded rows of a request: tokens, cuts, markers, limits, cost.

One question is one row. It is cut in this order, so that a long part leaves room for the others:

    1. an option keeps its first 48 tokens, beside its marker
    2. if that leaves less than 16 of H tokens for the head, every option keeps max(4, (H - 16) // n), marker included
    3. the head keeps what the options leave of H tokens, and at least 8
    4. the state keeps what then is left of the row: its first tokens, or its last ones when it is an array, whose
       newest entries are at its end

H and the length of a row are the checkpoint's: 192 and 512 of the English one, and 1,024 of its siblings.

All rows of a request are read at once, so they are padded here, to a few sizes that a device can prepare for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from frontend.families.checkpoints import EncodeAll
from frontend.families.laya.rendering import Rendered, for_tokens, json_text
from frontend.families.refusal import Refused
from frontend.requests.questions import printable
from protocol.contracts.laya import KINDS, MAX_MARKERS, MAX_ROWS, Config, Special
from protocol.long_texts import PIECE_CHARS, TooManyTokens, bounded_all, to_be_cut
from protocol.payloads import MarkedRowsRequest

MAX_OPTION_TOKENS: Final = 48
LEAST_HEAD: Final = 16
LEAST_HEAD_KEPT: Final = 8
LEAST_OPTION_KEPT: Final = 4

FINE_STEP: Final = 16
FINE_UP_TO: Final = 256
COARSE_STEP: Final = 64
"""Widths are multiples of the first number up to the second, and of the third above."""


@dataclass(frozen=True, slots=True)
class Row:
    """One question in tokens."""

    tokens: list[int]
    markers: list[int]
    """Where each option begins, in order."""

    whole: int
    """How many tokens it would have if nothing had been cut."""

    kept: tuple[tuple[str, int, int], ...]
    """(part, tokens kept, tokens there were) of every part: the options in order, the head, the state."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A whole request as rows. `payload` is None exactly when there are no questions."""

    payload: MarkedRowsRequest | None
    tokens: int
    """The sum of the row lengths without padding: the cost, and what usage reports."""

    whole_tokens: int
    """The same before the cuts; equal when nothing was cut."""


def check_size(questions: Sequence[Rendered]) -> None:
    """Raises `Refused` for more questions or options than one pass takes."""
    if len(questions) > MAX_ROWS:
        raise Refused(f"at most {MAX_ROWS} questions per CUDA request", ("questions",))
    if sum([len(question.options) for question in questions]) > MAX_MARKERS:
        raise Refused(f"at most {MAX_MARKERS} option markers per CUDA request", ("questions",))


def compile_rows(
    state: object,
    questions: Sequence[Rendered],
    encode: EncodeAll,
    special: Special,
    config: Config,
    *,
    truncate: bool,
) -> Compiled:
    """All rows of a request, or `Refused` before anything is sent: for too many questions or options, with reason
    `tokens` for options that do not fit into a row at all, and (without `truncate`) for whatever would be cut.

    Tokenizing is what takes time here. Every text of the request is tokenized once.
    """
    check_size(questions)
    if not questions:
        return Compiled(None, 0, 0)
    texts = [for_tokens(json_text(state), special.mask)]
    for question in questions:
        texts.append(for_tokens(question.head, special.mask))
        texts += [" " + for_tokens(option, special.mask) for option in question.options]
    parts = iter(_encoded(texts, questions, encode, config.row_tokens, truncate=truncate))
    state_tokens = next(parts)
    rows = []
    for question in questions:
        head = next(parts)
        options = [next(parts) for _ in question.options]
        made = row(head, options, state_tokens, special, config, keep_last=isinstance(state, list))
        if len(made.markers) < len(options):
            message = f"question {printable(question.id)!r} options exceed head_max_len={config.head_tokens}"
            raise Refused(message, ("questions", question.id, "criteria"), reason="tokens")
        if not truncate:
            _refuse_cuts(question, made, config.row_tokens)
        rows.append(made)
    return Compiled(
        payload=pad(rows, [KINDS.index(question.kind) for question in questions], special.padding, config.row_tokens),
        tokens=sum([len(made.tokens) for made in rows]),
        whole_tokens=sum([made.whole for made in rows]),
    )


def _encoded(
    texts: Sequence[str], questions: Sequence[Rendered], encode: EncodeAll, most: int, *, truncate: bool
) -> list[list[int]]:
    """The tokens of the state, and of the head and the options of each question. No part of a row has more than `most`
    of them. Raises `Refused` for a long text that has more, where nothing is cut."""
    if truncate:
        short = [text if len(text) <= PIECE_CHARS else "" for text in texts]
        return [
            made if whole == kept else to_be_cut(lambda piece: encode([piece])[0], whole, most)
            for made, kept, whole in zip(encode(short), short, texts, strict=True)
        ]
    try:
        return bounded_all(encode, texts, most)
    except TooManyTokens as error:
        size, at = f"is {error.least} tokens or more; a row has {most}", error.at
        if not at:
            raise Refused(f"the state {size}", ("state",), reason="tokens") from None
        for question in questions:
            if at <= 1 + len(question.options):
                part = "the head" if at == 1 else f"option {at - 1}"
                message = f'question "{printable(question.id)}": {part} {size}'
                raise Refused(message, ("questions", question.id), reason="tokens") from None
            at -= 1 + len(question.options)
        raise AssertionError("the text is the state's or a question's") from None


def row(
    head: list[int],
    options: Sequence[list[int]],
    state: list[int],
    special: Special,
    config: Config,
    *,
    keep_last: bool,
) -> Row:
    """The row of a question whose parts are tokenized. Options whose marker is beyond the row have none."""
    marked = [[special.marker, *option[:MAX_OPTION_TOKENS]] for option in options]
    left = config.head_tokens - sum(map(len, marked))
    if left < LEAST_HEAD:
        most = max(LEAST_OPTION_KEPT, (config.head_tokens - LEAST_HEAD) // len(marked))
        marked = [option[:most] for option in marked]
        left = config.head_tokens - sum(map(len, marked))
    kept_head = head[: max(LEAST_HEAD_KEPT, left)]
    tokens = [special.begin, *kept_head, special.end]
    markers = []
    for option in marked:
        markers.append(len(tokens))
        tokens += option
    tokens.append(special.end)
    room = max(0, config.row_tokens - len(tokens) - 1)
    kept_state = state[max(0, len(state) - room) :] if keep_last else state[:room]
    tokens += kept_state
    tokens.append(special.end)
    kept = [
        (f"option {index}", len(cut) - 1, len(option))
        for index, (cut, option) in enumerate(zip(marked, options, strict=True), 1)
    ]
    kept += [("the head", len(kept_head), len(head)), ("the state", len(kept_state), len(state))]
    return Row(
        tokens=tokens[: config.row_tokens],
        markers=[marker for marker in markers if marker < config.row_tokens],
        # the begin, three ends, and a marker beside each option
        whole=4 + len(options) + sum([there for _, _, there in kept]),
        kept=tuple(kept),
    )


def width(longest: int, most: int) -> int:
    """How many columns rows are padded to whose longest has `longest` tokens, at most `most`."""
    step = FINE_STEP if longest <= FINE_UP_TO else COARSE_STEP
    return min(most, -(-longest // step) * step)


def pad(rows: Sequence[Row], kinds: Sequence[int], padding: int, most: int) -> MarkedRowsRequest:
    """The rows as one batch: as many as the next power of two, as wide as `width` says, at most `most`.

    Up to the longest row the padding is the tokenizer's, beyond it and in the added rows it is 0; the lengths say
    what counts.
    """
    lengths = [len(made.tokens) for made in rows]
    count, longest = 1 << (len(rows) - 1).bit_length(), max(lengths)
    added = [0] * (count - len(rows))
    tokens = np.zeros((count, width(longest, most)), np.int32)
    tokens[: len(rows), :longest] = padding
    for index, made in enumerate(rows):
        tokens[index, : len(made.tokens)] = made.tokens
    return MarkedRowsRequest(
        tokens=tokens,
        lengths=np.array([*lengths, *added], np.int32),
        kinds=np.array([*kinds, *added], np.int32),
        markers=np.array([marker for made in rows for marker in made.markers], np.int32),
        counts=np.array([*(len(made.markers) for made in rows), *added], np.int32),
    )


def _refuse_cuts(question: Rendered, made: Row, most: int) -> None:
    for part, kept, there in made.kept:
        if kept < there:
            message = f'question "{printable(question.id)}": {part} is {there} tokens, of which {kept} have room'
            raise Refused(message, ("questions", question.id), reason="tokens")
    if len(made.tokens) < made.whole:
        message = f'question "{printable(question.id)}" makes a row of {made.whole} tokens; at most {most}'
        raise Refused(message, ("questions", question.id), reason="tokens")
