"""Rows and limits, with one token per character so that lengths can be counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from frontend.families.nimble.rendering import question
from frontend.families.nimble.rows import Compiled, compile_rows
from frontend.families.refusal import Refused
from protocol.payloads import RowsRequest
from tests.unit.nimble.helpers import QUESTIONS, Letters, letters

CODES = [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *Letters().pieces[4:]]
YES = {"type": "noul", "instructions": "ok"}


def compiled(state: Any, questions: Any, *, max_length: int = 8192, encode: Any = letters) -> Compiled:
    return compile_rows(
        state, [question(name, fields) for name, fields in questions.items()], encode, CODES, max_length
    )


def test_one_row_for_each_question() -> None:
    """With as many options as it has; all begin with the same tokens, which are counted in each."""
    made = compiled("st", QUESTIONS)
    payload = RowsRequest.from_wire(made.payload.to_wire())
    rows, owners = payload.split()
    assert owners == [0, 1, 2]
    assert payload.candidates.tolist() == [2, 2, 3]
    assert made.tokens == len(payload.tokens)
    assert {tuple(row[: made.prefix]) for row in rows} == {tuple(rows[0][: made.prefix])}
    # Up to the space before the id: the quotes and the ids are not what the rows are said to share.
    assert len(rows[0]) - made.prefix == len('"team"') + len(letters(["<|im_end|>\n<|im_start|>assistant\n"])[0]) + 6


def joining(texts: Sequence[str]) -> list[list[int]]:
    """A tokenizer that joins the colon with what follows it."""
    found = []
    for text in texts:
        ids = letters([text])[0]
        while (at := next((i for i in range(len(ids) - 1) if ids[i : i + 2] == [ord(":"), ord(" ")]), -1)) >= 0:
            ids[at : at + 2] = [7]
        found.append(ids)
    return found


def test_a_tokenizer_that_joins_around_the_bar() -> None:
    """Is noticed at the first row, and every row is encoded whole."""
    made = compiled("st", QUESTIONS, encode=joining)
    rows, _ = made.payload.split()
    plain, _ = compiled("st", QUESTIONS).payload.split()
    texts = [
        "".join(chr(token) if token < 0x110000 else chr(0xE000 + token - 0x110000) for token in row) for row in plain
    ]
    assert [len(row) for row in rows] == [len(text) - text.count(": ") for text in texts]
    assert all(7 in row[-30:] for row in rows)
    assert made.prefix == len(rows[0]) - len('"team"') - len(letters(["<|im_end|>\n<|im_start|>assistant\n"])[0]) - 6


@pytest.mark.parametrize("fits", [True, False])
def test_a_row_has_a_longest(fits: bool) -> None:
    """The longest of them, which is that of the longest id; nothing is cut."""
    questions = {"q": YES, "longer": YES}
    longest = int(compiled("st", questions).payload.lengths.max())
    if fits:
        assert compiled("st", questions, max_length=longest).payload.lengths.max() == longest
        return
    message = f"question 'longer', which has the state and all questions, has {longest} tokens; at most {longest - 1}"
    with pytest.raises(Refused, match=message) as caught:
        compiled("st", questions, max_length=longest - 1)
    assert (caught.value.reason, caught.value.place) == ("tokens", ("questions", "longer"))


def test_a_state_that_is_too_long_by_far_is_encoded_once() -> None:
    """And refused all the same."""
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        seen.extend(texts)
        return letters(texts)

    with pytest.raises(Refused, match="at most 500 are taken"):
        compiled("x" * 5000, {"q": YES}, max_length=500, encode=encode)
    assert sum("x" * 5000 in text for text in seen) == 1


@pytest.mark.parametrize("state", ["", " \n", "\u2003\x1c"])
def test_a_blank_state_is_none(state: str) -> None:
    with pytest.raises(Refused, match="the state is blank") as caught:
        compiled(state, {"q": YES})
    assert caught.value.place == ("state",)
    assert compiled([], {"q": YES}).payload.rows == 1


@pytest.mark.parametrize("count", [64, 65])
def test_a_request_has_most_questions(count: int) -> None:
    questions = {f"q{index}": YES for index in range(count)}
    if count == 64:
        assert compiled("s", questions, max_length=100_000).payload.rows == 64
        return
    with pytest.raises(Refused, match="there are 65 questions; 1 to 64 are taken"):
        compiled("s", questions)
