"""The wire keeps its two general promises: what is sent arrives equal, and nothing else can do harm.

Every property runs a fixed sequence of examples, so a red run is red again.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import batches, limits
from protocol.errors import FAILURES, ProtocolError
from protocol.frames import Envelope, decode, encode
from protocol.messages import (
    BY_KIND,
    REFUSALS,
    Assigned,
    CancelAnswer,
    Deployment,
    DialIn,
    Evict,
    Execute,
    Failure,
    HostDown,
    Lane,
    Leaving,
    Message,
    Order,
    Outcome,
    Owed,
    Progress,
    Refused,
    Result,
    Want,
)
from protocol.tensors import DTYPES, Buffer
from tests.unit.protocol.samples import INCARNATION, MESSAGES, header, lane_of, there_and_back

bounded = settings(
    derandomize=True, max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)

LANES = st.sampled_from(Lane)
INTEGERS = st.integers(limits.INT_MIN, limits.INT_MAX)
LEAVES = (
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text(max_size=20) | st.binary(max_size=20)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
MAPS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)
CALLS = st.integers(0, limits.MAX_CALL_ID)
BUDGETS = st.none() | st.integers(0, limits.MAX_BUDGET_MS)

NAMES = st.text(min_size=1, max_size=40)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "text": NAMES,
    "integer": st.integers(0, limits.MAX_CALL_ID),
    "boolean": st.booleans(),
    "number": st.floats(-1e17, 1e17) | st.integers(-(10**17), 10**17),
    "integer or nil": st.none() | st.integers(-(2**31), 2**31 - 1),
    "map": MAPS,
    "map or nil": st.none() | MAPS,
}
BY_FIELD: dict[tuple[type[Message], str], st.SearchStrategy[Any]] = {
    (Failure, "code"): st.sampled_from(sorted(FAILURES)),
    (Failure, "status"): st.integers(400, 599),
    (Failure, "where"): st.lists(NAMES | INTEGERS, max_size=5),
    (Deployment, "models"): st.lists(MAPS, max_size=4),
    (CancelAnswer, "outcome"): st.sampled_from(["running", "not_running"]),
    (Order, "action"): st.sampled_from(["swap", "load", "unload", "budget"]),
    (Outcome, "code"): st.sampled_from(["done", "unknown", "invalid", "conflict", "failed"]),
    (DialIn, "public_key"): st.text("".join(map(chr, range(33, 127))), min_size=40, max_size=40),
    (Assigned, "path"): st.none() | NAMES,
    (Refused, "code"): st.sampled_from(REFUSALS),
    (Leaving, "status"): st.integers(0, 255),
    (HostDown, "taken"): st.none() | st.dictionaries(NAMES, CALLS, max_size=3),
    (Evict, "conversations"): st.lists(NAMES, max_size=5),
    (Owed, "calls"): st.lists(CALLS, max_size=5),
    (Want, "wanted"): st.lists(NAMES, max_size=5),
    (Want, "idle"): st.dictionaries(NAMES, st.floats(0, 1e6), max_size=5),
    (Progress, "fraction"): st.none() | st.floats(0, 1) | st.sampled_from([0, 1]),
}


def messages_of(cls: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of one type with generated values in every field."""
    return st.builds(
        cls,
        **{
            name: BY_FIELD[cls, name] if (cls, name) in BY_FIELD else BY_TYPE[of.type]
            for name, of in cls.FIELDS.items()
        },
    )


def judged(frames: list[Buffer], lane: Lane, incarnation: str | None = None) -> Envelope | ProtocolError:
    """What decoding gives; a failure of any other kind than ours fails the test, and so does the bare base class."""
    outcome: Envelope | ProtocolError
    try:
        outcome = decode(frames, lane=lane, incarnation=incarnation)
    except ProtocolError as error:
        outcome = error
    if isinstance(outcome, ProtocolError):
        assert type(outcome) is not ProtocolError
        assert 0 <= outcome.call <= limits.MAX_CALL_ID
        assert len(str(outcome)) < 400
    else:
        assert isinstance(outcome.message, Message)
    return outcome


@pytest.mark.parametrize("cls", BY_KIND.values(), ids=lambda cls: cls.__name__)
def test_a_message_of_every_type_arrives_equal_to_what_was_sent(cls: type[Message]) -> None:
    """Header and fields come out as they went in, for generated values of every field."""

    @settings(bounded, max_examples=60)
    @given(message=messages_of(cls), call=CALLS, budget=BUDGETS)
    def round_trip(message: Message, call: int, budget: int | None) -> None:
        envelope = there_and_back(message, call=call, budget_ms=budget)
        assert envelope == Envelope(INCARNATION, call, budget, message)
        assert type(envelope.message) is cls

    round_trip()


@bounded
@given(frames=st.lists(st.binary(max_size=40), max_size=6), lane=LANES, views=st.booleans())
def test_any_byte_strings_are_a_message_or_one_protocol_error(frames: list[Buffer], lane: Lane, views: bool) -> None:
    """Arbitrary frames, as bytes or as views, never raise anything of a library's."""
    judged([memoryview(frame) for frame in frames] if views else frames, lane)


@bounded
@given(kind=st.sampled_from(sorted(BY_KIND)), body=st.binary(max_size=60), lane=LANES)
def test_any_body_under_a_good_head_is_a_message_or_one_protocol_error(kind: int, body: bytes, lane: Lane) -> None:
    """With kind and header right, arbitrary bodies reach the unpacker, which must not leak its errors."""
    judged([bytes((kind,)), header(), body], lane)


@bounded
@given(raw=st.binary(max_size=80))
def test_any_header_is_read_or_refused(raw: bytes) -> None:
    """Arbitrary headers never raise anything of a library's."""
    judged([b"\x05", raw, b"\x80"], Lane.DATA)


HOSTILE_LEAVES = LEAVES | st.builds(
    msgpack.ExtType,
    st.integers(0, 6),
    st.binary(max_size=12)
    | st.builds(
        lambda *parts: msgpack.packb(parts),
        INTEGERS | st.text(max_size=4),
        st.sampled_from(sorted(DTYPES)),
        st.lists(st.integers(0, 3), max_size=3),
    )
    | st.builds(
        lambda dtype, shape, data: msgpack.packb([dtype, shape, data]),
        st.sampled_from(sorted(DTYPES)),
        st.lists(st.integers(0, 3), max_size=3),
        st.binary(max_size=24),
    ),
)
HOSTILE_VALUES = st.recursive(
    HOSTILE_LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.binary(max_size=4) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("cls", BY_KIND.values(), ids=lambda cls: cls.__name__)
def test_any_value_in_any_field_is_accepted_or_one_protocol_error(cls: type[Message]) -> None:
    """Well-formed msgpack of the wrong types, with arrays in unexpected places, is judged and never crashes a check."""

    @settings(bounded, max_examples=60)
    @given(
        body=st.fixed_dictionaries(dict.fromkeys(cls.FIELDS, HOSTILE_VALUES)),
        buffers=st.lists(st.binary(max_size=9), max_size=2),
    )
    def judge(body: dict[str, Any], buffers: list[Buffer]) -> None:
        judged([cls.KIND_BYTE, header(), msgpack.packb(body), *buffers], lane_of(cls))

    judge()


@bounded
@given(message=st.sampled_from(MESSAGES), data=st.data(), lane=LANES)
def test_a_damaged_message_is_a_message_or_one_protocol_error(
    message: Message, data: st.DataObject, lane: Lane
) -> None:
    """Flipped bits, swapped, dropped and doubled frames, of every type of message, are judged like any bytes."""
    frames = [bytearray(frame) for frame in encode(message, incarnation=INCARNATION, call=7)]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frames) - 1))
        other = data.draw(st.integers(0, len(frames) - 1))
        match data.draw(st.sampled_from(["flip", "swap", "drop", "double", "empty"])):
            case "flip" if frames[at]:
                frames[at][data.draw(st.integers(0, len(frames[at]) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            case "swap":
                frames[at], frames[other] = frames[other], frames[at]
            case "drop" if len(frames) > 1:
                del frames[at]
            case "double":
                frames.insert(other, bytearray(frames[at]))
            case "empty":
                frames[at].clear()
    judged([bytes(frame) for frame in frames], lane, INCARNATION)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_single_bit_of_every_message_may_flip(message: Message) -> None:
    """Each bit of kind, header and the first kilobyte of the body, one at a time, gives a message or one error."""
    frames = encode(message, incarnation=INCARNATION, call=7)
    for index, frame in enumerate(frames[:3]):
        for bit in range(8 * min(len(frame), 1024)):
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            judged([*frames[:index], bytes(damaged), *frames[index + 1 :]], lane_of(message), INCARNATION)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_cut_and_every_trailing_byte_of_every_message_is_refused(message: Message) -> None:
    """A frame that lost its end, or gained one byte, is never taken for a message."""
    frames = encode(message, incarnation=INCARNATION, call=7)
    for index, frame in enumerate(frames):
        if index > 2:  # a blob says nothing of its own length; an array does, in the tests of arrays
            continue
        for cut in [*(frame[:length] for length in range(len(frame))), bytes(frame) + b"\xc0"]:
            damaged = [*frames[:index], cut, *frames[index + 1 :]]
            assert isinstance(judged(damaged, lane_of(message)), ProtocolError), (index, cut)
    for count in range(len(frames)):
        assert isinstance(judged(frames[:count], lane_of(message)), ProtocolError), count


@bounded
@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    shape=st.lists(st.integers(0, 5), max_size=4),
    order=st.sampled_from(["C", "F"]),
    swapped=st.booleans(),
    threshold=st.sampled_from([1, 64, 1 << 20]),
    data=st.data(),
)
def test_any_array_arrives_equal_whatever_its_layout(
    dtype: str, shape: list[int], order: Any, swapped: bool, threshold: int, data: st.DataObject
) -> None:
    """Any shape, order and byte order, inline or out of band, comes out with the same values, little-endian."""
    raw = data.draw(
        st.binary(min_size=int(np.prod(shape)) * DTYPES[dtype], max_size=int(np.prod(shape)) * DTYPES[dtype])
    )
    if dtype == "|b1":
        raw = bytes(byte & 1 for byte in raw)
    array = np.frombuffer(raw, dtype).reshape(shape)
    sent = np.asarray(array.astype(array.dtype.newbyteorder(">")) if swapped else array, order=order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "OUT_OF_BAND_BYTES", threshold)
        received = there_and_back(Execute(payload={"a": sent})).message.payload["a"]  # type: ignore[attr-defined]
    assert (received.dtype.str, received.shape) == (dtype, array.shape)
    assert received.tobytes() == array.tobytes()
    assert not received.flags.writeable


def judged_batch(frames: list[Buffer]) -> batches.Batch | ProtocolError:
    """What reading a batch gives: parts that are messages or protocol errors, or one protocol error for all."""
    try:
        batch = batches.read(frames, incarnation=INCARNATION)
    except ProtocolError as error:
        return error
    calls = [part.call for part in batch.parts]
    assert calls == sorted(set(calls))
    assert batch.call < calls[0]
    return batch


ANSWERS = st.one_of(messages_of(Execute), messages_of(Result), messages_of(Failure))


@bounded
@given(parts=st.lists(st.tuples(ANSWERS, BUDGETS), min_size=1, max_size=6), call=st.integers(0, 2**60))
def test_a_batch_of_any_messages_arrives_equal_to_what_was_sent(
    parts: list[tuple[Message, int | None]], call: int
) -> None:
    """Each with its own call and budget, whatever its neighbours are."""
    packed = [batches.pack(message, call=call + 1 + at, budget_ms=ms) for at, (message, ms) in enumerate(parts)]
    batch = judged_batch(batches.join(packed, incarnation=INCARNATION, call=call))
    assert batch == batches.Batch(
        call, [Envelope(INCARNATION, call + 1 + at, ms, message) for at, (message, ms) in enumerate(parts)]
    )


@bounded
@given(frames=st.lists(st.binary(max_size=40), max_size=6), head=st.booleans())
def test_any_byte_strings_are_a_batch_or_one_protocol_error(frames: list[Buffer], head: bool) -> None:
    """Arbitrary envelopes and parts, under a good head and under none, never raise anything of a library's."""
    judged_batch([batches.KIND_BYTE, *([header()] if head else []), *frames])


@bounded
@given(data=st.data())
def test_a_damaged_part_never_reaches_its_neighbours(data: st.DataObject) -> None:
    """Whatever the bytes of one part are, those of the others are read as they were sent."""
    units = [Execute(payload={"x": at}, request=str(at)) for at in range(4)]
    packed = [batches.pack(unit, call=8 + at) for at, unit in enumerate(units)]
    frames = batches.join(packed, incarnation=INCARNATION, call=7)
    at = data.draw(st.integers(0, 3))
    frames[3 + at] = data.draw(st.binary(max_size=40))
    batch = judged_batch(frames)
    assert isinstance(batch, batches.Batch)
    for other in {0, 1, 2, 3} - {at}:
        assert batch.parts[other] == Envelope(INCARNATION, 8 + other, None, units[other])
