"""Vectors of texts that were embedded before, within a bound in bytes, least recently used first to go.

What is kept of a text is a digest of its tokens and its vector; never the text.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.float32]

ENTRY_BYTES: Final = 512
"""What an entry takes besides its numbers: key, array and their places in the table (about 270, measured)."""


class EmbeddingCache:
    """Vectors [texts, size] by the tokens of all these texts, in order. One thread."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of everything that is kept; 0 keeps nothing."""
        self.max_bytes: Final = max_bytes
        self._entries: OrderedDict[bytes, Vectors] = OrderedDict()
        self._bytes = self._hits = self._misses = 0

    def __repr__(self) -> str:
        return f"<EmbeddingCache {len(self._entries)} entries, {self._bytes} of {self.max_bytes} bytes>"

    @staticmethod
    def key(rows: Sequence[NDArray[np.int32]]) -> bytes:
        """What these rows of tokens are called here. Where one ends and the next begins is part of it."""
        digest = hashlib.blake2b(np.array([len(row) for row in rows], np.int64).tobytes(), digest_size=32)
        for row in rows:
            digest.update(np.ascontiguousarray(row).data)
        return digest.digest()

    def get(self, key: bytes) -> Vectors | None:
        """The vectors kept under `key`, None when there are none. They are not to be written to."""
        found = self._entries.get(key)
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return found

    def put(self, key: bytes, vectors: Vectors) -> None:
        """Keep `vectors`, unless they alone are beyond the bound, and drop what has to go for them."""
        size = vectors.nbytes + ENTRY_BYTES
        if size > self.max_bytes or key in self._entries:
            return
        self._entries[key] = vectors
        self._bytes += size
        while self._bytes > self.max_bytes:
            _, dropped = self._entries.popitem(last=False)
            self._bytes -= dropped.nbytes + ENTRY_BYTES

    def statistics(self) -> dict[str, Any]:
        """Counts since the start, and what is kept now."""
        return {
            "cache_entries": len(self._entries),
            "cache_bytes": self._bytes,
            "cache_max_bytes": self.max_bytes,
            "cache_hits": self._hits,
            "cache_misses": self._misses,
        }
