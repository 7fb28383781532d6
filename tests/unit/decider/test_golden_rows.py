"""Requests to rows, against the published vectors, with the pinned tokenizer known only by what it did there.

The oracle below knows the tokens of exactly those strings that the contract says are encoded as one (2.2). A
string that differs by one byte, or is cut elsewhere, has no tokens and fails the test.
"""

from __future__ import annotations

from typing import Any

import pytest

from frontend.families.decider import grammar
from frontend.families.decider.rendering import annotated, json_text, state_text
from frontend.families.decider.rows import compile_rows
from frontend.families.decider.tokens import Vocabulary
from protocol.contracts.decider import LABELS, label_names
from tests.unit.decider.helpers import GOLDEN, rows_of, texts_of

VECTORS: dict[str, dict[str, Any]] = {vector["name"]: vector for vector in GOLDEN["rows"]}

ASKED = "\n\nQuestion: {}\nOptions:"
SLOT = "\nAnswer: ("
FIT = "{}\nProposed answer: {}\nDoes the proposed answer fit?"
NO_YES = "\n(A) no\n(B) yes" + SLOT
NOUL = "Which answer fits the context?"

STATE = "退款 <|im_start|>\n café"
DESCRIBED = {f"候选{i}": {"text": "é", "n": i} if i % 2 else None for i in range(11)}
WIDE = {"state": STATE, "questions": {"any": {"instructions": "Pick 中文", "criteria": DESCRIBED}}}
MIXED_STATE = '{"b": "é", "a": [-0.0, 1e-05, 1e+16, null]}'

PIECES: dict[str, tuple[str, list[str]]] = {
    "choice_2": (STATE, [ASKED.format("Pick 中文") + '\n(A) 候选0\n(B) 候选1: {"text": "é", "n": 1}' + SLOT]),
    "score_2": (
        VECTORS["score_2"]["rendered_state"],
        [ASKED.format(FIT.format('{"ask": "How severe?"}', f"level {i}")) + NO_YES for i in range(2)],
    ),
    "noul_desc": ("true", [ASKED.format(NOUL) + '\n(A) no\n(B) yes: {"ask": "refund"}' + SLOT]),
    "noul_partial": ("plain", [ASKED.format(NOUL) + "\n(A) no: false\n(B) yes" + SLOT]),
    "structured_mixed": (
        MIXED_STATE,
        [
            ASKED.format('["Which?", 1]') + "\n(A) a\n(B) b" + SLOT,
            ASKED.format(FIT.format("Level", "fine")) + NO_YES,
            ASKED.format(FIT.format("Level", "bad")) + NO_YES,
            ASKED.format(NOUL) + "\n(A) no: fine\n(B) yes" + SLOT,
        ],
    ),
    "empty": ('{"n": 1}', []),
}
"""Of each vector: the rendered state, and the string after it in each row."""


def oracle(name: str) -> Vocabulary:
    """The pinned tokenizer, as far as the vector `name` shows it."""
    vector = VECTORS[name]
    state, ends = PIECES[name]
    cut = vector["context_tokens"]
    known: dict[str, list[int]] = {f"Context:\n{state}": [0] * cut, "\n(": [198, 7]}
    for end, row in zip(ends, vector["rows"], strict=True):
        known[f"Context:\n{state}"], known[end] = row[:cut], row[cut:]
    return with_labels(known)


def with_labels(known: dict[str, list[int]]) -> Vocabulary:
    """A vocabulary whose labels are the published ones: pairs that are no label count as two tokens."""
    published = iter(GOLDEN["label_ids"])
    names = label_names()
    # Which pairs are single tokens is not published beyond the last one; here the first ones are.
    tokens = {name: [next(published)] for name in names[:LABELS]} | {name: [1, 2] for name in names[LABELS:]}
    return Vocabulary.of(lambda text: list((tokens | known)[text]))


@pytest.mark.parametrize("name", PIECES)
def test_rows_are_the_published_ones(name: str) -> None:
    """Every token of every row, the token counts of the state, of usage and of the cost."""
    vector = VECTORS[name]
    asked = grammar.parse(vector["request"])
    made = compile_rows(asked.state, asked.questions, oracle(name), truncate=True)
    assert (rows_of(made.payload) if made.payload else []) == vector["rows"]
    counts = (made.state_tokens, made.input_tokens, made.processed_tokens)
    assert counts == (vector["context_tokens"], vector["input_tokens"], vector["processed_tokens"])


def test_eleven_options_are_wide() -> None:
    """From 11 options on, every piece is encoded alone and the label between them is one token."""
    vector = VECTORS["choice_11_wide"]
    (row,) = vector["rows"]
    asked = grammar.parse(WIDE)
    head, slot = ASKED.format("Pick 中文"), [198, 15666, 25, 318]
    assert row[-4:] == slot
    start = row.index(7) - 1  # the first "\n("
    known = {f"Context:\n{STATE}": row[:8], head: row[8:start], SLOT: slot, "\n(": [198, 7]}
    # The options in between: "\n(", the label, then the text up to the next "\n(".
    rest = row[start:-4]
    (openings,) = [[i for i in range(len(rest)) if rest[i : i + 2] == [198, 7]]]
    assert len(openings) == 11
    for text, here, there in zip(asked.questions[0].options, openings, [*openings[1:], len(rest)], strict=True):
        known[f") {text}"] = rest[here + 3 : there]
    made = compile_rows(asked.state, asked.questions, with_labels(known), truncate=True)
    assert made.payload is not None
    assert rows_of(made.payload) == vector["rows"]
    assert [rest[here + 2] for here in openings] == GOLDEN["label_ids"][:11]
    assert (made.input_tokens, made.processed_tokens) == (vector["input_tokens"], vector["processed_tokens"])


@pytest.mark.parametrize("name", [name for name in PIECES if "options" in VECTORS[name]])
def test_options_are_the_published_texts(name: str) -> None:
    """Names, descriptions, structured descriptions and described sides as the vectors print them."""
    asked = grammar.parse(VECTORS[name]["request"])
    assert [list(options) for _, options in texts_of(asked.questions)] == [VECTORS[name]["options"]]


@pytest.mark.parametrize("name", [name for name in PIECES if "rendered_state" in VECTORS[name]])
def test_states_are_the_published_texts(name: str) -> None:
    """Annotated arrays and Python's own spelling of floats."""
    assert state_text(VECTORS[name]["request"]["state"]) == VECTORS[name]["rendered_state"]


def test_the_input_of_the_annotation_is_not_changed() -> None:
    """States are shared between whoever holds the request."""
    state = {"items": [{"n": i} for i in range(8)]}
    before = json_text(state)
    assert json_text(annotated(state)) != before
    assert json_text(state) == before
