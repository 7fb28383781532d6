"""Shared prefixes: what is read once, and when that is worth it. No model here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from executor_host.backbones.prefix import BOUNDARY, TREE_LEVELS, Branch, Node, Plan, common, plan, tree


def row(*parts: tuple[int, int]) -> NDArray[np.int32]:
    """A row of runs of one token: (token, how many)."""
    return np.concatenate([np.full(count, token, np.int32) for token, count in parts])


# Worked out by hand from the contract's rule (section 5). Each row is runs of (token, count).
VECTORS = {
    # All rows have 133 tokens in common, 2 x 64 of which are shared.
    "a score of two levels": (
        [row((1, 133), (2, 23)), row((1, 133), (3, 23))],
        [0, 0],
        Plan(128, (Branch(range(2), 128),), 128, 312),
    ),
    # A choice, a score of two levels that share 70 more, a noul. q = 64 * floor((100 + 70) / 64) = 128.
    "a group shares more than the request": (
        [
            row((1, 100), (2, 30)),
            row((1, 100), (3, 70), (4, 5)),
            row((1, 100), (3, 70), (5, 9)),
            row((1, 100), (6, 10)),
        ],
        [0, 1, 1, 2],
        Plan(64, (Branch(range(1), 64), Branch(range(1, 3), 128), Branch(range(3, 4), 64)), 3 * 64 + 64, 594),
    ),
    # Neighbours that go on from the request's own state are one branch, whichever question they belong to.
    "questions without a group of their own": (
        [row((1, 64), (token, 5)) for token in range(2, 7)],
        [0, 1, 1, 2, 3],
        Plan(64, (Branch(range(5), 64),), 256, 345),
    ),
    # The rows share nothing at all, the two of question 1 share 64.
    "only a group shares": (
        [row((9, 50)), row((1, 64), (2, 1)), row((1, 64), (3, 1))],
        [0, 1, 1],
        Plan(0, (Branch(range(1), 0), Branch(range(1, 3), 64)), 64, 180),
    ),
    # 64 tokens in common, but the shorter row would have nothing left to be read at.
    "one token stays": ([row((1, 64)), row((1, 64), (2, 9))], [0, 1], None),
    "one token stays, and is enough": (
        [row((1, 65)), row((1, 65), (2, 9))],
        [0, 1],
        Plan(64, (Branch(range(2), 64),), 64, 139),
    ),
    "equal rows": ([row((1, 200))] * 3, [0, 1, 2], Plan(192, (Branch(range(3), 192),), 384, 600)),
    "63 in common": ([row((1, 63), (2, 9)), row((1, 63), (3, 9))], [0, 0], None),
    "one row": ([row((1, 500))], [0], None),
    "no row": ([], [], None),
    # Alike, but not neighbours: the rows of question 0 are not a group.
    "a question that comes back": (
        [row((1, 64), (2, 9)), row((3, 70)), row((1, 64), (4, 9))],
        [0, 1, 0],
        None,
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_plans(name: str) -> None:
    """Where the states are taken, and what that saves."""
    rows, questions, expected = VECTORS[name]
    assert plan(rows, questions) == expected


GOLDEN = json.loads((Path(__file__).parents[1] / "decider" / "golden.json").read_text(encoding="utf-8"))
PUBLISHED = [vector for vector in GOLDEN["rows"] if len(vector["rows"]) > 1]


@pytest.mark.parametrize("vector", PUBLISHED, ids=lambda vector: str(vector["name"]))
def test_published_rows(vector: dict[str, Any]) -> None:
    """The contract's usage counts what all rows have in common once, so it says how much that is."""
    rows = [np.array(tokens, np.int32) for tokens in vector["rows"]]
    shared = (vector["processed_tokens"] - vector["input_tokens"]) // (len(rows) - 1)
    assert common(rows) == shared
    saved = (len(rows) - 1) * (shared - shared % 64)
    found = plan(rows, list(range(len(rows))))
    assert (found.saved if found else 0) == saved
    if found:
        assert (found.root, found.total) == (shared - shared % 64, vector["processed_tokens"])


@pytest.mark.parametrize(
    ("saved", "total", "worthwhile"),
    [
        (4096, 12288, True),
        (4095, 8000, False),
        (4096, 12289, False),
        (4097, 12291, True),
        (4097, 12292, False),
        (40_000, 60_000, True),
        (40_000, 120_001, False),
        (0, 0, False),
    ],
)
def test_auto_has_two_thresholds(saved: int, total: int, worthwhile: bool) -> None:
    """At least 4,096 tokens and, rounded up, a third of all."""
    assert Plan(64, (), saved, total).worthwhile is worthwhile


def test_the_published_workloads_reach_the_thresholds() -> None:
    """Requests of the size of those that the contract's timings are of: long ones share, a short one does not."""
    long = [row((1, 2400), (level + 2, 46)) for level in range(10)]
    found = plan(long, [0] * 10)
    assert found is not None
    assert (found.total, found.saved, found.worthwhile) == (24_460, 9 * 2368, True)
    short = plan([row((1, 300), (level + 2, 30)) for level in range(10)], [0] * 10)
    assert short is not None
    assert (short.saved, short.worthwhile) == (9 * 256, False)


ENDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 150), st.integers(1, 40)), min_size=1, max_size=8)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 300), ENDS)
def test_a_plan_counts_what_it_says(shared: int, ends: list[tuple[int, int, int]]) -> None:
    """Every row once, in order, with an end; the tokens read are those of the states and the ends."""
    questions = sorted(question for question, _, _ in ends)
    rows = [
        row((1, shared), (10 + question, inside), (100 + index, own))
        for index, (question, (_, inside, own)) in enumerate(zip(questions, ends, strict=True))
    ]
    found = plan(rows, questions)
    if found is None:
        assert len(rows) < 2 or common(rows) < BOUNDARY
        return
    assert [index for branch in found.branches for index in branch.rows] == list(range(len(rows)))
    read = found.root
    for branch in found.branches:
        assert branch.prefix % BOUNDARY == 0
        assert branch.prefix >= found.root
        read += branch.prefix - found.root
        for index in branch.rows:
            assert branch.prefix < len(rows[index])
            assert np.array_equal(rows[index][: branch.prefix], rows[branch.rows[0]][: branch.prefix])
            read += len(rows[index]) - branch.prefix
    assert read == found.processed == found.total - found.saved
    assert found.saved > 0


def test_rows_and_questions_must_match() -> None:
    """A mistake of the caller, not a smaller plan."""
    with pytest.raises(ValueError):
        plan([row((1, 2))], [])


# Trees


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=9),
    st.integers(1, 8),
)
def test_a_tree_reads_every_row_once(texts: list[list[int]], least: int) -> None:
    """Each row is below exactly one state, which it begins with and is longer than, and each state saves enough."""
    rows = [np.array(text, np.int32) for text in texts]
    lengths = [len(text) + 3 for text in texts]  # of the whole rows, whose ends nobody may share
    found: list[int] = []

    def walk(node: Node, before: int) -> list[int]:
        below = [*node.rows, *(row for child in node.children for row in walk(child, node.prefix))]
        assert len({tuple(texts[row][: node.prefix]) for row in below}) == 1
        assert all(len(texts[row]) > node.prefix for row in below)
        assert node.prefix == before or (len(below) - 1) * (node.prefix - before) >= least
        assert list(node.rows) == sorted(node.rows, key=lambda row: lengths[row])
        return below

    root = tree(rows, lengths, least)
    found = walk(root, 0)
    assert sorted(found) == list(range(len(texts)))
    assert max(lengths) <= root.tokens(lengths) <= sum(lengths)


def test_a_tree_has_states_behind_states() -> None:
    """What all share, then what those of a kind share besides; a kind of one row goes on from what all share."""
    rows = [row((1, 50), (2, 40), (3, 5)), row((1, 50), (2, 40), (4, 1)), row((1, 50), (5, 9))]
    lengths = [95, 91, 59]
    assert tree(rows, lengths, 32) == Node(50, (2,), (Node(90, (1, 0), ()),))
    assert tree(rows, lengths, 32).tokens(lengths) == 50 + 9 + 40 + 1 + 5
    assert tree(rows, lengths, 64) == Node(50, (2, 1, 0), ())
    assert tree(rows, lengths, 101) == Node(0, (2, 1, 0), ())


def test_a_tree_of_rows_that_grow_is_not_deep() -> None:
    """1,000 rows, each a little longer than the one before: the work is bounded, and no stack is used up."""
    rows = [np.full(2 + size, 7, np.int32) for size in range(1000)]
    lengths = [len(one) for one in rows]
    deep, node = 0, tree(rows, lengths, 1)
    while node.children:
        deep, node = deep + 1, node.children[-1]
    assert deep <= TREE_LEVELS
