"""Which tokens the rows of one request share, and whether reading them once is worth it. Pure planning.

    row 0   [ shared by all rows | shared by question 0 | its own end ]
    row 1   [                    |                      | its own end ]
    row 2   [                    | its own end ]
            0                    p                      q

The tokens up to p are read once for the request, those from p to q once for a question whose rows share more
(the levels of a score). What was read is kept as the model's state at that point, and every row goes on from
a copy of it. Both points are multiples of 64, the chunk of the linear-attention layers: a state taken there
is one that a pass over the whole row has, too. What the rows share beyond it is read again in each.

Source: the family's published runtime, decider-ai 1.8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BOUNDARY: Final = 64
"""A state is taken at a multiple of this many tokens."""

AUTO_SAVED: Final = 4096
"""`auto` shares when at least this many tokens are saved ..."""

AUTO_SHARE: Final = 3
"""... and at least one in this many, rounded up, of all tokens. Both published."""


TREE_LEVELS: Final = 4
"""How often `tree` looks for a longer state behind a state: request, kind of question, and some to spare. It bounds
the work on rows that are made to share a little more with each next one."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Neighbouring rows that go on from the same state."""

    rows: range
    prefix: int
    """Tokens in that state, a multiple of `BOUNDARY`, less than the shortest of the rows. 0: there is none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read the rows of one request. Every row is in exactly one branch, in order."""

    root: int
    """Tokens read once for all rows; 0: they share too little."""
    branches: tuple[Branch, ...]
    saved: int
    """Tokens that are not read again."""
    total: int
    """Tokens of all rows."""

    @property
    def processed(self) -> int:
        """Tokens the model reads with this plan."""
        return self.total - self.saved

    @property
    def worthwhile(self) -> bool:
        """Whether the published thresholds of `auto` are reached."""
        return self.saved >= AUTO_SAVED and self.saved >= -(-self.total // AUTO_SHARE)


def plan(rows: Sequence[NDArray[Any]], questions: Sequence[int]) -> Plan | None:
    """The plan for these rows, None when it would save nothing: fewer than two rows, or too little in common.

    `rows`: token ids of each row, one dimension, 1 or more. `questions`: of each row, equal for neighbours that
    belong to the same question. Raises `ValueError` when the two do not match.
    """
    if len(rows) != len(questions):
        raise ValueError("every row belongs to one question")
    if len(rows) < 2:
        return None
    request = common(rows)
    root = _down(request)
    branches: list[Branch] = []
    saved = (len(rows) - 1) * root
    start = 0
    for row in range(1, len(rows) + 1):
        if row < len(rows) and questions[row] == questions[start]:
            continue
        size = row - start
        prefix = max(root, _down(common(rows[start:row]))) if size > 1 else root
        saved += (size - 1) * (prefix - root)
        if branches and branches[-1].prefix == prefix == root:
            branches[-1] = Branch(range(branches[-1].rows.start, row), root)
        else:
            branches.append(Branch(range(start, row), prefix))
        start = row
    if not saved:
        return None
    return Plan(root, tuple(branches), saved, sum(map(len, rows)))


def common(rows: Sequence[NDArray[Any]]) -> int:
    """Tokens with which all the rows begin, at most one less than the shortest has: each keeps an end to be read at."""
    length = min(map(len, rows)) - 1
    first = rows[0]
    for row in rows[1:]:
        differs = np.flatnonzero(first[:length] != row[:length])
        if len(differs):
            length = int(differs[0])
    return length


def _down(tokens: int) -> int:
    return tokens - tokens % BOUNDARY


@dataclass(frozen=True, slots=True)
class Node:
    """A state of the model, and what goes on from it: single rows, and longer states that several rows share."""

    prefix: int
    """Tokens of the rows below that are in the state, all the same; 0: there is no state."""
    rows: tuple[int, ...]
    """Indexes of the rows that are read from this state to their ends, the shortest first."""
    children: tuple[Node, ...]

    def tokens(self, lengths: Sequence[int], before: int = 0) -> int:
        """Tokens the model reads for all of it. `lengths`: of each row; `before`: of the state that it goes on from."""
        ends = sum(lengths[row] - self.prefix for row in self.rows)
        return self.prefix - before + ends + sum(child.tokens(lengths, self.prefix) for child in self.children)


def tree(rows: Sequence[NDArray[Any]], lengths: Sequence[int], least: int) -> Node:
    """What to read once, for rows that share more with some of the others than with all of them.

    `rows`: of each row the tokens that may be shared and one more, at least one: a row is read from its state on, so
    what is wanted of it lies behind the state. `lengths`: tokens of each whole row. A state is made where it saves at
    least `least` tokens. Unlike those of `plan`, states are of any length: for models that do not read in chunks.
    """
    return _node(rows, lengths, list(range(len(rows))), 0, least, TREE_LEVELS)


def _node(
    rows: Sequence[NDArray[Any]], lengths: Sequence[int], members: list[int], before: int, least: int, levels: int
) -> Node:
    """The tree of `members`, at least one, that go on from a state of `before` tokens."""
    shared = common([rows[row] for row in members])
    prefix = shared if (len(members) - 1) * (shared - before) >= least else before
    alone: list[int] = []
    groups: dict[int, list[int]] = {}
    for row in members:
        if levels and len(rows[row]) > shared + 1:
            groups.setdefault(int(rows[row][shared]), []).append(row)
        else:
            alone.append(row)
    children: list[Node] = []
    for group in groups.values():
        child = _node(rows, lengths, group, prefix, least, levels - 1)
        if child.prefix > prefix:
            children.append(child)
        else:  # no state of its own: what would go on from it goes on from here
            alone += child.rows
            children += child.children
    return Node(prefix, tuple(sorted(alone, key=lambda row: lengths[row])), tuple(children))
