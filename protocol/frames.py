"""One message as a list of frames, and back.

    frame   content     bytes       meaning
    -----   ---------   ---------   -------------------------------------------------------------
      0     kind        1           what the body is (`messages.Kind`)
      1     header      6 .. 64     msgpack array of exactly four:
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
    offset  0      frame 2   82 a4 75 6e 69 74 ...                     {"unit": ..., "payload": ...}

`decode` either returns a message or raises one `ProtocolError`, whatever the bytes: libraries fail
in a dozen ways (ValueError, OverflowError, UnicodeDecodeError, RecursionError ...) and all of them
end here. No frame is trusted to be of the size another one says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgpack

from protocol import limits
from protocol.errors import LimitExceeded, Malformed, ProtocolError, StaleIncarnation, UnknownKind, VersionMismatch
from protocol.messages import BY_KIND, Lane, Message
from protocol.tensors import Buffer, Packer, Unpacker


@dataclass(frozen=True, slots=True)
class Envelope:
    """A decoded message with its header."""

    incarnation: str
    call: int
    budget_ms: int | None
    message: Message


def encode(message: Message, *, incarnation: str, call: int = 0, budget_ms: int | None = None) -> list[Buffer]:
    """Frames of one message.

    Raises `ProtocolError` when a field or a size is outside the protocol; nothing is ever sent cut.
    The returned buffers may be views of the caller's read-only arrays: do not change those afterwards.
    """
    message.check()
    if not 1 <= len(incarnation) <= limits.MAX_INCARNATION_CHARS:
        raise LimitExceeded(f"an incarnation has 1..{limits.MAX_INCARNATION_CHARS} characters")
    if not 0 <= call <= limits.MAX_CALL_ID:
        raise LimitExceeded(f"call id {call} is outside 0..{limits.MAX_CALL_ID}")
    if budget_ms is not None:
        budget_ms = min(max(budget_ms, 0), limits.MAX_BUDGET_MS)
    packer = Packer()
    body_map = message.to_body()
    _check_tree(body_map)
    try:
        body = msgpack.packb(body_map, default=packer.default)
        header = msgpack.packb((limits.PROTOCOL_VERSION, incarnation, call, budget_ms))
    except ProtocolError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Malformed(f"the body cannot be packed: {error}", call=call) from error
    if len(body) > limits.MAX_BODY_BYTES:
        raise LimitExceeded(f"a body of {len(body)} bytes: at most {limits.MAX_BODY_BYTES}", call=call)
    frames: list[Buffer] = [message.KIND_BYTE, header, body, *packer.buffers]
    if packer.buffers and sum(len(frame) for frame in frames) > limits.MAX_MESSAGE_BYTES:
        raise LimitExceeded(f"a message has at most {limits.MAX_MESSAGE_BYTES} bytes", call=call)
    return frames


def decode(frames: Sequence[Buffer], *, lane: Lane, incarnation: str | None = None) -> Envelope:
    """The message in `frames`, which arrived on `lane`.

    `incarnation` is the one this socket belongs to; a message of another is `StaleIncarnation`. Every
    error carries the call id once the header could be read, so that a refusal can be addressed.
    """
    if not 3 <= len(frames) <= 3 + limits.MAX_BUFFERS:
        raise Malformed(f"a message has 3..{3 + limits.MAX_BUFFERS} frames, this one has {len(frames)}")
    kind, header, body, *buffers = frames
    if len(kind) != 1:
        raise Malformed(f"the kind is one byte, this one has {len(kind)}")
    version, sender, call, budget = _decode_header(header)
    if version != limits.PROTOCOL_VERSION:
        raise VersionMismatch(f"the peer speaks protocol {version}, we speak {limits.PROTOCOL_VERSION}", call=call)
    message_type = BY_KIND.get(kind[0])
    if message_type is None:
        raise UnknownKind(f"kind {kind[0]} does not exist in protocol {version}", call=call)
    if lane not in message_type.LANES:
        raise UnknownKind(f"{message_type.__name__} does not belong on the {lane.value} lane", call=call)
    if incarnation is not None and sender != incarnation:
        raise StaleIncarnation(f"a message of incarnation {sender!r} at {incarnation!r}", call=call)
    if len(body) > limits.MAX_BODY_BYTES or sum(len(frame) for frame in buffers) > limits.MAX_MESSAGE_BYTES:
        raise LimitExceeded("the message is above the size limits", call=call)
    if any(len(frame) > limits.MAX_BUFFER_BYTES for frame in buffers):
        raise LimitExceeded(f"a buffer has at most {limits.MAX_BUFFER_BYTES} bytes", call=call)
    unpacker = Unpacker(buffers)
    try:
        fields = _unpack(body, unpacker)
        unpacker.finish()
        if type(fields) is not dict:
            raise Malformed("the body is not a map")
        _check_tree(fields)
        message = message_type.from_body(fields)
    except ProtocolError as error:
        error.call = call
        raise
    return Envelope(sender, call, budget, message)


def _decode_header(raw: Buffer) -> tuple[int, str, int, int | None]:
    # 4 bytes per character, and the three integers: longer ones are not ours and are not parsed.
    if len(raw) > 4 * limits.MAX_INCARNATION_CHARS + 32:
        raise Malformed(f"a header of {len(raw)} bytes")
    header = _unpack(raw, Unpacker(()))
    if type(header) is not list or len(header) != 4:
        raise Malformed("the header is an array of four")
    version, incarnation, call, budget = header
    if type(version) is not int or not 0 <= version <= 127:
        raise Malformed("the version is an integer 0..127")
    if type(call) is not int or not 0 <= call <= limits.MAX_CALL_ID:
        raise Malformed("the call id is an integer 0..2^63-1")
    if type(incarnation) is not str or not 1 <= len(incarnation) <= limits.MAX_INCARNATION_CHARS:
        raise Malformed(f"the incarnation is a text of 1..{limits.MAX_INCARNATION_CHARS} characters", call=call)
    if budget is not None and (type(budget) is not int or not 0 <= budget <= limits.MAX_BUDGET_MS):
        raise Malformed(f"the budget is nil or an integer 0..{limits.MAX_BUDGET_MS} ms", call=call)
    return version, incarnation, call, budget


def _unpack(raw: Buffer, unpacker: Unpacker) -> object:
    """One msgpack object that fills `raw` exactly. The only place where the library's errors are met."""
    try:
        return cast(
            object,
            msgpack.unpackb(
                raw,
                raw=False,
                use_list=True,
                strict_map_key=True,
                ext_hook=unpacker.ext_hook,
                object_pairs_hook=_unique_text_keys,
                # Lengths beyond the bytes at hand are lies: the library then allocates nothing.
                max_array_len=min(len(raw), limits.MAX_ITEMS),
                max_map_len=min(len(raw), limits.MAX_ITEMS),
                timestamp=0,
            ),
        )
    except ProtocolError:
        raise
    except RecursionError as error:
        raise LimitExceeded("the body is nested too deep") from error
    except Exception as error:
        # msgpack raises ValueError, TypeError, OverflowError, UnicodeDecodeError and classes of its own.
        raise Malformed(f"not msgpack of this protocol: {type(error).__name__}: {error}"[:300]) from error


def _unique_text_keys(pairs: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Malformed("a map has one key twice")
    for key in result:
        if type(key) is not str:
            raise Malformed("map keys are text")
    return result


def _check_tree(value: object, left: int = limits.MAX_DEPTH) -> None:
    """Refuse bodies that are too deep or too wide, keys that are not text, and leaves we do not have.

    The types of a list are collected in one C-speed pass, because outputs are long lists of numbers.
    """
    if left == 0:
        raise LimitExceeded(f"a body has at most {limits.MAX_DEPTH} levels")
    if type(value) is dict:
        if any(type(key) is not str for key in value):
            raise Malformed("map keys are text")
        items: Collection[object] = value.values()
    else:
        items = cast("list[object]", value)
    if len(items) > limits.MAX_ITEMS:
        raise LimitExceeded(f"a list or map has at most {limits.MAX_ITEMS} items")
    kinds = set(map(type, items))
    if msgpack.Timestamp in kinds:
        raise Malformed("a timestamp is not part of this protocol")
    if not kinds.isdisjoint(_CONTAINERS):
        for item in items:
            if type(item) in _CONTAINERS:
                _check_tree(item, left - 1)


_CONTAINERS = frozenset((dict, list, tuple))
