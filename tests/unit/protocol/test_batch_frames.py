"""Several messages as one frame list: each is its own affair, and only the envelope is everybody's."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest

from protocol import batches, limits
from protocol.errors import (
    LimitExceeded,
    Malformed,
    ProtocolError,
    StaleIncarnation,
    UnknownKind,
    VersionMismatch,
)
from protocol.frames import Envelope, decode, encode
from protocol.messages import Execute, Failure, Kind, Lane, Message, Result
from protocol.tensors import Blob, Buffer
from tests.unit.protocol.samples import INCARNATION, header

UNITS: list[Message] = [
    Execute(payload={"document": b"{}"}, request="a", sent_ms=5),
    Execute(payload={"document": Blob(b"d" * limits.OUT_OF_BAND_BYTES), "n": 1}, request="b"),
    Execute(payload={"x": [1, [2.5, None]]}, request="c"),
]


def joined(messages: list[Message], *, call: int = 6) -> list[Buffer]:
    """A batch of `messages`, whose calls are 7 and the following, with budgets of as many ms."""
    parts = [batches.pack(message, call=7 + at, budget_ms=7 + at) for at, message in enumerate(messages)]
    return batches.join(parts, incarnation=INCARNATION, call=call)


def read(frames: list[Any]) -> batches.Batch:
    return batches.read(frames, incarnation=INCARNATION)


def refusal(frames: list[Any]) -> ProtocolError:
    """What is wrong with all of a batch."""
    with pytest.raises(ProtocolError) as caught:
        read(frames)
    return caught.value


def test_a_batch_arrives_as_it_was_sent() -> None:
    """Every unit with its call, its budget, its fields and its buffers, in order."""
    batch = read(joined(UNITS))
    assert batch.call == 6
    sent = Execute(payload={"document": b"d" * limits.OUT_OF_BAND_BYTES, "n": 1}, request="b")
    assert batch.parts == [
        Envelope(INCARNATION, 7, 7, UNITS[0]),
        Envelope(INCARNATION, 8, 8, sent),
        Envelope(INCARNATION, 9, 9, UNITS[2]),
    ]


def test_answers_of_both_kinds_share_a_frame_list() -> None:
    """A failure beside results, arrays out of band."""
    outputs = np.arange(5000, dtype="<f4")
    answers: list[Message] = [
        Result(outputs={"logits": outputs}, elapsed_us=3),
        Failure(code="non_finite", status=500, message="no"),
        Result(outputs={"logits": outputs[:2]}, elapsed_us=4),
    ]
    first, second, third = read(joined(answers)).parts
    assert isinstance(first, Envelope)
    assert isinstance(third, Envelope)
    np.testing.assert_array_equal(first.message.outputs["logits"], outputs)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(third.message.outputs["logits"], outputs[:2])  # type: ignore[attr-defined]
    assert second == Envelope(INCARNATION, 8, 8, answers[1])


@pytest.mark.parametrize("message", UNITS, ids=["inline", "buffer", "lists"])
def test_one_unit_alone_is_the_message_that_it_would_be_without_batches(message: Message) -> None:
    """Byte for byte, so that a batch of one costs nothing and means nothing else."""
    part = batches.pack(message, call=7, budget_ms=30)
    assert batches.alone(part, incarnation=INCARNATION) == encode(
        message, incarnation=INCARNATION, call=7, budget_ms=30
    )


def test_a_unit_that_does_not_fit_is_refused_before_it_is_in_a_batch() -> None:
    """With its own call; whoever puts the batch together leaves it out."""
    with pytest.raises(ProtocolError) as caught:
        batches.pack(Execute(payload={"x": {1, 2}}), call=8)
    assert caught.value.call == 8


def envelope(*parts: Any) -> bytes:
    return bytes(msgpack.packb(list(parts)))


BODY = msgpack.packb({"payload": {}, "keep": None, "request": "", "sent_ms": 0})
GOOD = [Kind.EXECUTE, 7, None, 0], [Kind.EXECUTE, 8, None, 0]
HEADER = header(call=6)

PARTS: dict[str, tuple[list[Any], bytes, type[ProtocolError]]] = {
    "no msgpack": ([Kind.EXECUTE, 7, None, 0], b"\xc1", Malformed),
    "a field too few": ([Kind.EXECUTE, 7, None, 0], msgpack.packb({"payload": {}}), Malformed),
    "bytes behind it": ([Kind.EXECUTE, 7, None, 0], BODY + b"\xc0", Malformed),
    "empty": ([Kind.EXECUTE, 7, None, 0], b"", Malformed),
    "another kind": ([Kind.CANCEL, 7, None, 0], msgpack.packb({"epoch": "e"}), UnknownKind),
    "a batch in a batch": ([Kind.BATCH, 7, None, 0], envelope(*GOOD), UnknownKind),
    "no kind": ([99, 7, None, 0], BODY, UnknownKind),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_malformed_unit_fails_alone(kind: str) -> None:
    """Its error has its call and stands in its place; its neighbour is read."""
    part, body, error = PARTS[kind]
    broken, whole = read([batches.KIND_BYTE, HEADER, envelope(part, GOOD[1]), body, BODY]).parts
    assert (type(broken), broken.call) == (error, 7)
    assert whole == Envelope(INCARNATION, 8, None, Execute(payload={}))


def test_a_buffer_belongs_to_one_unit() -> None:
    """One that nothing in its own unit refers to, and a reference to a neighbour's, are that unit's failures."""
    blob = Execute(payload={"x": Blob(b"y" * limits.OUT_OF_BAND_BYTES)})
    body = batches.pack(blob, call=7).body
    heads = [Kind.EXECUTE, 7, None, 0], [Kind.EXECUTE, 8, None, 1], [Kind.EXECUTE, 9, None, 1]
    frames = [batches.KIND_BYTE, HEADER, envelope(*heads), body, BODY, b"y", body, b"y" * 4096]
    first, second, third = read(frames).parts
    assert (type(first), type(second)) == (Malformed, Malformed)
    assert isinstance(third, Envelope)


ENVELOPES: dict[str, Any] = {
    "nothing": [],
    "no array": {"a": 1},
    "a part is no array": [7, 8],
    "three elements": [[5, 7, None], [5, 8, None]],
    "a call twice": [[5, 7, None, 0], [5, 7, None, 0]],
    "calls that fall": [[5, 8, None, 0], [5, 7, None, 0]],
    "the batch's own call": [[5, 6, None, 0], [5, 7, None, 0]],
    "a call that is too high": [[5, 7, None, 0], [5, 2**63, None, 0]],
    "a call that is a boolean": [[5, True, None, 0], [5, 8, None, 0]],
    "a negative budget": [[5, 7, -1, 0], [5, 8, None, 0]],
    "a budget above a day": [[5, 7, limits.MAX_BUDGET_MS + 1, 0], [5, 8, None, 0]],
    "a kind that is text": [["5", 7, None, 0], [5, 8, None, 0]],
    "fewer frames than there are": [[5, 7, None, 0]],
    "more frames than there are": [[5, 7, None, 0], [5, 8, None, 1]],
    "a negative number of buffers": [[5, 7, None, -1], [5, 8, None, 1]],
    "too many buffers": [[5, 7, None, limits.MAX_BUFFERS + 1], [5, 8, None, 0]],
    "deep": [[[[[]]]]],
}


@pytest.mark.parametrize("kind", ENVELOPES)
def test_a_malformed_envelope_fails_all(kind: str) -> None:
    """One error, with the call of the batch: nobody can say which frame is whose."""
    error = refusal([batches.KIND_BYTE, HEADER, msgpack.packb(ENVELOPES[kind]), BODY, BODY])
    assert (type(error), error.call) == (Malformed, 6)


def test_the_rest_of_the_head_is_judged_as_in_any_message() -> None:
    """Version and incarnation, a head that is none, and frames that are too few or too many."""
    rest: list[Any] = [envelope(*GOOD), BODY, BODY]
    assert type(refusal([batches.KIND_BYTE, header(call=6, version=9), *rest])) is VersionMismatch
    assert type(refusal([batches.KIND_BYTE, header(call=6, incarnation="0-old"), *rest])) is StaleIncarnation
    assert type(refusal([batches.KIND_BYTE, b"", *rest])) is Malformed
    assert type(refusal([batches.KIND_BYTE, HEADER])) is Malformed
    assert type(refusal([batches.KIND_BYTE, HEADER, b"\xc1", BODY])) is Malformed
    assert type(refusal([batches.KIND_BYTE, HEADER, envelope(*GOOD), *[BODY] * limits.MAX_BATCH_FRAMES])) is Malformed


def test_a_batch_is_no_message() -> None:
    """Where one message is expected, on any lane, several are refused."""
    for lane in Lane:
        with pytest.raises(UnknownKind):
            decode(joined(UNITS), lane=lane)


def test_what_is_too_much_together_is_told_before_it_is_sent() -> None:
    """Too many parts, and too many frames; each part alone would travel."""
    small = [batches.pack(Execute(payload={}), call=7 + at) for at in range(limits.MAX_BATCH_PARTS + 1)]
    with pytest.raises(LimitExceeded, match="256"):
        batches.join(small, incarnation=INCARNATION, call=6)
    assert len(read(batches.join(small[:-1], incarnation=INCARNATION, call=6)).parts) == limits.MAX_BATCH_PARTS
    arrays = {str(at): Blob(b"x" * limits.OUT_OF_BAND_BYTES) for at in range(limits.MAX_BUFFERS)}
    many = [batches.pack(Execute(payload=arrays), call=7 + at) for at in range(4)]
    with pytest.raises(LimitExceeded, match="1027"):
        batches.join(many, incarnation=INCARNATION, call=6)
