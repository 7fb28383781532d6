"""The protocol's error tree, its wire codes and the HTTP status each one hints at.

`ProtocolError` is the only thing decoding can raise, whatever the bytes. The abstract base says
which side is wrong only through its subclasses; the base itself is not raised.

`FAILURES` is the closed list of codes a FAILURE message may carry. `status` is a hint for the HTTP
edge (a host may state a narrower one for bad input); `retire` says that the host ends itself after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final


class ProtocolError(Exception):
    """Base of all protocol errors. `code` is stable on the wire; `call` is the call it concerns, if readable."""

    code: ClassVar[str] = "protocol"

    def __init__(self, message: str, *, call: int = 0) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise one of its subclasses")
        super().__init__(message)
        self.call = call


class Malformed(ProtocolError):
    """The bytes are not a message: wrong frames, wrong types, trailing data, unknown fields, lying lengths."""

    code = "malformed"


class LimitExceeded(ProtocolError):
    """A number of `limits` is exceeded. The message names the limit."""

    code = "limit_exceeded"


class UnknownKind(ProtocolError):
    """A kind byte this version does not have, or one that does not belong on this lane."""

    code = "unknown_kind"


class VersionMismatch(ProtocolError):
    """The peer speaks another protocol version."""

    code = "version_mismatch"


class StaleIncarnation(ProtocolError):
    """The message is for, or from, another incarnation. It is counted and never delivered."""

    code = "stale_incarnation"


class BadTransition(ProtocolError):
    """An event that the state table does not allow in this state: a bug of ours, always loud."""

    code = "bad_transition"


@dataclass(frozen=True, slots=True)
class FailureKind:
    """What one FAILURE code means."""

    code: str
    status: int
    retire: bool
    meaning: str
    error_type: str = "internal_error"
    """The word for programs, which goes with the status."""


_UNAVAILABLE: Final = "service_unavailable"

FAILURES: Final[dict[str, FailureKind]] = {
    kind.code: kind
    for kind in (
        FailureKind("input", 400, False, "the host refused the input; the message says what and where"),
        FailureKind("too_large", 500, False, "the result is above a wire limit"),
        FailureKind("executor_error", 500, False, "the executor raised; the host goes on"),
        FailureKind("non_finite", 500, False, "the result has NaN or infinities"),
        FailureKind(
            "fatal", 503, True, "device error, or any error where the family says so; the host retires", _UNAVAILABLE
        ),
        FailureKind(
            "out_of_memory", 503, False, "the device had no memory left for it; the host goes on", _UNAVAILABLE
        ),
        FailureKind("cancelled", 503, False, "the executor stopped at a cancel", _UNAVAILABLE),
        FailureKind("expired", 504, False, "the budget was spent before the unit had ended", "timeout_error"),
        FailureKind("draining", 503, False, "the host takes no new units", _UNAVAILABLE),
        FailureKind(
            "stale_incarnation", 503, False, "the frame was meant for a predecessor; nothing ran", _UNAVAILABLE
        ),
        FailureKind(
            "lost", 503, False, "a connection broke: the host has neither the unit nor its answer", _UNAVAILABLE
        ),
        FailureKind("protocol", 500, False, "the frame was not a message of this protocol"),
    )
}
