"""Every number of limits.py: the number itself travels, one more is refused by sender and receiver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

from protocol import addresses, limits
from protocol.errors import LimitExceeded, Malformed, ProtocolError
from protocol.frames import decode, encode
from protocol.messages import Bye, Cancel, Drained, Execute, Lane, Message
from protocol.tensors import Blob, Buffer
from tests.unit.protocol.samples import INCARNATION, lane_of, raw, there_and_back


def sent(payload: dict[str, Any]) -> list[Buffer]:
    """The frames of an EXECUTE with this payload."""
    return encode(Execute(payload=payload), incarnation=INCARNATION, call=7)


def refused_at_encode(payload: dict[str, Any]) -> None:
    """The sender gets `LimitExceeded`, with the call id."""
    with pytest.raises(LimitExceeded) as caught:
        sent(payload)
    assert caught.value.call == 7


def refused_at_decode(frames: list[Buffer], kind: type[ProtocolError] = LimitExceeded) -> None:
    """The receiver gets `LimitExceeded`, with the call id."""
    with pytest.raises(ProtocolError) as caught:
        decode(frames, lane=Lane.DATA)
    assert type(caught.value) is kind
    assert caught.value.call == 7


def test_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_BODY_BYTES is the longest body."""
    frames = sent({"x": "y" * 100})
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", len(frames[2]))
    assert decode(sent({"x": "y" * 100}), lane=Lane.DATA).message == Execute(payload={"x": "y" * 100})
    refused_at_encode({"x": "y" * 101})
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", len(frames[2]) - 1)
    refused_at_decode(frames)


def test_the_number_of_buffers() -> None:
    """MAX_BUFFERS is the largest number of them."""
    blobs = [Blob(bytes(limits.OUT_OF_BAND_BYTES))] * (limits.MAX_BUFFERS + 1)
    frames = sent({"x": blobs[1:]})
    assert len(frames) == 3 + limits.MAX_BUFFERS
    decode(frames, lane=Lane.DATA)
    refused_at_encode({"x": blobs})
    with pytest.raises(Malformed):
        decode([*frames, b""], lane=Lane.DATA)


def test_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_BUFFER_BYTES is the longest one."""
    size = limits.OUT_OF_BAND_BYTES + 10
    frames = sent({"x": Blob(bytes(size))})
    monkeypatch.setattr(limits, "MAX_BUFFER_BYTES", size)
    decode(sent({"x": Blob(bytes(size))}), lane=Lane.DATA)
    refused_at_encode({"x": Blob(bytes(size + 1))})
    monkeypatch.setattr(limits, "MAX_BUFFER_BYTES", size - 1)
    refused_at_decode(frames)


def test_a_buffer_is_measured_before_the_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oversized buffer is refused whatever the body says of it."""
    monkeypatch.setattr(limits, "MAX_BUFFER_BYTES", 3)
    refused_at_decode(raw(b"\xc1", b"1234"))


def test_all_frames_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_MESSAGE_BYTES counts every frame, the head included, at both ends alike."""
    payload = {"x": [Blob(bytes(limits.OUT_OF_BAND_BYTES))] * 2}
    frames = sent(payload)
    total = sum(len(frame) for frame in frames)
    monkeypatch.setattr(limits, "MAX_MESSAGE_BYTES", total)
    decode(sent(payload), lane=Lane.DATA)
    monkeypatch.setattr(limits, "MAX_MESSAGE_BYTES", total - 1)
    refused_at_encode(payload)
    refused_at_decode(frames)


def test_a_message_without_buffers_is_far_below_the_total() -> None:
    """Why only messages with buffers are summed."""
    assert 1 + limits.MAX_HEADER_BYTES + limits.MAX_BODY_BYTES < limits.MAX_MESSAGE_BYTES


@pytest.mark.parametrize("spread", [list, lambda items: dict.fromkeys(map(str, items))], ids=["list", "map"])
@pytest.mark.parametrize("most", [10, 2000], ids=["shorter than the body", "longer"])
def test_items(monkeypatch: pytest.MonkeyPatch, spread: Any, most: int) -> None:
    """MAX_ITEMS is the largest list and the largest map, as a field's value and inside one."""
    monkeypatch.setattr(limits, "MAX_ITEMS", most)
    for wrap in (lambda x: {"x": x}, lambda x: {"x": [x]}, lambda x: {"x": [[], {"y": x}]}):
        assert there_and_back(Execute(payload=wrap(spread(range(most))))).message is not None
        wide = wrap(spread(range(most + 1)))
        refused_at_encode(wide)
        refused_at_decode(raw(msgpack.packb({"payload": wide})))


def test_the_real_number_of_items() -> None:
    """A list of the real limit goes through, and one more does not: the library's own limits agree."""
    assert there_and_back(Execute(payload={"x": [0] * limits.MAX_ITEMS})).message is not None
    refused_at_encode({"x": [0] * (limits.MAX_ITEMS + 1)})
    refused_at_decode(raw(msgpack.packb({"payload": {"x": [0] * (limits.MAX_ITEMS + 1)}})))


MANY: dict[str, Any] = {
    "empty lists": [[]] * limits.MAX_CONTAINERS,
    "empty maps": [{}] * limits.MAX_CONTAINERS,
    "lists in lists": [[[]] * 1000] * (limits.MAX_CONTAINERS // 1000 + 1),
    "items of many lists": [[0] * 700_000] * 3,
    "entries of many maps": [dict.fromkeys(map(str, range(1000)))] * 2001,
}


@pytest.mark.parametrize("kind", MANY)
def test_what_a_body_holds_is_counted_in_all(kind: str) -> None:
    """No list of it is too long, and the message is small: 5 MB of empty lists were 350 MiB and 4 s to read."""
    refused_at_encode({"x": MANY[kind]})
    body = {"payload": {"x": MANY[kind]}, "keep": None, "request": "", "sent_ms": 0}
    refused_at_decode(raw(msgpack.packb(body)))


def test_reading_ends_where_a_limit_is_passed() -> None:
    """What lies behind the first list too many is not read: were it, its error would be the one that is told."""
    lists = b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\x90" * (limits.MAX_CONTAINERS + 1)
    not_text = b"\xa1\xff" * (1_000_000 - limits.MAX_CONTAINERS - 1)
    with pytest.raises(LimitExceeded, match="65536 lists and maps"):
        decode(raw(b"\x81\xa7payload\x81\xa1x" + lists + not_text), lane=Lane.DATA)


@pytest.mark.parametrize(
    ("make", "most", "least"),
    [
        (lambda text: Drained(deployment=text), limits.MAX_DEPLOYMENT_CHARS, 1),
        (lambda text: Bye(reason=text), limits.MAX_TEXT_CHARS, 0),
        (lambda text: Cancel(epoch=text), limits.MAX_INCARNATION_CHARS, 1),
    ],
    ids=["name", "text", "incarnation"],
)
def test_texts(make: Any, most: int, least: int) -> None:
    """Names, texts and incarnations have their own lengths, in characters and not in bytes."""
    for good in ("é" * most, "x" * least):
        message: Message = make(good)
        assert there_and_back(message).message == message
    for bad in ["x" * (most + 1), *([""] if least else [])]:
        message = make(bad)
        with pytest.raises(Malformed):
            encode(message, incarnation=INCARNATION)
        body = {name: getattr(message, name) for name in message.FIELDS}
        with pytest.raises(Malformed):
            decode(raw(msgpack.packb(body), kind=message.KIND), lane=lane_of(message))


def test_the_socket_guard_is_above_every_frame() -> None:
    """The transport's own limit drops in silence, so ours must always speak first."""
    assert max(limits.MAX_BUFFER_BYTES, limits.MAX_BODY_BYTES) < limits.SOCKET_MAX_FRAME_BYTES


def test_the_path_of_a_socket() -> None:
    """MAX_IPC_PATH_BYTES counts bytes and not characters; the error names the path."""
    longest = Path("/" + "é" * (limits.MAX_IPC_PATH_BYTES // 2))
    assert addresses.ipc(longest) == f"ipc://{longest}"
    with pytest.raises(LimitExceeded, match=str(limits.MAX_IPC_PATH_BYTES)):
        addresses.ipc(Path(f"{longest}x"))
