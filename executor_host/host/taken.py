"""Which units a host has taken: one page of memory that outlives it.

The question it answers, once a host is dead: had it seen the unit that was sent to it? Whatever ends a process, what
it has stored in shared memory stays, so the host stores the number of each unit before it executes anything of it, and
the supervisor, who has made the page, reads it when the process handle says that the process is gone.

    word 0             1: the page is kept; 0 or anything else: it says nothing
    word 1             where the units of peers go that have no place
    place 1 .. 63      64 bytes each: the number of the last unit, 8 bytes; the front's epoch, 40 bytes, zeros behind

A front numbers its units from 1 and sends them over one connection, so the last number stands for all before it. Each
front has a place of its own, because units of a dead one may still come between those of its successor. A number is
one aligned store of eight bytes, and a place has its epoch before its first number: a host that is killed between any
two instructions leaves a page that is true.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

from protocol.limits import MAX_CALL_ID, MAX_INCARNATION_CHARS

PAGE_BYTES: Final = 4096
PLACE_BYTES: Final = 64
WORD_BYTES: Final = 8
PLACES: Final = PAGE_BYTES // PLACE_BYTES - 1
"""Fronts that a page has room for; fronts die rarely. After more of them it says nothing."""

KEPT: Final = 1
FULL: Final = 2
_NO_PLACE: Final = 1
"""The word of the peers that have no place."""


class TakenUnits:
    """The host's side: writes. Main thread only."""

    __slots__ = ("_at", "_page", "_peer", "_places", "_words")

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: of the supervisor's page; it is closed. Raises `OSError` or `ValueError` when it is none."""
        self._page = mmap.mmap(descriptor, PAGE_BYTES)
        os.close(descriptor)
        self._words = memoryview(self._page).cast("Q")
        self._places: dict[bytes, int] = {}
        self._peer = b""
        self._at = _NO_PLACE
        self._words[0] = KEPT

    def note(self, peer: bytes, call: int) -> None:
        """Say that unit `call` of the front whose socket has the identity `peer` is in our hands from now."""
        if peer != self._peer:
            self._at = self._place_of(peer)
            self._peer = peer
        self._words[self._at] = call

    def _place_of(self, peer: bytes) -> int:
        """The word for the numbers of `peer`."""
        at = self._places.get(peer)
        if at is not None:
            return at
        if not peer.isascii() or not 0 < len(peer) <= MAX_INCARNATION_CHARS:
            return _NO_PLACE  # no front has such an epoch
        if len(self._places) == PLACES:
            self._words[0] = FULL
            return _NO_PLACE
        start = PLACE_BYTES * (len(self._places) + 1)
        self._page[start + WORD_BYTES : start + WORD_BYTES + len(peer)] = peer
        at = self._places[peer] = start // WORD_BYTES
        return at


class TakenPage:
    """The supervisor's side: makes the page, and reads it when its host is dead."""

    def __init__(self) -> None:
        """Raises `OSError` when there are no descriptors or no memory."""
        self.descriptor = os.memfd_create("framehost-taken")
        """For the host to inherit."""
        try:
            os.ftruncate(self.descriptor, PAGE_BYTES)
        except BaseException:
            os.close(self.descriptor)
            raise

    def read(self) -> dict[str, int] | None:
        """By the epoch of each front, the number of its last unit that the host took; a front of which it took none is
        not in it. None when the page does not say: the host never got to keeping it, it had too many fronts, or what
        has ended the host has written over the page as well."""
        try:
            page = os.pread(self.descriptor, PAGE_BYTES, 0)
        except OSError:
            return None
        if len(page) != PAGE_BYTES:
            return None
        words = memoryview(page).cast("Q")
        if words[0] != KEPT:
            return None
        taken = {}
        for start in range(PLACE_BYTES, PAGE_BYTES, PLACE_BYTES):
            call = words[start // WORD_BYTES]
            if call:
                epoch = page[start + WORD_BYTES : start + PLACE_BYTES].rstrip(b"\0")
                if call > MAX_CALL_ID or not epoch.isascii() or not 0 < len(epoch) <= MAX_INCARNATION_CHARS:
                    return None
                taken[epoch.decode("ascii")] = call
        return taken

    def close(self) -> None:
        """Give the descriptor back. Once."""
        os.close(self.descriptor)
