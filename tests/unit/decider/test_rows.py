"""Rows of a request: expansion, limits, usage and cost, with a tokenizer whose lengths can be counted by hand."""

from __future__ import annotations

import pytest

from frontend.families.decider.rendering import Rendered, question
from frontend.families.decider.rows import compile_rows, row_texts
from frontend.families.decider.tokens import Vocabulary
from frontend.families.refusal import Refused
from protocol.contracts.agreement import ContractError
from protocol.contracts.decider import MAX_ROW_TOKENS, MAX_ROWS, MAX_STATE_TOKENS
from tests.unit.decider.helpers import letters, rows_of

LETTERS = letters()
PREFIX = len("Context:\n")


def choice(count: int = 2, text: str = "q", name: str = "id") -> Rendered:
    """A choice among numbered options."""
    return question(name, {"instructions": text, "criteria": [str(i) for i in range(count)]})


def score(count: int, text: str = "q") -> Rendered:
    """A score with numbered levels."""
    return question("id", {"type": "score", "instructions": text, "criteria": [f"level {i}" for i in range(count)]})


def test_every_level_is_a_row() -> None:
    """In request order, levels in order, with the candidates and the question of each."""
    made = compile_rows(
        "s", [choice(3), score(2), question("n", {"type": "noul", "instructions": "q"})], LETTERS, truncate=False
    )
    assert made.payload is not None
    assert made.payload.candidates.tolist() == [3, 2, 2, 2]
    assert made.payload.questions.tolist() == [0, 1, 1, 2]
    assert made.payload.lengths.tolist() == [len(row) for row in rows_of(made.payload)]
    texts = ["".join(map(chr, row)) for row in rows_of(made.payload)]
    assert texts[1] == (
        "Context:\ns\n\nQuestion: q\nProposed answer: level 0\nDoes the proposed answer fit?"
        "\nOptions:\n(A) no\n(B) yes\nAnswer: ("
    )
    assert made.processed_tokens == sum(map(len, texts))
    assert made.payload.tokens.dtype == "int32"


def test_ten_options_are_one_string_and_eleven_are_pieces() -> None:
    """Letters of the alphabet up to ten, one label token each from eleven on."""
    for count in (10, 11, 255):
        made = compile_rows("", [choice(count)], LETTERS, truncate=False)
        assert made.payload is not None
        (row,) = rows_of(made.payload)
        labels = [token for token in row if token >= 0x110000]
        assert labels == (list(LETTERS.labels[:count]) if count > 10 else [])


def test_usage_counts_what_all_rows_share_once() -> None:
    """The longest common prefix of all rows, state or not; one row counts in full; no rows count nothing."""
    one = compile_rows("state", [choice()], LETTERS, truncate=False)
    assert one.input_tokens == one.processed_tokens
    levels = compile_rows("state", [score(3)], LETTERS, truncate=False)
    assert levels.payload is not None
    rows = rows_of(levels.payload)
    shared = len("Context:\nstate\n\nQuestion: q\nProposed answer: level ")
    assert levels.input_tokens == shared + sum(len(row) - shared for row in rows)
    same = compile_rows("state", [choice(), choice(name="other")], LETTERS, truncate=False)
    assert same.input_tokens == one.input_tokens
    assert same.processed_tokens == 2 * one.processed_tokens
    none = compile_rows("state", [], LETTERS, truncate=False)
    assert (none.payload, none.input_tokens, none.processed_tokens) == (None, 0, 0)
    assert none.state_tokens == PREFIX + 5


def test_a_long_state_is_cut_or_refused() -> None:
    """`truncate` keeps its first 32,768 tokens, the prefix among them; without it the request is refused."""
    state = "x" * (MAX_STATE_TOKENS - PREFIX)
    whole = compile_rows(state, [choice()], LETTERS, truncate=False)
    cut = compile_rows(state + "yz", [choice()], LETTERS, truncate=True)
    assert whole.payload is not None
    assert cut.payload is not None
    assert rows_of(cut.payload) == rows_of(whole.payload)
    assert (cut.state_tokens, cut.whole_state_tokens) == (MAX_STATE_TOKENS, MAX_STATE_TOKENS + 2)
    with pytest.raises(Refused, match="32769 tokens") as caught:
        compile_rows(state + "y", [choice()], LETTERS, truncate=False)
    assert (caught.value.reason, caught.value.place) == ("tokens", ("state",))


def test_a_row_has_a_limit() -> None:
    """36,864 tokens fit and one more does not, whatever `truncate` says."""
    (text, options), *_ = row_texts(choice())
    rest = PREFIX + len(LETTERS.question(text, options)) - 1
    fits = compile_rows("", [choice(text="q" * (MAX_ROW_TOKENS - rest))], LETTERS, truncate=False)
    assert fits.processed_tokens == MAX_ROW_TOKENS
    for truncate in (False, True):
        with pytest.raises(Refused, match="36865 tokens") as caught:
            compile_rows("", [choice(text="q" * (MAX_ROW_TOKENS - rest + 1))], LETTERS, truncate=truncate)
        assert (caught.value.reason, caught.value.place) == ("tokens", ("questions", "id"))


def test_a_request_has_limits() -> None:
    """1,024 rows, counted before anything is tokenized, and 1,048,576 tokens of all rows."""
    calls: list[str] = []

    def encode(text: str) -> list[int]:
        calls.append(text)
        return LETTERS.encode(text)

    counted = Vocabulary(encode, LETTERS.names, LETTERS.labels, LETTERS.opening)
    fits = compile_rows("", [score(10)] * 102 + [choice()] * 4, counted, truncate=False)
    assert fits.payload is not None
    assert fits.payload.rows == MAX_ROWS
    calls.clear()
    with pytest.raises(Refused, match="request exceeds expanded row budget") as caught:
        compile_rows("", [score(10)] * 102 + [choice()] * 5, counted, truncate=False)
    assert caught.value.reason == "size"
    assert calls == []
    with pytest.raises(Refused, match="expanded token budget") as caught:
        compile_rows("x" * 32_000, [choice()] * 33, counted, truncate=False)
    assert caught.value.reason == "size"
    # 32 rows of 32,000 fit; the 33rd is the last one that is looked at.
    assert len(calls) == 1 + 33


def test_tokenizing_stops_at_the_first_row_that_is_too_long() -> None:
    """A long question with ten levels is read once, not ten times."""
    calls: list[str] = []

    def encode(text: str) -> list[int]:
        calls.append(text)
        return LETTERS.encode(text)

    counted = Vocabulary(encode, LETTERS.names, LETTERS.labels, LETTERS.opening)
    with pytest.raises(Refused):
        compile_rows("", [score(10, "q" * 40_000)], counted, truncate=True)
    assert len(calls) == 2


def test_a_vocabulary_needs_255_different_labels() -> None:
    """Names that are one token, in order, until there are enough; fewer, or equal ones, are refused."""
    assert (LETTERS.names[0], LETTERS.names[26], len(LETTERS.labels)) == ("A", "AA", 255)
    with pytest.raises(ContractError):
        Vocabulary.of(lambda text: [ord(letter) for letter in text])
    with pytest.raises(ContractError):
        Vocabulary.of(lambda text: [7])
    every_other = Vocabulary.of(lambda text: [hash(text)] if sum(map(ord, text)) % 2 else [1, 2])
    assert every_other.names[:3] == ("A", "C", "E")
