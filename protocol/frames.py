"""One message as a list of frames, and back.

    frame   content     bytes       meaning
    -----   ---------   ---------   -------------------------------------------------------------
      0     kind        1           what the body is (`messages.Kind`)
      1     header      6 .. 192    msgpack array of exactly four:
                                      [0] protocol version    integer 0..127
                                      [1] incarnation         text, 1..40 characters
                                      [2] call id             integer 0..2^63-1, 0 = no call
                                      [3] remaining budget    integer ms 0..86,400,000, or nil
      2     body        1 ..        msgpack map, text keys, each once, at most 16 levels deep
      3..   buffers     0 ..        raw bytes of arrays and blobs, each referenced once by the body

For an EXECUTE of call 7 with 30 s left, to incarnation "1-9f1c2ab4" and without buffers:

    offset  0      frame 0   05
    offset  0      frame 1   94                                        array of four
            1                01                                        version 1
            2                aa 31 2d 39 66 31 63 32 61 62 34          text, 10 characters
           13                07                                        call 7
           14                cd 75 30                                  30,000 ms
    offset  0      frame 2   84 a7 70 61 79 6c 6f 61 64 ...            {"payload": ...}

docs/wire.md is the whole specification, with two messages in full.

`decode` either returns a message or raises one `ProtocolError`, whatever the bytes: libraries fail
in a dozen ways (ValueError, OverflowError, UnicodeDecodeError, RecursionError ...) and all of them
end here. No frame is trusted to be of the size another one says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

import msgpack

from protocol import bodies, limits
from protocol.errors import LimitExceeded, Malformed, StaleIncarnation, UnknownKind, VersionMismatch
from protocol.fields import describe
from protocol.messages import BY_KIND, Lane, Message
from protocol.tensors import Buffer

_unpack: Final = msgpack.unpackb

# One packer for the headers of all threads: it calls nothing of Python's, so no other thread comes between.
_pack: Final = msgpack.Packer(buf_size=limits.MAX_HEADER_BYTES).pack
_MAX_FRAMES: Final = 3 + limits.MAX_BUFFERS


class Envelope(NamedTuple):
    """A decoded message with its header."""

    incarnation: str
    call: int
    budget_ms: int | None
    message: Message


def encode(message: Message, *, incarnation: str, call: int = 0, budget_ms: int | None = None) -> list[Buffer]:
    """Frames of one message.

    Raises `ProtocolError` when a field or a size is outside the protocol; nothing is ever sent cut.
    The returned buffers may be views of the caller's read-only arrays: do not change those afterwards.
    A budget outside its range is clamped to it: spent is 0, and more than a day is a day.
    """
    if type(call) is not int or not 0 <= call <= limits.MAX_CALL_ID:
        raise LimitExceeded(f"the call id is an integer 0..2^63-1, not {describe(call)}")
    if type(incarnation) is not str or not 1 <= len(incarnation) <= limits.MAX_INCARNATION_CHARS:
        raise LimitExceeded(f"an incarnation is a text of 1..{limits.MAX_INCARNATION_CHARS} characters", call=call)
    if budget_ms is not None:
        if type(budget_ms) is not int:
            raise Malformed(f"the budget is nil or an integer, not {describe(budget_ms)}", call=call)
        budget_ms = min(max(budget_ms, 0), limits.MAX_BUDGET_MS)
    header = pack_header(incarnation, call, budget_ms)
    body, buffers = bodies.pack(message, call)
    frames: list[Buffer] = [message.KIND_BYTE, header, body]
    if buffers:
        frames += buffers
        check_sizes(frames, call)
    return frames


def pack_header(incarnation: str, call: int, budget_ms: int | None) -> bytes:
    """The header frame, of values that were checked."""
    try:
        packed: bytes = _pack((limits.PROTOCOL_VERSION, incarnation, call, budget_ms))
    except ValueError as error:
        raise Malformed(f"the incarnation cannot be packed: {error.__class__.__name__}", call=call) from error
    return packed


def decode(frames: Sequence[Buffer], *, lane: Lane, incarnation: str | None = None) -> Envelope:
    """The message in `frames`, which arrived on `lane`.

    `incarnation` is the one this socket belongs to; a message of another is `StaleIncarnation`. Every
    error carries the call id once the header could be read, so that a refusal can be addressed.
    """
    count = len(frames)
    if not 3 <= count <= _MAX_FRAMES:
        raise Malformed(f"a message has 3..{3 + limits.MAX_BUFFERS} frames, this one has {count}")
    for frame in frames:
        if type(frame) is not bytes:
            check_flat(frame)
    kind, header, body = frames[0], frames[1], frames[2]
    version, sender, call, budget = read_header(header)
    if len(kind) != 1:
        raise Malformed(f"the kind is one byte, this one has {len(kind)}", call=call)
    message_type = BY_KIND.get(kind[0])
    if message_type is None:
        raise UnknownKind(f"kind {kind[0]} does not exist in protocol {version}", call=call)
    if lane not in message_type.LANES:
        raise UnknownKind(f"{message_type.__name__} does not belong on the {lane.value} lane", call=call)
    if incarnation is not None and sender != incarnation:
        raise StaleIncarnation(f"a message of incarnation {sender!r} at {incarnation!r}", call=call)
    if len(body) > limits.MAX_BODY_BYTES:
        raise LimitExceeded(f"a body of {len(body)} bytes: at most {limits.MAX_BODY_BYTES}", call=call)
    if count > 3:
        check_sizes(frames, call)
    message = bodies.read(message_type, body, frames[3:], call)
    return Envelope(sender, call, budget, message)


def check_flat(frame: object) -> None:
    """Refuse views whose length is not their number of bytes: every size check below relies on it."""
    if isinstance(frame, bytearray):
        return
    if not isinstance(frame, memoryview) or frame.format != "B" or frame.ndim != 1 or not frame.contiguous:
        raise Malformed(f"a frame is bytes or a flat view of bytes, not {describe(frame)}")


def check_sizes(frames: Sequence[Buffer], call: int) -> None:
    """Raise `LimitExceeded` when a frame is too large, or all together are. Bodies have a lower limit of their own."""
    sizes = list(map(len, frames))
    if max(sizes) > limits.MAX_BUFFER_BYTES:
        raise LimitExceeded(f"a buffer has at most {limits.MAX_BUFFER_BYTES} bytes", call=call)
    if sum(sizes) > limits.MAX_MESSAGE_BYTES:
        raise LimitExceeded(f"a message has at most {limits.MAX_MESSAGE_BYTES} bytes", call=call)


def read_header(raw: Buffer) -> tuple[int, str, int, int | None]:
    """Version, incarnation, call and budget of a header frame. Raises one `ProtocolError`."""
    if len(raw) > limits.MAX_HEADER_BYTES:
        raise Malformed(f"a header of {len(raw)} bytes: at most {limits.MAX_HEADER_BYTES}")
    try:
        header = _unpack(raw)
    except Exception as error:
        raise Malformed(f"the header is not msgpack: {type(error).__name__}") from error
    if type(header) is list and len(header) == 4:
        # Nearly all of them, in one look. What is wrong with another one is found out below.
        version, incarnation, call, budget = header
        if (
            type(version) is int
            and version == limits.PROTOCOL_VERSION
            and type(call) is int
            and 0 <= call <= limits.MAX_CALL_ID
            and type(incarnation) is str
            and 1 <= len(incarnation) <= limits.MAX_INCARNATION_CHARS
            and (budget is None or (type(budget) is int and 0 <= budget <= limits.MAX_BUDGET_MS))
        ):
            return version, incarnation, call, budget
    return _refused_header(header)


def _refused_header(header: object) -> NoReturn:
    """Raise what is wrong with a header that is not one."""
    if type(header) is not list or len(header) < 3:
        raise Malformed("a header is an array that begins with version, incarnation and call id")
    # These three keep their places in every version, so that a peer of another one can be answered.
    version, incarnation, call = header[0], header[1], header[2]
    if type(version) is not int or not 0 <= version <= 127:
        raise Malformed("the version is an integer 0..127")
    if type(call) is not int or not 0 <= call <= limits.MAX_CALL_ID:
        raise Malformed("the call id is an integer 0..2^63-1")
    if version != limits.PROTOCOL_VERSION:
        raise VersionMismatch(f"the peer speaks protocol {version}, we speak {limits.PROTOCOL_VERSION}", call=call)
    if len(header) != 4:
        raise Malformed(f"a header has four elements, this one {len(header)}", call=call)
    if type(incarnation) is not str or not 1 <= len(incarnation) <= limits.MAX_INCARNATION_CHARS:
        raise Malformed(f"the incarnation is a text of 1..{limits.MAX_INCARNATION_CHARS} characters", call=call)
    raise Malformed(f"the budget is nil or an integer 0..{limits.MAX_BUDGET_MS} ms", call=call)
