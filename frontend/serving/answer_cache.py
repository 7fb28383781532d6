"""What the host has answered, by the digest of what it was asked: least recently used out first, bounded by bytes.

    digest ─▶ outputs      a request that is asked again is validated, admitted and finished as ever; only the
                           executor is not asked

Off unless a model has `answer_cache_mb`. It belongs to one deployment and holds answers of one identity of weights.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ENTRY_BYTES: Final = 512
"""Counted for each entry beside its values: the digest, the entry, and the objects around its outputs (measured: some
400)."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """`entries` and `size` (bytes) are now, the rest only grows."""

    entries: int
    size: int
    limit: int
    hits: int
    misses: int
    evicted: int


class AnswerCache:
    """Used from the event loop's thread only. What it returns is shared: it is read, never written."""

    __slots__ = ("_entries", "_evicted", "_hits", "_limit", "_misses", "_size")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes; 0 keeps nothing."""
        self._limit = limit
        self._entries: OrderedDict[bytes, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._size = self._hits = self._misses = self._evicted = 0

    @property
    def on(self) -> bool:
        """Whether it keeps anything."""
        return self._limit > 0

    def get(self, digest: bytes) -> Mapping[str, Any] | None:
        """What was answered before, None when it is not known any more. Counted."""
        entry = self._entries.get(digest)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(digest)
        return entry[0]

    def put(self, digest: bytes, outputs: Mapping[str, Any]) -> None:
        """Keep an answer. One above the whole limit is not kept."""
        size = ENTRY_BYTES + held_bytes(outputs)
        if size > self._limit or digest in self._entries:
            return
        self._entries[digest] = outputs, size
        self._size += size
        while self._size > self._limit:
            _, (_, freed) = self._entries.popitem(last=False)
            self._size -= freed
            self._evicted += 1

    def clear(self) -> None:
        """The weights are others."""
        self._entries.clear()
        self._size = 0

    def statistics(self) -> CacheStatistics:
        """Counts, for metrics, status and tests."""
        return CacheStatistics(len(self._entries), self._size, self._limit, self._hits, self._misses, self._evicted)

    def __repr__(self) -> str:
        return f"<AnswerCache {len(self._entries)} entries {self._size}/{self._limit} bytes>"


def held_bytes(value: object) -> int:
    """About how many bytes a decoded output holds in memory. An array that is a view counts what it views at least."""
    if isinstance(value, Mapping):
        return sys.getsizeof(value) + sum(held_bytes(key) + held_bytes(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return sys.getsizeof(value) + sum(map(held_bytes, value))
    array = getattr(value, "nbytes", None)
    return sys.getsizeof(value) + (array if isinstance(array, int) else 0)
