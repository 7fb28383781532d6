"""What is cut, what is refused, and how rows are padded. A token is a character here."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.families.laya.rows import width
from frontend.families.refusal import Refused
from protocol.contracts.laya import MAX_MARKERS, MAX_ROWS
from tests.unit.laya.helpers import QUESTIONS, SPECIAL, compiled

NOUL = {"type": "noul", "instructions": "i"}


def choice(*options: str, instructions: str = "i") -> dict[str, Any]:
    return {"q": {"type": "choice", "instructions": instructions, "criteria": list(options)}}


def first_row(state: Any, questions: Any) -> list[int]:
    payload = compiled(state, questions).payload
    assert payload is not None
    row: list[int] = payload.tokens[0, : payload.lengths[0]].tolist()
    return row


def parts(state: Any, questions: Any) -> list[str]:
    """The texts between the special tokens of the first row, those that are not empty."""
    texts = [""]
    for token in first_row(state, questions):
        if token in (SPECIAL.begin, SPECIAL.end, SPECIAL.marker):
            texts.append("")
        else:
            texts[-1] += chr(token)
    return [text for text in texts if text]


def test_a_row_in_order() -> None:
    """Begin, head, end, marker and option for each, end, state, end; an option begins with a space."""
    row = first_row("st", choice("a", "b"))
    special = {index: token for index, token in enumerate(row) if token in (SPECIAL.begin, SPECIAL.end, SPECIAL.marker)}
    assert special == {
        0: SPECIAL.begin, 19: SPECIAL.end, 20: SPECIAL.marker, 23: SPECIAL.marker, 26: SPECIAL.end, 29: SPECIAL.end,
    }  # fmt: skip
    assert parts("st", choice("a", "b")) == ["choice question: i", " a", " b", "st"]


def test_a_marker_in_a_text_is_a_space() -> None:
    """In instructions, options and state alike."""
    made = parts("s[MASK]t", choice("a[MASK]", "b", instructions="[MASK]i"))
    assert made == ["choice question:  i", " a ", " b", "s t"]


def test_an_option_keeps_48_tokens() -> None:
    """Beside its marker, the space at its beginning counted."""
    made = parts("s", choice("a" * 47, "b" * 48))
    assert [len(text) for text in made[1:3]] == [48, 48]


@pytest.mark.parametrize(
    ("options", "option", "head"),
    [(3, 48, 45), (4, 43, 16), (11, 15, 16), (40, 3, 32), (50, 3, 8)],
    ids=lambda value: str(value),
)
def test_what_long_options_leave_for_the_head(options: int, option: int, head: int) -> None:
    """With less than 16 of 192 left every option keeps max(4, 176 // n) with its marker, and the head at least 8."""
    made = parts("s", choice(*(f"{i:02}" + "o" * 60 for i in range(options)), instructions="h" * 300))
    assert {len(text) for text in made[1:-1]} == {option}
    assert len(made[0]) == head


@pytest.mark.parametrize(("state", "kept"), [("ab" * 400, "first"), (["ab"] * 200, "last")], ids=["text", "array"])
def test_a_long_state_fills_the_row(state: Any, kept: str) -> None:
    """A text keeps its beginning, an array its end, where its newest entries are; the row has 512 tokens."""
    from frontend.families.laya.rendering import json_text

    row = first_row(state, choice("a"))
    assert len(row) == 512
    assert row[-1] == SPECIAL.end
    text = json_text(state)
    room = len(parts(state, choice("a"))[-1])
    assert parts(state, choice("a"))[-1] == (text[:room] if kept == "first" else text[-room:])


@pytest.mark.parametrize(("options", "last"), [(125, SPECIAL.end), (126, ord(" "))])
def test_a_row_without_room_for_a_state(options: int, last: int) -> None:
    """The state is gone, not whole, also of an array, whose last tokens are asked for; beyond that an option is cut."""
    questions = choice(*(f"{i:03}" for i in range(1, options + 1)))
    made = compiled(["state"] * 99, questions)
    assert made.payload is not None
    assert made.payload.lengths[0] == 512
    assert len(made.payload.markers) == options
    assert made.whole_tokens > made.tokens
    row = first_row(["state"] * 99, questions)
    assert row[-1] == last


@pytest.mark.parametrize("truncate", [True, False])
def test_options_that_do_not_fit_are_refused(truncate: bool) -> None:
    """A marker beyond the row cannot be answered."""
    with pytest.raises(Refused, match=r"^question 'q' options exceed head_max_len=192$") as caught:
        compiled("s", choice(*(f"{i:03}" for i in range(300))), truncate=truncate)
    assert caught.value.reason == "tokens"


CUTS: dict[str, tuple[Any, Any, str]] = {
    "an option": ("s", choice("a", "b" * 48), 'question "q": option 2 is 49 tokens, of which 48 have room'),
    "the head": ("s", choice("a", instructions="h" * 200), "the head is 217 tokens, of which 189 have room"),
    "the state": ("s" * 500, choice("a"), "the state is 500 tokens, of which 487 have room"),
}


@pytest.mark.parametrize("case", CUTS)
def test_without_truncate_a_cut_is_refused(case: str) -> None:
    """With the part, what it has and what there is room for; with `truncate` the same is cut and counted."""
    state, questions, message = CUTS[case]
    with pytest.raises(Refused, match=message) as caught:
        compiled(state, questions, truncate=False)
    assert caught.value.reason == "tokens"
    assert caught.value.place == ("questions", "q")
    made = compiled(state, questions)
    assert made.tokens < made.whole_tokens


def test_nothing_is_cut_up_to_the_limits() -> None:
    """A row of exactly 512 tokens is whole, and of one more is not."""
    room = 512 - len(first_row("", choice("a")))
    assert compiled("s" * room, choice("a"), truncate=False).tokens == 512
    with pytest.raises(Refused):
        compiled("s" * (room + 1), choice("a"), truncate=False)


def test_the_number_of_questions() -> None:
    """16 are taken, 17 are not."""
    assert compiled("s", {str(i): NOUL for i in range(MAX_ROWS)}).payload is not None
    with pytest.raises(Refused, match=r"^at most 16 questions per CUDA request$"):
        compiled("s", {str(i): NOUL for i in range(MAX_ROWS + 1)})


def test_the_number_of_options() -> None:
    """More than 2,048 in a request are said before any is tokenized."""
    questions = {str(i): choice(*(f"{j}" for j in range(129)))["q"] for i in range(16)}

    def encode(texts: Any) -> list[list[int]]:
        raise AssertionError("nothing is tokenized")

    assert MAX_MARKERS < 16 * 129
    with pytest.raises(Refused, match=r"^at most 2048 option markers per CUDA request$"):
        compiled("s", questions, encode=encode)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [(1, 16), (16, 16), (17, 32), (256, 256), (257, 320), (320, 320), (321, 384), (449, 512), (512, 512)],
)
def test_the_width_of_a_batch(longest: int, expected: int) -> None:
    """Multiples of 16 up to 256, of 64 above."""
    assert width(longest, 512) == expected
    assert width(longest, 1024) == expected


def test_a_batch_is_no_wider_than_a_row() -> None:
    """A checkpoint with short rows has narrow batches."""
    assert width(99, 100) == 100


@pytest.mark.parametrize(("questions", "rows"), [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (16, 16)])
def test_the_rows_of_a_batch(questions: int, rows: int) -> None:
    """The next power of two; what is added has no tokens."""
    payload = compiled("s", {str(i): NOUL for i in range(questions)}).payload
    assert payload is not None
    assert payload.tokens.shape[0] == rows
    assert payload.rows == questions


def test_questions_do_not_reach_each_other() -> None:
    """A question's row is the same alone and among others, whatever it is called."""
    together = compiled("state", QUESTIONS).payload
    assert together is not None
    for index, (name, fields) in enumerate(QUESTIONS.items()):
        alone = compiled("state", {f"another {name}": fields}).payload
        assert alone is not None
        length = alone.lengths[0]
        assert together.lengths[index] == length
        assert together.tokens[index, :length].tolist() == alone.tokens[0, :length].tolist()
