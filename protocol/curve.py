"""The keys of sockets that other machines can reach: who we are, and who the other side has to be.

ZeroMQ encrypts and authenticates a tcp connection with CURVE. The side that dials knows the public key of the side
that listens, and proves its own; the side that listens lets in only those on its list. Keys are 40 characters of
Z85. Local sockets need none: their directory is their owner's alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

DOMAIN: Final = b"framehost"
"""A listening socket whose domain is enforced lets no peer in while no authenticator runs."""

HEARTBEATS_PER_LEASE: Final = 3
"""Two may be lost on the way without losing the lease."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """One identity."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """How one socket is secured.

    A connection on which nothing came for `lease_s` seconds, heartbeats included, is closed. Heartbeats are sent and
    answered by the library's own thread, so a process that computes for minutes holds its lease.
    """

    own: KeyPair
    lease_s: float
    server: bytes | None = None
    """The public key of the side that listens; None on that side itself."""

    def options(self) -> Iterator[tuple[str, bytes | int]]:
        """The socket options, by the library's names, to be set before the socket is bound or connected."""
        yield "CURVE_PUBLICKEY", self.own.public
        yield "CURVE_SECRETKEY", self.own.secret
        if self.server is None:
            yield "CURVE_SERVER", 1
            yield "ZAP_DOMAIN", DOMAIN
            yield "ZAP_ENFORCE_DOMAIN", 1
        else:
            yield "CURVE_SERVERKEY", self.server
        yield "HEARTBEAT_IVL", max(1, int(self.lease_s * 1000 / HEARTBEATS_PER_LEASE))
        yield "HEARTBEAT_TIMEOUT", max(1, int(self.lease_s * 1000))
