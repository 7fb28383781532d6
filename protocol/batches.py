"""Several messages of the data lane as one frame list: the units of a batch on their way there, its answers back.

    frame   content     bytes       meaning
    -----   ---------   ---------   -------------------------------------------------------------
      0     kind        1           `Kind.BATCH`
      1     header      6 .. 192    as of any message; its call is a number of the batch's own, below those of its parts
      2     envelope    1 ..        msgpack array of 1..256 parts, each an array of exactly four:
                                      [0] kind                EXECUTE, or RESULT or FAILURE
                                      [1] call id             integer, above that of the part before
                                      [2] remaining budget    as in a header
                                      [3] buffers             integer 0..256
      3..   parts       1 ..        one after the other: the body of each, as of a message alone, then its buffers

The envelope says whose each frame is, so that a part whose body is none fails by itself: `read` gives its error in its
place. What is wrong with the envelope is wrong with all of them, and is one error with the call of the batch.

A batch of one is never made: one unit travels as the message that it is, byte for byte as without batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from protocol import bodies, limits
from protocol.errors import LimitExceeded, Malformed, ProtocolError, StaleIncarnation, UnknownKind
from protocol.frames import Envelope, check_flat, check_sizes, pack_header, read_header
from protocol.messages import Execute, Failure, Kind, Message, Result
from protocol.tensors import Buffer

KIND_BYTE: Final = bytes((Kind.BATCH,))

_TYPES: Final[dict[int, type[Message]]] = {cls.KIND: cls for cls in (Execute, Result, Failure)}


class Part(NamedTuple):
    """One message that is packed, and fits the protocol by itself."""

    kind: Kind
    call: int
    budget_ms: int | None
    body: bytes
    buffers: list[Buffer]


class Batch(NamedTuple):
    """A decoded batch: its own call, and each part's message or what is wrong with it, which has the part's call."""

    call: int
    parts: list[Envelope | ProtocolError]


def pack(message: Message, *, call: int, budget_ms: int | None = None) -> Part:
    """One message of a batch. Raises `ProtocolError` when it does not fit: the others are not concerned."""
    body, buffers = bodies.pack(message, call)
    if buffers:
        check_sizes((body, *buffers), call)
    if budget_ms is not None:
        budget_ms = min(max(budget_ms, 0), limits.MAX_BUDGET_MS)
    return Part(message.KIND, call, budget_ms, body, buffers)


def join(parts: Sequence[Part], *, incarnation: str, call: int) -> list[Buffer]:
    """The frames of a batch of two or more, in the order of their calls, all above `call`, its own.

    Raises `LimitExceeded` when together they are too many or too large, although each alone would travel.
    """
    if len(parts) > limits.MAX_BATCH_PARTS:
        raise LimitExceeded(f"a batch of {len(parts)}: at most {limits.MAX_BATCH_PARTS}", call=call)
    envelope = msgpack.packb([(part.kind, part.call, part.budget_ms, len(part.buffers)) for part in parts])
    frames: list[Buffer] = [KIND_BYTE, pack_header(incarnation, call, None), envelope]
    for part in parts:
        frames.append(part.body)
        frames += part.buffers
    if len(frames) > limits.MAX_BATCH_FRAMES:
        raise LimitExceeded(f"a batch of {len(frames)} frames: at most {limits.MAX_BATCH_FRAMES}", call=call)
    check_sizes(frames, call)
    return frames


def alone(part: Part, *, incarnation: str) -> list[Buffer]:
    """The frames of one part that travels by itself: the message that it is."""
    return [bytes((part.kind,)), pack_header(incarnation, part.call, part.budget_ms), part.body, *part.buffers]


def read(frames: Sequence[Buffer], *, incarnation: str) -> Batch:
    """The batch in `frames`, which begin with `KIND_BYTE` and came over the data lane of `incarnation`.

    Raises one `ProtocolError` when the envelope is not one; a part that is no message is an error in its place.
    """
    if not 3 < len(frames) <= limits.MAX_BATCH_FRAMES:
        raise Malformed(f"a batch has 4..{limits.MAX_BATCH_FRAMES} frames, this one has {len(frames)}")
    for frame in frames:
        if type(frame) is not bytes:
            check_flat(frame)
    _, sender, call, _ = read_header(frames[1])
    if sender != incarnation:
        raise StaleIncarnation(f"a message of incarnation {sender!r} at {incarnation!r}", call=call)
    check_sizes(frames, call)
    heads = _read_envelope(frames[2], len(frames) - 3, call)
    parts: list[Envelope | ProtocolError] = []
    at = 3
    for kind, part_call, budget_ms, buffers in heads:
        parts.append(_part(frames[at : at + 1 + buffers], kind, part_call, budget_ms, sender))
        at += 1 + buffers
    return Batch(call, parts)


def _part(
    frames: Sequence[Buffer], kind: int, call: int, budget_ms: int | None, incarnation: str
) -> Envelope | ProtocolError:
    body, *buffers = frames
    try:
        message_type = _TYPES.get(kind)
        if message_type is None:
            raise UnknownKind(f"kind {kind} does not travel in a batch", call=call)
        if len(body) > limits.MAX_BODY_BYTES:
            raise LimitExceeded(f"a body of {len(body)} bytes: at most {limits.MAX_BODY_BYTES}", call=call)
        return Envelope(incarnation, call, budget_ms, bodies.read(message_type, body, buffers, call))
    except ProtocolError as error:
        return error


def _read_envelope(raw: Buffer, frames: int, call: int) -> list[tuple[int, int, int | None, int]]:
    """The heads of the parts, which share `frames` frames out completely."""
    try:
        heads: Any = msgpack.unpackb(raw, max_array_len=limits.MAX_BATCH_PARTS, max_map_len=0, max_ext_len=0)
    except Exception as error:
        # As with a body: the library has many errors of its own, and each of them ends here.
        raise Malformed(
            f"the envelope of a batch is not an array of at most {limits.MAX_BATCH_PARTS} parts: "
            f"{type(error).__name__}",
            call=call,
        ) from error
    if type(heads) is not list or not heads:
        raise Malformed("the envelope of a batch is an array of parts", call=call)
    before, claimed = call, 0
    for head in heads:
        if type(head) is not list or len(head) != 4:
            raise Malformed("a part of a batch is kind, call, budget and number of buffers", call=call)
        kind, part_call, budget_ms, buffers = head
        if type(kind) is not int or not 0 <= kind <= 255:
            raise Malformed("the kind of a part is an integer 0..255", call=call)
        if type(part_call) is not int or not before < part_call <= limits.MAX_CALL_ID:
            raise Malformed("the calls of a batch rise, from above its own", call=call)
        if budget_ms is not None and (type(budget_ms) is not int or not 0 <= budget_ms <= limits.MAX_BUDGET_MS):
            raise Malformed(f"a budget is nil or an integer 0..{limits.MAX_BUDGET_MS} ms", call=call)
        if type(buffers) is not int or not 0 <= buffers <= limits.MAX_BUFFERS:
            raise Malformed(f"a part has 0..{limits.MAX_BUFFERS} buffers", call=call)
        before = part_call
        claimed += 1 + buffers
    if claimed != frames:
        raise Malformed(f"the parts of a batch claim {claimed} frames, it has {frames}", call=call)
    return heads
