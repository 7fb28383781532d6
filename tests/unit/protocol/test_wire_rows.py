"""The payloads of families whose front tokenizes: what they promise is checked where they arrive."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import Malformed
from protocol.frames import decode, encode
from protocol.messages import Execute, Lane
from protocol.payloads import MarkedRowsRequest, RowsRequest

np = pytest.importorskip("numpy")


def fields(**changed: Any) -> dict[str, Any]:
    """Three rows of two questions, with these fields instead."""
    lines = {"tokens": [5, 6, 7, 8, 9, 0], "lengths": [3, 1, 2], "candidates": [255, 2, 2], "questions": [0, 1, 1]}
    made: dict[str, Any] = {name: np.array(line, np.int32) for name, line in lines.items()} | {"shared": 0}
    return {**made, **{name: np.array(v, np.int32) if isinstance(v, list) else v for name, v in changed.items()}}


@pytest.mark.parametrize("repeats", [1, 2000])
def test_rows_travel(repeats: int) -> None:
    """Small arrays inside the body, large ones as frames of their own, and the same rows either way."""
    sent = RowsRequest.from_wire(
        fields(
            tokens=np.tile(np.array([5, 6], np.int32), repeats),
            lengths=[2] * repeats,
            candidates=[2] * repeats,
            questions=list(range(repeats)),
        )
    )
    frames = encode(Execute(payload=sent.to_wire()), incarnation="1-a", call=1)
    assert (len(frames) > 3) is (repeats > 1)
    envelope = decode(frames, lane=Lane.DATA, incarnation="1-a")
    assert isinstance(envelope.message, Execute)
    back = RowsRequest.from_wire(envelope.message.payload)
    assert back.rows == repeats
    for name in ("tokens", "lengths", "candidates", "questions"):
        assert np.array_equal(getattr(back, name), getattr(sent, name))


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": [5, 6, 7, 8, 9]},
        {"tokens": [5, 6, 7, 8, 9, -1]},
        {"tokens": []},
        {"tokens": np.zeros(6, np.int64)},
        {"tokens": np.zeros((6, 1), np.int32)},
        {"tokens": b"123456"},
        {"lengths": [3, 0, 3]},
        {"lengths": [4, -1, 3]},
        {"lengths": [3, 3]},
        {"lengths": [2**31 - 1, 2**31 - 1, 8]},
        {"candidates": [0, 2, 2]},
        {"candidates": [2, 2]},
        {"questions": [1, 1, 1]},
        {"questions": [0, 2, 2]},
        {"questions": [0, 1, 0]},
        {"questions": [0, 1]},
        {"lengths": [], "candidates": [], "questions": [], "tokens": []},
        {"more": [1]},
    ],
)
def test_what_breaks_a_promise_is_malformed(changed: dict[str, Any]) -> None:
    """Types, shapes, counts that do not sum up, tokens below zero, questions that are not together."""
    with pytest.raises(Malformed):
        RowsRequest.from_wire(fields(**changed))


@pytest.mark.parametrize("missing", ["tokens", "lengths", "candidates", "questions"])
def test_a_missing_field_is_malformed(missing: str) -> None:
    """Each of the four is needed."""
    with pytest.raises(Malformed):
        RowsRequest.from_wire({name: value for name, value in fields().items() if name != missing})


def marked(**changed: Any) -> dict[str, Any]:
    """Two questions of 5 and 3 tokens and a row of padding, with these fields instead."""
    lines: dict[str, Any] = {
        "tokens": [[1, 9, 8, 7, 2], [1, 9, 2, 0, 0], [0, 0, 0, 0, 0]],
        "lengths": [5, 3, 0],
        "kinds": [0, 2, 0],
        "markers": [1, 3, 2],
        "counts": [2, 1, 0],
    }
    made = {name: np.array(line, np.int32) for name, line in lines.items()}
    return {**made, **{name: np.array(v, np.int32) if isinstance(v, list) else v for name, v in changed.items()}}


def test_marked_rows_travel() -> None:
    """The same rows on the other side, those of padding among them."""
    sent = MarkedRowsRequest.from_wire(marked())
    frames = encode(Execute(payload=sent.to_wire()), incarnation="1-a", call=1)
    envelope = decode(frames, lane=Lane.DATA, incarnation="1-a")
    assert isinstance(envelope.message, Execute)
    back = MarkedRowsRequest.from_wire(envelope.message.payload)
    assert back.rows == 2
    for name, value in marked().items():
        assert np.array_equal(getattr(back, name), value)


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": [1, 2, 3]},
        {"tokens": [[1, 9, 8, 7, 2], [1, 9, 2, 0, 0]]},
        {"tokens": [[1, 9, 8, 7, 2], [1, 9, 2, 0, 0], [0, 0, 0, 0, -1]]},
        {"tokens": np.zeros((3, 5), np.int64)},
        {"tokens": np.zeros((3, 0), np.int32), "lengths": [0, 0, 0], "counts": [0, 0, 0], "markers": []},
        {"tokens": b"12"},
        {"lengths": [6, 3, 0]},
        {"lengths": [5, -1, 0]},
        {"lengths": [5, 0, 3], "counts": [2, 0, 1]},
        {"lengths": [0, 3, 0], "counts": [0, 3, 0], "markers": [1, 1, 2]},
        {"lengths": [5, 3]},
        {"kinds": [0, -1, 0]},
        {"kinds": [0, 2]},
        {"counts": [2, 0, 1]},
        {"counts": [3, 0, 0]},
        {"counts": [2, 2, 0]},
        {"counts": [4, -1, 0]},
        {"counts": [[2, 1, 0]]},
        {"markers": [1, 5, 2]},
        {"markers": [1, 3, 3]},
        {"markers": [-1, 3, 2]},
        {"markers": [1, 3]},
        {"more": [1]},
    ],
)
def test_marked_rows_that_break_a_promise_are_malformed(changed: dict[str, Any]) -> None:
    """Types, shapes, counts that do not sum up, padding that is not last, marks outside their row."""
    with pytest.raises(Malformed):
        MarkedRowsRequest.from_wire(marked(**changed))


@pytest.mark.parametrize("missing", ["tokens", "lengths", "kinds", "markers", "counts"])
def test_a_missing_field_of_marked_rows_is_malformed(missing: str) -> None:
    """Each of the five is needed."""
    with pytest.raises(Malformed):
        MarkedRowsRequest.from_wire({name: value for name, value in marked().items() if name != missing})
