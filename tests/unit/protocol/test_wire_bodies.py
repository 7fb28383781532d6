"""Bodies: one map, text keys, each once, no deeper and no wider than allowed, and nothing behind it."""

from __future__ import annotations

import collections
import datetime
from dataclasses import replace
from typing import Any, NamedTuple

import msgpack
import pytest

from protocol import limits
from protocol.errors import LimitExceeded, Malformed, ProtocolError
from protocol.frames import decode, encode
from protocol.messages import (
    CancelAnswer,
    Deployment,
    Execute,
    Failure,
    Hello,
    HostDown,
    Kind,
    Lane,
    Message,
    Progress,
    Status,
    declare,
)
from tests.unit.protocol.samples import (
    INCARNATION,
    MESSAGES,
    execute,
    extension,
    header,
    lane_of,
    raw,
    reference,
    there_and_back,
    timestamp,
)


def refusal(frames: list[Any], lane: Lane = Lane.DATA) -> type[ProtocolError]:
    """The type of the error a decode must end with; it always has the call id of the samples, 7."""
    with pytest.raises(ProtocolError) as caught:
        decode(frames, lane=lane)
    assert caught.value.call == 7
    return type(caught.value)


def unsendable(value: Any) -> type[ProtocolError]:
    """The type of the error that sending `value` in a payload must end with; it has the call id."""
    with pytest.raises(ProtocolError) as caught:
        encode(Execute(payload={"x": value}), incarnation=INCARNATION, call=7)
    assert caught.value.call == 7
    return type(caught.value)


class Point(NamedTuple):
    """A tuple with names, as any library may return."""

    x: int
    y: list[int]


LIES = {
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "text": b"\xdb\xff\xff\xff\xff",
    "bytes": b"\xc6\xff\xff\xff\xff",
    "extension": b"\xc9\xff\xff\xff\xff\x01",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_length_beyond_the_bytes_at_hand_is_refused(lie: bytes) -> None:
    """2^32-1 elements in ten bytes are a lie, and nothing is allocated for it."""
    assert refusal(raw(lie.ljust(10, b"\xc0"))) is Malformed
    assert refusal(execute(lie)) is Malformed


def test_lying_lengths_inside_each_other_are_refused() -> None:
    """Each level of nesting may lie again; the answer is the same."""
    assert refusal(execute(LIES["array"] * 10)) is Malformed
    assert refusal(execute(b"\xdc\x00\x20" * 10)) is Malformed


@pytest.mark.parametrize("body", [b"\xc0", b"\x90", b"\x01", b"\xa1x", b"\xc4\x00", timestamp(), reference(3, 0)])
def test_a_body_is_a_map(body: bytes) -> None:
    """Any other object is malformed."""
    assert refusal(raw(body)) is Malformed


def test_nothing_follows_the_body() -> None:
    """One frame is one object: a second one behind it is malformed."""
    good = b"\x82\xa7payload\x80\xa7request\xa0"
    assert refusal(raw(good + b"\x80")) is Malformed
    assert refusal(raw(good + good)) is Malformed


@pytest.mark.parametrize("nest", [lambda inner: [inner], lambda inner: {"k": inner}], ids=["lists", "maps"])
def test_depth_is_limited_at_both_ends(nest: Any) -> None:
    """A body of exactly the deepest nesting travels; one level more is refused by sender and receiver."""
    value: Any = nest(1)
    for _ in range(limits.MAX_DEPTH - 3):  # the body's map, the payload and the innermost container
        value = nest(value)
    assert there_and_back(Execute(payload={"x": value})).message == Execute(payload={"x": value})
    assert unsendable(nest(value)) is LimitExceeded
    assert refusal(execute(msgpack.packb(nest(value)))) is LimitExceeded


@pytest.mark.parametrize("levels", [100, 600, 1100, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1k"], ids=["lists", "maps"])
def test_any_depth_is_one_and_the_same_error(levels: int, opening: bytes) -> None:
    """Also where the library runs out of its own stack, or Python out of recursion."""
    assert refusal(execute(opening * levels + b"\xc0")) is LimitExceeded


def test_a_list_inside_itself_is_not_sent() -> None:
    """The depth limit ends the walk."""
    loop: list[Any] = []
    loop.append(loop)
    assert unsendable(loop) is LimitExceeded
    assert unsendable([loop, loop]) is LimitExceeded


@pytest.mark.parametrize(
    "pairs", [b"\x82\xa1a\x01\xa1a\x01", b"\x83\xa1a\x01\xa1b\x01\xa1a\x02", b"\x82\xa1a\x01\xd9\x01a\x02"]
)
def test_a_key_twice_is_refused(pairs: bytes) -> None:
    """In a nested map, and written in two ways; which of the values counts is never a question."""
    assert refusal(execute(pairs)) is Malformed
    assert refusal(execute(b"\x91" + pairs)) is Malformed


def test_a_field_twice_is_refused() -> None:
    """Also when both say the same."""
    assert refusal(raw(b"\x82" + b"\xa7payload\x80" * 2)) is Malformed


@pytest.mark.parametrize("key", [b"\x01", b"\xc0", b"\xc4\x01k", b"\x90", b"\x91\x01", b"\x80", b"\xc3", timestamp()])
def test_a_key_that_is_not_text_is_refused(key: bytes) -> None:
    """Integers, nil, bytes, containers, booleans: none is a key, at any level."""
    assert refusal(execute(b"\x81" + key + b"\x01")) is Malformed
    assert refusal(execute(b"\x91\x81" + key + b"\x01")) is Malformed
    assert refusal(raw(b"\x81" + key + b"\x80")) is Malformed


@pytest.mark.parametrize("key", [1, None, b"k", (1,), True, 2.5])
def test_a_key_that_is_not_text_is_not_sent(key: Any) -> None:
    """The sender hears of it, at any level and in a subclass of dict."""
    assert unsendable({key: 1}) is Malformed
    assert unsendable([{key: 1}]) is Malformed
    assert unsendable(collections.OrderedDict({key: 1})) is Malformed


@pytest.mark.parametrize("number", [limits.INT_MIN, -1, 0, 2**63 - 1, 2**63, limits.INT_MAX])
def test_integers_in_range_arrive(number: int) -> None:
    """From the smallest signed to the largest unsigned one of 64 bits."""
    assert there_and_back(Execute(payload={"x": number})).message == Execute(payload={"x": number})


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, pytest.param(10**5000, id="huge")])
def test_integers_out_of_range_are_not_sent(number: int) -> None:
    """The sender gets the limit's error, not the library's; in a numeric field as well."""
    assert unsendable(number) is LimitExceeded
    assert unsendable([1.5, [number]]) is LimitExceeded
    with pytest.raises(Malformed):
        encode(Hello(role="front", epoch="e", pid=number), incarnation=INCARNATION)


@pytest.mark.parametrize(("pid", "good"), [(0, True), (2**63 - 1, True), (2**63, False), (-1, False), (True, False)])
def test_an_integer_field_has_its_range_at_both_ends(pid: Any, good: bool) -> None:
    """What the sender may not send, the receiver does not take."""
    body = msgpack.packb({"role": "front", "epoch": "e", "pid": pid})
    if good:
        assert there_and_back(Hello(role="front", epoch="e", pid=pid)).message == Hello(
            role="front", epoch="e", pid=pid
        )
        return
    assert refusal(raw(body, kind=Hello.KIND), Lane.CONTROL) is Malformed
    with pytest.raises(Malformed):
        encode(Hello(role="front", epoch="e", pid=pid), incarnation=INCARNATION)


@pytest.mark.parametrize("code", [0, 4, 5, 127, -1])
def test_an_extension_that_is_not_listed_is_refused(code: int) -> None:
    """Also msgpack's timestamp, at any place: it would arrive as an object nobody checks."""
    for frames in (execute(extension(code, b"\x90")), execute(b"\x91" + extension(code, b"\x90"))):
        assert refusal(frames) is Malformed


@pytest.mark.parametrize("short", [b"\xd6\xff\x00\x00\x00\x01", b"\xd7\xff" + bytes(8), b"\xc7\x05\xff" + bytes(5)])
def test_a_timestamp_in_any_form_is_refused(short: bytes) -> None:
    """In its 32 and 64 bit forms, and in one of a wrong size."""
    assert refusal(execute(short)) is Malformed


@pytest.mark.parametrize("inner", [extension(1, b"\x90"), extension(5, b""), timestamp()])
@pytest.mark.parametrize("code", [1, 2, 3])
def test_an_extension_inside_an_extension_is_refused(code: int, inner: bytes) -> None:
    """A reference holds numbers, text and bytes only."""
    for data in (b"\x91" + inner, b"\x92" + inner + b"\x90", b"\x93\x00" + inner + b"\x90"):
        assert refusal(execute(extension(code, data), b"")) is Malformed


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, object(), 1j, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), msgpack.Timestamp(1, 2),
        msgpack.ExtType(5, b"x"), [msgpack.Timestamp(1, 2)], [msgpack.ExtType(3, b"\x91\x00")],
        "\ud800", {"\ud800": 1},
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_no_message_can_carry_is_not_sent(value: Any) -> None:
    """Sets, objects, dates, the library's own types and half characters stay with the sender."""
    assert unsendable(value) is Malformed


@pytest.mark.parametrize("kind", [TypeError, OverflowError, KeyError, MemoryError, BufferError, RecursionError])
def test_whatever_the_library_raises_is_an_error_of_ours(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors have changed from release to release; a reader must survive the next ones too."""
    frames = execute(b"\xc0")
    original = msgpack.unpackb

    def failing(packed: bytes, **options: Any) -> Any:
        if packed == frames[2]:
            raise kind("anything")
        return original(packed, **options)

    monkeypatch.setattr("protocol.bodies._unpack", failing)
    assert refusal(frames) is (LimitExceeded if kind is RecursionError else Malformed)


def test_text_that_is_not_utf8_is_refused() -> None:
    """In a value and in a key."""
    assert refusal(execute(b"\xa2\xff\xff")) is Malformed
    assert refusal(execute(b"\x81\xa2\xff\xff\x01")) is Malformed


def test_sequences_arrive_as_lists_and_mappings_as_dicts() -> None:
    """What the sender held in a tuple, a named tuple or an ordered dict is a list or a dict at the other end."""
    point = Point(1, [2])
    payload = {
        "t": (1, (2,)),
        "p": point,
        "o": collections.OrderedDict(a=(1,)),
        "b": bytearray(b"x"),
        "v": memoryview(b"y"),
    }
    assert there_and_back(Execute(payload=payload)).message == Execute(
        payload={"t": [1, [2]], "p": [1, [2]], "o": {"a": [1]}, "b": b"x", "v": b"y"}
    )


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_unknown_and_missing_fields_are_refused(message: Message) -> None:
    """Within one version a field more would be a meaning silently dropped, and a field less one silently invented."""
    body: dict[Any, Any] = {name: value for name, value in message.to_body().items() if name != "facts"}
    if "facts" in message.FIELDS:
        body["facts"] = {}
    lane, kind = lane_of(message), message.KIND
    assert type(decode(raw(msgpack.packb(body), kind=kind), lane=lane).message) is type(message)
    assert refusal(raw(msgpack.packb({**body, "unknown": 1}), kind=kind), lane) is Malformed
    assert refusal(raw(msgpack.packb({**body, b"unknown": 1, "u": 2}), kind=kind), lane) is Malformed
    for name in body:
        rest = {key: value for key, value in body.items() if key != name}
        assert refusal(raw(msgpack.packb(rest), kind=kind), lane) is Malformed
        assert refusal(raw(msgpack.packb({**rest, name.upper(): body[name]}), kind=kind), lane) is Malformed


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_field_of_the_wrong_type_is_refused_at_both_ends(message: Message) -> None:
    """A value no field takes is neither sent nor received, in every field of every message."""
    for name in message.FIELDS:
        with pytest.raises(Malformed, match=rf"{type(message).__name__}\.{name}"):
            encode(replace(message, **{name: b"wrong"}), incarnation=INCARNATION)
        body = {**dict.fromkeys(message.FIELDS), name: b"wrong"}
        assert refusal(raw(msgpack.packb(body), kind=message.KIND), lane_of(message)) is Malformed


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_an_array_in_any_field_is_refused(message: Message) -> None:
    """An array has no truth value and compares element by element: no check may stumble over one."""
    array = msgpack.ExtType(2, msgpack.packb(["|u1", [2], b"ab"]))
    for name in message.FIELDS:
        body = {**dict.fromkeys(message.FIELDS, "x"), name: array}
        assert refusal(raw(msgpack.packb(body), kind=message.KIND), lane_of(message)) is Malformed


DOWN: dict[str, Any] = {
    "deployment": "m@1",
    "replica": 0,
    "incarnation": "i",
    "signal": "",
    "last_words": "",
    "will_restart": True,
}

WRONG_VALUES: list[Message] = [
    Failure(code="nonsense", status=500, message=""),
    Failure(code="input", status=399, message=""),
    Failure(code="input", status=600, message=""),
    Failure(code="input", status=400, message="", where=[["x"]]),
    Failure(code="input", status=400, message="", where=[True]),
    Failure(code="input", status=400, message="", dispatched=1),  # type: ignore[arg-type]
    CancelAnswer(outcome="perhaps"),
    Progress(stage="", fraction=None),
    Progress(stage="s", fraction=float("nan")),
    Progress(stage="s", fraction=1.01),
    Progress(stage="s", fraction=-0.01),
    Progress(stage="s", fraction=True),
    Status(report=[]),  # type: ignore[arg-type]
    Deployment(models=[1], default="m", server={}, open=True),  # type: ignore[list-item]
    Deployment(models=[], default="", server={}, open=True),
    HostDown(**DOWN, exit=2**31, retry_after_s=0),
    HostDown(**DOWN, exit=0, retry_after_s=float("inf")),
    HostDown(**DOWN, exit=0, retry_after_s=0, taken={"3-aa": -1}),
    HostDown(**DOWN, exit=0, retry_after_s=0, taken={"3-aa": 1.0}),
    HostDown(**DOWN, exit=0, retry_after_s=0, taken={"": 1}),
    HostDown(**DOWN, exit=0, retry_after_s=0, taken={"e" * 41: 1}),
    HostDown(**DOWN, exit=0, retry_after_s=0, taken=[]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("message", WRONG_VALUES, ids=repr)
def test_a_value_outside_its_field_is_refused_at_both_ends(message: Message) -> None:
    """Closed lists, ranges and element types are checked by sender and receiver alike."""
    with pytest.raises(Malformed):
        encode(message, incarnation=INCARNATION)
    body = {name: getattr(message, name) for name in message.FIELDS}
    assert refusal([message.KIND_BYTE, header(), msgpack.packb(body)], lane_of(message)) is Malformed


def test_an_error_text_never_repeats_what_it_refuses() -> None:
    """A state that came in the wrong place must not end in a log."""
    with pytest.raises(Malformed) as caught:
        encode(Hello(role="secret " * 100, epoch="e", pid=1), incarnation=INCARNATION)
    assert "secret" not in str(caught.value)
    with pytest.raises(Malformed) as caught:
        decode(raw(msgpack.packb({"payload": "secret", "secret": 1})), lane=Lane.DATA)
    assert "secret" not in str(caught.value)


def test_a_message_with_a_field_that_says_nothing_of_its_limit_cannot_be_declared() -> None:
    """A bare Python type would be a field that nobody checks."""

    class Bare(Message):
        name: str  # of any length

    with pytest.raises(TypeError, match=r"Bare\.name does not say what it may hold"):
        declare(Kind.BYE, Lane.CONTROL)(Bare)
