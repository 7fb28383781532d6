"""Arrays and blobs inside a msgpack body, small ones inline and large ones as frames of their own.

    ext 1   array, out of band    [index, dtype, shape]          bytes are buffer `index`
    ext 2   array, inline         [dtype, shape, bytes]
    ext 3   blob,  out of band    [index]                        bytes are buffer `index`

Decoding makes *views*: an out-of-band array shares its memory with the received frame and is
read-only, as that frame is. Nothing here is ever pickled, and only the listed dtypes exist.
numpy is imported when the first array passes, so a process that moves only text never loads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgpack

from protocol import limits
from protocol.errors import LimitExceeded, Malformed
from protocol.fields import describe

if TYPE_CHECKING:
    import numpy as np

EXT_ARRAY: Final = 1
EXT_INLINE_ARRAY: Final = 2
EXT_BLOB: Final = 3

DTYPES: Final[dict[str, int]] = {
    "<f8": 8, "<f4": 4, "<f2": 2,
    "<i8": 8, "<i4": 4, "<i2": 2, "|i1": 1,
    "<u8": 8, "<u4": 4, "<u2": 2, "|u1": 1,
    "|b1": 1,
}  # fmt: skip
"""Allowed dtypes and their item sizes in bytes. Little-endian only; bfloat16 travels widened to <f4."""

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that may leave the body: encoded inline below the threshold, as a frame above it.

    A blob decodes to `bytes` when it was inline and to a `memoryview` of the frame when it was not.
    """

    data: Buffer


class Packer:
    """Collects the out-of-band buffers of one message while its body is packed."""

    __slots__ = ("buffers",)

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def default(self, value: object) -> object:
        """The hook msgpack calls for what it cannot pack itself."""
        if type(value) is Blob:
            return self._blob(value.data)
        if type(value).__module__ == "numpy":
            return self._array(value)
        if isinstance(value, int):
            raise LimitExceeded(f"an integer is outside {limits.INT_MIN}..{limits.INT_MAX}")
        raise Malformed(f"a message cannot carry a {type(value).__name__}")

    def _blob(self, data: object) -> object:
        if type(data) is not bytes:
            view = memoryview(data)  # type: ignore[arg-type] # not a buffer: TypeError, which the caller maps
            # The frame must not change while the socket still sends it, so writable bytes are copied once.
            flat = view.readonly and view.c_contiguous and view.nbytes
            data = view.cast("B") if flat else view.tobytes()
        if len(data) < limits.OUT_OF_BAND_BYTES:
            return bytes(data)
        return msgpack.ExtType(EXT_BLOB, msgpack.packb([self._append(data)]))

    def _array(self, value: Any) -> msgpack.ExtType:
        import numpy as np

        if not isinstance(value, np.ndarray):
            raise Malformed(f"a message cannot carry a numpy {type(value).__name__}: convert it to a Python number")
        dtype = value.dtype.newbyteorder("<") if value.dtype.byteorder in "=<>" else value.dtype
        if dtype.str not in DTYPES:
            raise Malformed(f"dtype {value.dtype} does not travel")
        shape = list(value.shape)
        _check_shape(shape)
        if value.nbytes < limits.OUT_OF_BAND_BYTES:
            raw = value.astype(dtype, copy=False).tobytes()
            return msgpack.ExtType(EXT_INLINE_ARRAY, msgpack.packb([dtype.str, shape, raw]))
        # Copied for the same reason as a blob, and where its bytes are not the ones that travel.
        as_it_is = value.dtype == dtype and value.flags.c_contiguous and not value.flags.writeable
        data: Buffer = value.data.cast("B") if as_it_is else value.astype(dtype, copy=False).tobytes()
        return msgpack.ExtType(EXT_ARRAY, msgpack.packb([self._append(data), dtype.str, shape]))

    def _append(self, data: Buffer) -> int:
        if len(self.buffers) >= limits.MAX_BUFFERS:
            raise LimitExceeded(f"more than {limits.MAX_BUFFERS} buffers in one message")
        if len(data) > limits.MAX_BUFFER_BYTES:
            raise LimitExceeded(f"a buffer of {len(data)} bytes: at most {limits.MAX_BUFFER_BYTES}")
        self.buffers.append(data)
        return len(self.buffers) - 1


class Unpacker:
    """Resolves the references of one body; every buffer must be referenced exactly once."""

    __slots__ = ("_buffers", "_used")

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._used = bytearray(len(buffers))

    def ext_hook(self, code: int, data: bytes) -> object:
        """The hook msgpack calls for extension types; unlisted codes are refused."""
        if code == EXT_ARRAY:
            index, dtype, shape = _fields(data, 3)
            return _view(self._take(index), dtype, shape)
        if code == EXT_INLINE_ARRAY:
            dtype, shape, raw = _fields(data, 3)
            if type(raw) is not bytes:
                raise Malformed("an inline array without bytes")
            return _view(raw, dtype, shape)
        if code == EXT_BLOB:
            (index,) = _fields(data, 1)
            return memoryview(self._take(index)).toreadonly()
        raise Malformed(f"extension code {code} is not part of this protocol")

    def _take(self, index: object) -> Buffer:
        if type(index) is not int or not 0 <= index < len(self._buffers):
            raise Malformed(f"buffer {describe(index)} is referenced, the message has {len(self._buffers)}")
        if self._used[index]:
            raise Malformed(f"buffer {index} is referenced twice")
        self._used[index] = 1
        return self._buffers[index]

    def finish(self) -> None:
        """Raise if a buffer came that nothing refers to."""
        if not all(self._used):
            raise Malformed("the message carries a buffer that nothing refers to")


NO_BUFFERS: Final = Unpacker(())
"""For the many messages without buffers. It has nothing to mark as used, so all of them can share it."""


def _fields(data: bytes, count: int) -> list[Any]:
    value = msgpack.unpackb(data, ext_hook=_no_ext, strict_map_key=True)
    if type(value) is not list or len(value) != count:
        raise Malformed(f"an array reference needs {count} fields")
    return value


def _no_ext(code: int, data: bytes) -> object:
    raise Malformed("an extension inside an extension")


def _view(raw: Buffer, dtype: object, shape: object) -> np.ndarray[Any, Any]:
    if type(dtype) is not str or dtype not in DTYPES:
        raise Malformed(f"a dtype is one of {', '.join(DTYPES)}")
    if type(shape) is not list or not all(type(side) is int and side >= 0 for side in shape):
        raise Malformed("an array shape is a list of sizes")
    _check_shape(shape)
    if math.prod(shape) * DTYPES[dtype] != len(raw):
        raise Malformed(f"an array of shape {shape} and dtype {dtype} does not have {len(raw)} bytes")
    import numpy as np

    array: np.ndarray[Any, Any] = np.frombuffer(raw, dtype=dtype).reshape(shape)
    if dtype == "|b1" and array.view("|u1").max(initial=0) > 1:
        raise Malformed("a boolean is the byte 0 or 1")
    array.flags.writeable = False
    return array


def _check_shape(shape: list[int]) -> None:
    if len(shape) > limits.MAX_ARRAY_DIMENSIONS:
        raise LimitExceeded(f"an array of {len(shape)} dimensions: at most {limits.MAX_ARRAY_DIMENSIONS}")
    if any(side > limits.MAX_BUFFER_BYTES for side in shape):
        raise LimitExceeded(f"an array side is at most {limits.MAX_BUFFER_BYTES}, empty arrays included")
