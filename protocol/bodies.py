"""The body of one message and its buffers: packed, and read.

A body is a msgpack map that fills its frame exactly. It is read in one pass of the library's own code, whose hooks see
each map and, where there could be too many, each list: what is above a limit ends the pass before the rest of it is
made into objects. How many bytes a body has bounds what it can hold, so nothing is counted in the small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgpack

from protocol import limits
from protocol.errors import LimitExceeded, Malformed, ProtocolError
from protocol.messages import Message
from protocol.tensors import NO_BUFFERS, Buffer, Packer, Unpacker
from protocol.trees import check_count

M = TypeVar("M", bound=Message)

_Packer: Final = msgpack.Packer
_unpack: Final = msgpack.unpackb
_NO_BUFFERS: Final = NO_BUFFERS.ext_hook

_FIRST_ALLOCATION: Final = 1024
"""Bytes. Most bodies are smaller; a larger one grows the packer's buffer, which ends with the message."""


def pack(message: Message, call: int) -> tuple[bytes, list[Buffer]]:
    """The body of `message` and its buffers. Raises `ProtocolError` of `call` when it does not fit the protocol."""
    collected = Packer()
    try:
        fields = message.to_body()
        body: bytes = _Packer(default=collected.default, buf_size=_FIRST_ALLOCATION).pack(fields)
        if len(body) > limits.MAX_CONTAINERS:
            check_count(fields)
    except ProtocolError as error:
        error.call = call
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise Malformed(f"the body cannot be packed: {error}", call=call) from error
    if len(body) > limits.MAX_BODY_BYTES:
        raise LimitExceeded(f"a body of {len(body)} bytes: at most {limits.MAX_BODY_BYTES}", call=call)
    return body, collected.buffers


def read(message_type: type[M], body: Buffer, buffers: Sequence[Buffer], call: int) -> M:
    """The message in `body`, whose sizes were looked at. Raises `ProtocolError` of `call` when it is none."""
    try:
        if not buffers:
            return message_type.from_body(_unpack_map(body, _NO_BUFFERS))
        unpacker = Unpacker(buffers)
        message = message_type.from_body(_unpack_map(body, unpacker.ext_hook))
        unpacker.finish()
    except ProtocolError as error:
        error.call = call
        raise
    return message


class _Counter:
    """Counts what one body holds, while it is read."""

    __slots__ = ("containers", "items")

    def __init__(self) -> None:
        self.containers = self.items = 0

    def list(self, values: list[Any]) -> list[Any]:
        self._add(len(values))
        return values

    def map(self, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        self._add(len(pairs))
        return _unique_keys(pairs)

    def _add(self, items: int) -> None:
        self.containers += 1
        self.items += items
        if self.containers > limits.MAX_CONTAINERS:
            raise LimitExceeded(f"a body has at most {limits.MAX_CONTAINERS} lists and maps")
        if self.items > limits.MAX_ITEMS_IN_ALL:
            raise LimitExceeded(f"the lists and maps of a body have at most {limits.MAX_ITEMS_IN_ALL} items in all")


def _unpack_map(raw: Buffer, ext_hook: Callable[[int, bytes], object]) -> dict[Any, Any]:
    """One msgpack map that fills `raw` exactly, its content not yet checked.

    Text is UTF-8, maps have no key twice, and map keys are text or bytes (`check_tree` ends the latter).
    """
    # A length beyond the bytes at hand is a lie: the library then allocates nothing.
    most = len(raw)
    if most > limits.MAX_ITEMS:
        most = limits.MAX_ITEMS
    list_hook, pairs_hook = None, _unique_keys
    if len(raw) > limits.MAX_CONTAINERS:
        # Each list and each item takes a byte at least, so a smaller body cannot hold too many.
        counter = _Counter()
        list_hook, pairs_hook = counter.list, counter.map
    try:
        body = _unpack(
            raw,
            ext_hook=ext_hook,
            list_hook=list_hook,
            object_pairs_hook=pairs_hook,
            max_array_len=most,
            max_map_len=most,
        )
    except ProtocolError:
        raise
    except (msgpack.StackError, RecursionError) as error:
        raise LimitExceeded(f"a body has at most {limits.MAX_DEPTH} levels") from error
    except Exception as error:
        # msgpack raises ValueError, TypeError, OverflowError, UnicodeDecodeError and classes of its own.
        if len(raw) > limits.MAX_ITEMS and ("max_array_len" in str(error) or "max_map_len" in str(error)):
            raise LimitExceeded(f"a list or map has at most {limits.MAX_ITEMS} items") from error
        raise Malformed(f"not msgpack of this protocol: {type(error).__name__}: {error}"[:300]) from error
    if type(body) is not dict:
        raise Malformed("the body is not a map")
    return body


def _unique_keys(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Malformed("a map has one key twice")
    return result
