"""Kind and header: what is refused before a body is read, and who the refusal can be addressed to."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import limits
from protocol.errors import (
    LimitExceeded,
    Malformed,
    ProtocolError,
    StaleIncarnation,
    UnknownKind,
    VersionMismatch,
)
from protocol.frames import Envelope, decode, encode
from protocol.messages import BY_KIND, Execute, Kind, Lane, Message
from tests.unit.protocol.samples import INCARNATION, MESSAGES, header, lane_of, there_and_back

EXECUTE = Execute(payload={})
BODY = b"\x84\xa7payload\x80\xa7request\xa0\xa7sent_ms\x00\xa4keep\xc0"


def refused(frames: list[Any], lane: Lane = Lane.DATA, incarnation: str | None = INCARNATION) -> ProtocolError:
    """The error of a decode that must fail."""
    with pytest.raises(ProtocolError) as caught:
        decode(frames, lane=lane, incarnation=incarnation)
    return caught.value


def test_the_head_of_a_message_is_kind_and_header() -> None:
    """Kind byte, version, incarnation, call and budget are where the picture in frames.py has them."""
    frames = encode(EXECUTE, incarnation=INCARNATION, call=7, budget_ms=30_000)
    assert frames == [b"\x05", bytes.fromhex("9401aa312d396631633261623407cd7530"), BODY]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("lane", Lane)
def test_a_message_is_read_on_its_own_lanes_only(message: Message, lane: Lane) -> None:
    """On any other lane the same frames are an unknown kind, and the error has the call id."""
    frames = encode(message, incarnation=INCARNATION, call=7)
    if lane in message.LANES:
        assert type(decode(frames, lane=lane).message) is type(message)
    else:
        error = refused(frames, lane)
        assert (type(error), error.call) == (UnknownKind, 7)
        assert lane.value in str(error)


@pytest.mark.parametrize("kind", sorted(set(range(256)) - set(BY_KIND)))
def test_a_kind_that_does_not_exist_is_refused_with_its_call(kind: int) -> None:
    """Every free kind byte is `UnknownKind`."""
    error = refused([bytes((kind,)), header(), BODY])
    assert (type(error), error.call) == (UnknownKind, 7)


@pytest.mark.parametrize("kind", [b"", b"\x05\x05"])
def test_a_kind_is_exactly_one_byte(kind: bytes) -> None:
    """No byte or two bytes are malformed, with the call id."""
    error = refused([kind, header(), BODY])
    assert (type(error), error.call) == (Malformed, 7)


@pytest.mark.parametrize("version", [0, 2, 127])
def test_another_version_is_refused_with_its_call(version: int) -> None:
    """The peer of another version can be told so: the call id is on the error."""
    error = refused([b"\x05", header(version=version), BODY])
    assert (type(error), error.call) == (VersionMismatch, 7)


def test_another_version_is_told_apart_before_its_header_is_judged() -> None:
    """A later version may have more elements and other kinds; version and call id keep their places."""
    later = b"\x96\x02\x01\x07\xc0\xc0\xc0"
    error = refused([b"\xff", later, b""])
    assert (type(error), error.call) == (VersionMismatch, 7)


def test_a_foreign_incarnation_is_refused_with_its_call() -> None:
    """A message to a predecessor is stale, and the sender can be told which call it was."""
    error = refused([b"\x05", header(incarnation="0-dead"), BODY])
    assert (type(error), error.call) == (StaleIncarnation, 7)


def test_no_incarnation_is_asked_for_where_none_is_named() -> None:
    """The first message of a dialer is read before the receiver knows whose it is."""
    assert decode([b"\x05", header(incarnation="0-dead"), BODY], lane=Lane.DATA).incarnation == "0-dead"


@pytest.mark.parametrize(
    ("wrong", "call"),
    [
        ({"version": -1}, 0), ({"version": 128}, 0), ({"version": True}, 0), ({"version": 1.0}, 0),
        ({"call": -1}, 0), ({"call": 2**63}, 0), ({"call": 1.0}, 0), ({"call": True}, 0), ({"call": None}, 0),
        ({"incarnation": ""}, 7), ({"incarnation": b"1-9f1c2ab4"}, 7), ({"incarnation": 3}, 7),
        ({"incarnation": "x" * 41}, 7),
        ({"budget": -1}, 7), ({"budget": limits.MAX_BUDGET_MS + 1}, 7), ({"budget": 1.5}, 7), ({"budget": False}, 7),
        ({"budget": []}, 7),
    ],
    ids=str,
)  # fmt: skip
def test_a_header_element_of_the_wrong_kind_is_refused(wrong: dict[str, Any], call: int) -> None:
    """Each of the four is checked; after the call id could be read, the error has it."""
    error = refused([b"\x05", header(**wrong), BODY])
    assert (type(error), error.call) == (Malformed, call)


@pytest.mark.parametrize("raw", [b"", b"\x05", b"\x80", b"\x90", b"\x93\x01\xa1x\x07", b"\x95\x01\xa1x\x07\xc0\xc0"])
def test_a_header_is_an_array_of_four(raw: bytes) -> None:
    """Anything else, and any other length, is malformed."""
    assert type(refused([b"\x05", raw, BODY])) is Malformed


def test_a_header_above_its_limit_is_not_parsed() -> None:
    """A header cannot be used to make the receiver unpack much; at its own widest, it is read."""
    widest = encode(EXECUTE, incarnation="\U0001f985" * 40, call=limits.MAX_CALL_ID, budget_ms=limits.MAX_BUDGET_MS)
    assert len(widest[1]) == 178 <= limits.MAX_HEADER_BYTES
    assert decode(widest, lane=Lane.DATA).call == limits.MAX_CALL_ID
    error = refused([b"\x05", b"\xc0" * (limits.MAX_HEADER_BYTES + 1), BODY])
    assert "at most" in str(error)


@pytest.mark.parametrize("call", [-1, 2**63, pytest.param(10**5000, id="huge"), 1.0, True, "7", None])
def test_a_call_id_outside_the_protocol_is_not_sent(call: Any) -> None:
    """The sender hears of it, also for an integer of more digits than Python will print."""
    with pytest.raises(LimitExceeded):
        encode(EXECUTE, incarnation=INCARNATION, call=call)


@pytest.mark.parametrize("incarnation", ["", "x" * 41, b"x", None])
def test_an_incarnation_outside_the_protocol_is_not_sent(incarnation: Any) -> None:
    """Nor an empty one: it would match nothing at the other end."""
    with pytest.raises(LimitExceeded):
        encode(EXECUTE, incarnation=incarnation, call=7)


@pytest.mark.parametrize("call", [0, 1, limits.MAX_CALL_ID])
@pytest.mark.parametrize("incarnation", ["x", "x" * limits.MAX_INCARNATION_CHARS])
def test_call_and_incarnation_at_their_limits_arrive(call: int, incarnation: str) -> None:
    """The limits themselves are inside."""
    frames = encode(EXECUTE, incarnation=incarnation, call=call)
    assert decode(frames, lane=Lane.DATA, incarnation=incarnation)[:2] == (incarnation, call)


@pytest.mark.parametrize(
    ("budget", "arrives"),
    [(None, None), (-5, 0), (0, 0), (limits.MAX_BUDGET_MS, limits.MAX_BUDGET_MS), (10**30, limits.MAX_BUDGET_MS)],
)
def test_a_budget_is_clamped_to_its_range(budget: int | None, arrives: int | None) -> None:
    """Spent is 0 and more than a day is a day; none at all stays none."""
    assert there_and_back(EXECUTE, budget_ms=budget).budget_ms == arrives


@pytest.mark.parametrize("budget", [1.5, True, "1"])
def test_a_budget_that_is_no_integer_is_not_sent(budget: Any) -> None:
    """A float would be refused by the receiver, so the sender hears of it, with the call."""
    with pytest.raises(Malformed) as caught:
        encode(EXECUTE, incarnation=INCARNATION, call=7, budget_ms=budget)
    assert caught.value.call == 7


def test_an_envelope_names_what_it_holds() -> None:
    """Header and message are read by name."""
    envelope = there_and_back(EXECUTE, call=7, budget_ms=3)
    assert envelope == Envelope(incarnation=INCARNATION, call=7, budget_ms=3, message=EXECUTE)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_frames_may_be_views(message: Message) -> None:
    """A transport may hand over views of its receive buffers instead of bytes."""
    frames = [memoryview(frame) for frame in encode(message, incarnation=INCARNATION, call=7)]
    assert type(decode(frames, lane=lane_of(message)).message) is type(message)


@pytest.mark.parametrize(
    "frame",
    [
        memoryview(b"12345678").cast("d"),
        memoryview(b"1234").cast("B", (2, 2)),
        memoryview(b"1234")[::2],
        "text",
        None,
        5,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_frame_is_a_flat_run_of_bytes(frame: Any, at: int) -> None:
    """A view whose length is not its number of bytes would lie to every size check."""
    frames: list[Any] = [b"\x05", header(), BODY, b""]
    frames[at] = frame
    assert type(refused(frames)) is Malformed


def test_every_kind_has_one_message_and_its_byte() -> None:
    """The kind table is complete, and no two messages share a number."""
    assert set(BY_KIND) == set(Kind) - {Kind.BATCH}, "a batch is several messages"
    assert {type(message) for message in MESSAGES} == set(BY_KIND.values())
    for kind, cls in BY_KIND.items():
        assert (kind, bytes((kind,))) == (cls.KIND, cls.KIND_BYTE)
