"""Compressed bodies, unpacked here and not by the HTTP library, which takes some that were cut for whole ones."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from frontend.errors import BadEncoding

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError, get_frame_info
else:
    from backports.zstd import ZstdDecompressor, ZstdError, get_frame_info

STEP_BYTES: Final = 1 << 18
"""The most that is unpacked before the caller looks at its limits again, and lets others have the event loop."""

MAX_MEMBERS: Final = 1024
"""Parts that a body may be made of, one behind the other; compressors write one. Each costs, however small it is."""


def _deflate(packed: bytes) -> Any:
    # By the standard it is in a zlib header, which begins so; some clients leave it out.
    return zlib.decompressobj(zlib.MAX_WBITS if packed[0] & 0xF == 8 else -zlib.MAX_WBITS)


class _Frame:
    """A zstd frame, with as many bytes as its head says. The library makes sure of that only when the whole frame is
    there at once: one that ends in an empty block may have fewer, and the network's cuts would decide on the body."""

    MAX_HEAD_BYTES: Final = 18

    def __init__(self) -> None:
        self._frame = ZstdDecompressor()
        self._head = b""
        self._size = 0

    def decompress(self, packed: bytes, most: int) -> bytes:
        """As the library's, whose errors it raises."""
        if len(self._head) < self.MAX_HEAD_BYTES:
            self._head += packed[: self.MAX_HEAD_BYTES - len(self._head)]
        piece: bytes = self._frame.decompress(packed, most)
        self._size += len(piece)
        if self._frame.eof and get_frame_info(self._head).decompressed_size not in (None, self._size):
            raise ZstdError("the frame has another size than its head says")
        return piece

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return bool(self._frame.needs_input)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)


_DECOMPRESSORS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "gzip": lambda packed: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": lambda packed: _Frame(),
}
"""What unpacks a part, made when its first bytes are there."""

NAMES: Final = frozenset(_DECOMPRESSORS)


class Unpacker:
    """Unpacks one body as its bytes come. `feed` each of them, then `end` says whether it was all there."""

    def __init__(self, encoding: str) -> None:
        """`encoding`: gzip, deflate or zstd."""
        self._encoding = encoding
        self._new = _DECOMPRESSORS[encoding]
        self._member: Any = None
        self._members = 0

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """What `packed` becomes, in pieces of at most `STEP_BYTES`. Raises `BadEncoding`."""
        try:
            while packed:
                if self._member is None:
                    self._begin(packed)
                yield from self._unpack(packed)
                if not self._member.eof:
                    return
                packed = self._member.unused_data
                if packed and self._encoding == "deflate":
                    raise BadEncoding("the body could not be read: there is more after its deflate stream")
                self._member = None
        except (zlib.error, ZstdError):
            raise BadEncoding(f"the body could not be read: it is not {self._encoding}") from None

    def _begin(self, packed: bytes) -> None:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise BadEncoding(f"the body could not be read: it has more than {MAX_MEMBERS} {self._encoding} parts")
        self._member = self._new(packed)

    def _unpack(self, packed: bytes) -> Iterator[bytes]:
        member = self._member
        if self._encoding == "zstd":
            yield member.decompress(packed, STEP_BYTES)
            while not (member.eof or member.needs_input):
                yield member.decompress(b"", STEP_BYTES)
            return
        piece = member.decompress(packed, STEP_BYTES)
        yield piece
        # A full piece: there may be more inside of it, also when it wants no more of these bytes.
        while not member.eof and (member.unconsumed_tail or len(piece) == STEP_BYTES):
            piece = member.decompress(member.unconsumed_tail, STEP_BYTES)
            yield piece

    def end(self) -> None:
        """The body has ended. Raises `BadEncoding` when its last part has not."""
        if self._member is not None:
            raise BadEncoding(f"the body could not be read: its {self._encoding} data ends too early")
