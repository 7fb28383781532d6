"""Rows, marks and limits, with one token per character so that lengths can be counted by hand."""

from __future__ import annotations

import pytest

from frontend.families.kev import rows
from frontend.families.refusal import Refused
from protocol.payloads import MarkedRowsRequest
from tests.unit.kev.helpers import compiled, spelled

YES = {"type": "noul", "instructions": "ok"}


def test_the_whole_row() -> None:
    """State, instructions, options and the end, each between its delimiters."""
    made = compiled("st")
    assert spelled(made) == [
        "1st2Which team?3billing: a charge43login45",
        "1st2Is the money asked back?3no43yes45",
        "1st2ask: How large?3none43n: 143much45",
    ]
    MarkedRowsRequest.from_wire(made.payload.to_wire())


def test_where_a_row_is_read() -> None:
    """At the end of every option; its last token is the end of the row."""
    payload = compiled("st", {"q": YES}).payload
    row = payload.tokens[0].tolist()
    assert [row[mark] for mark in payload.markers] == [4, 4]
    assert row[payload.lengths[0] - 1] == 5
    assert payload.counts.tolist() == [2]


def test_the_state_counts_once() -> None:
    """In the cost and in what usage reports."""
    one = compiled("state" * 9, {"q": YES})
    two = compiled("state" * 9, {"q": YES, "r": YES})
    assert one.tokens == one.payload.lengths[0]
    assert two.tokens == one.tokens + (one.tokens - 46)


def test_a_delimiter_in_a_text_is_spelled_out() -> None:
    """It makes no mark: the row has the delimiters of its own."""
    made = compiled("<|box_end|>", {"q": {"type": "noul", "instructions": "<|fim_suffix|>"}})
    assert spelled(made) == ["1<¦box_end¦>2<¦fim_suffix¦>3no43yes45"]


def test_questions_do_not_see_each_other() -> None:
    """A row is the same whatever stands beside it, ids included."""
    together = spelled(compiled("s", {"a": YES, "b": {"type": "choice", "instructions": "i", "criteria": {"x": 1}}}))
    assert together == [
        *spelled(compiled("s", {"other": YES})),
        *spelled(compiled("s", {"b": {"type": "choice", "instructions": "i", "criteria": {"x": 1}}})),
    ]


@pytest.mark.parametrize(("length", "fits"), [(16, True), (15, False)])
def test_a_row_has_a_longest(length: int, fits: bool) -> None:
    """1 s 2 ok 3 no 4 3 yes 4 5: sixteen with a state of two."""
    if fits:
        assert compiled("st", {"q": YES}, max_length=length).payload.lengths[0] == length
        return
    with pytest.raises(Refused, match="question 'q' has 13 tokens, and the state 3; together at most 15") as caught:
        compiled("st", {"q": YES}, max_length=length)
    assert (caught.value.reason, caught.value.place) == ("tokens", ("questions", "q"))


def test_a_state_that_is_too_long_by_itself() -> None:
    """Its place is the state."""
    with pytest.raises(Refused, match="the state has 21 tokens; at most 20") as caught:
        compiled("x" * 20, {"q": YES}, max_length=20)
    assert (caught.value.reason, caught.value.place) == ("tokens", ("state",))


def test_a_request_has_most_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """And most options, and most tokens."""
    monkeypatch.setattr(rows, "MAX_QUESTIONS", 2)
    with pytest.raises(Refused, match="there are 3 questions; 1 to 2 are taken"):
        compiled("s", dict.fromkeys("abc", YES))
    monkeypatch.setattr(rows, "MAX_MARKERS", 3)
    with pytest.raises(Refused, match="the questions have 4 options; at most 3"):
        compiled("s", dict.fromkeys("ab", YES))
    monkeypatch.setattr(rows, "MAX_MARKERS", 4)
    monkeypatch.setattr(rows, "MAX_TOKENS", 29)
    with pytest.raises(Refused, match="more than 29 tokens") as caught:
        compiled("s", dict.fromkeys("ab", YES))
    assert caught.value.reason == "size"
    monkeypatch.setattr(rows, "MAX_TOKENS", 30)
    assert compiled("s", dict.fromkeys("ab", YES)).payload.tokens.shape == (2, 15)
