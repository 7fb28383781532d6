"""Offers to change the protocol (`Upgrade:`), taken out of request heads before the HTTP library reads them.

Java's client makes one with every first request of a connection. A server that does not take it ignores it (RFC 9110,
7.8), and the library means to; but its parser stops behind the request that made the offer and drops what came with it
in the same packet, so the next request was never answered. Without the offer it has nothing to stop at. There is no
protocol here that we would change to.
"""

from __future__ import annotations

import re
from typing import Final

_OFFER: Final = re.compile(rb"(?<=\n)u(pgrade[ \t]*:)", re.IGNORECASE)
_BEGUN: Final = re.compile(rb"(?:\r\n)?\r(\n(u(p(g(r(a(d(e[ \t]*)?)?)?)?)?)?)?)?\Z", re.IGNORECASE)
"""The end of a piece of a head in which an offer may have begun. A head that is whole never ends like this."""

_WITHDRAWN: Final = rb"x\1"
"""A field that means nothing, of the same length."""

END: Final = b"\r\n\r\n"


class Offers:
    """Those of one connection. It is given the bytes of heads, and of what follows a head in the same packet."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""
        """The last few bytes of a head that is not whole yet; the rest of it decides what they are."""

    def possible(self, data: bytes) -> bool:
        """Whether the head at the beginning of `data` could make an offer, as far as can be said at little cost."""
        return bool(data) and (bool(self._held) or b"grade" in data or b"GRADE" in data or END not in data)

    def withdraw(self, data: bytes) -> tuple[bytes, bytes]:
        """The head at the beginning of `data`, or the piece of it that is there, without an offer; and what follows it.

        Bytes that could be the beginning of an offer are held back until the next ones are there.
        """
        if self._held:
            data, self._held = self._held + data, b""
        end = data.find(END)
        if end >= 0:
            end += len(END)
            head, rest = data[:end], data[end:]
        else:
            head, rest = data, b""
            if begun := _BEGUN.search(head):
                head, self._held = head[: begun.start()], head[begun.start() :]
        if b"grade" in head or b"GRADE" in head:
            head = _OFFER.sub(_WITHDRAWN, head)
        return head, rest
