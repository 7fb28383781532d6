"""Compressed bodies, unpacked here and not by the HTTP library, which takes some that were cut for whole ones."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from frontend.errors import BadEncoding

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

STEP_BYTES: Final = 1 << 18
"""The most that is unpacked before the caller looks at its limits again, and lets others have the event loop."""

MAX_MEMBERS: Final = 1024
"""Parts that a body may be made of, one behind the other; compressors write one. Each costs, however small it is."""


def _deflate(packed: bytes) -> Any:
    # By the standard it is in a zlib header, which begins so; some clients leave it out.
    return zlib.decompressobj(zlib.MAX_WBITS if packed[0] & 0xF == 8 else -zlib.MAX_WBITS)


_DECOMPRESSORS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "gzip": lambda packed: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": lambda packed: ZstdDecompressor(),
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
