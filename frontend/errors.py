"""Every error of the frontend, on one screen.

Three branches, for three readers:

* `Misuse`: a programming error of ours. It is never caught, and a test fails on it.
* `ExecutionStopped`: the request ended before its work did (deadline, cancellation).
  The HTTP adapter turns it into a status; the runtime never does.
* `RequestError`: an answer to the client. The status and the wire word are class
  attributes, handlers raise and never build error responses by hand, and the public
  message is the whole of what the client is shown.

Statuses follow the System One conventions: 422 for a body that fails validation, 400 for
one that is understood and cannot be served, 413 for one that can never fit, 429 for a
budget in use, 503 for "cannot take work now", 504 for "ran out of time". Bad input never
gets a 5xx, because the clients of the field retry those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class FrontendError(Exception):
    """Base of everything this package raises on purpose."""


class Misuse(FrontendError):
    """The caller broke the contract of an object: double release, foreign token, second end."""


class ExecutionStopped(FrontendError):
    """`ExecutionContext.check()` found that no client waits for this work any more."""


class DeadlineExceeded(ExecutionStopped):
    """The request's absolute deadline has passed."""


class Cancelled(ExecutionStopped):
    """The awaiting caller is gone (client left, or its task was cancelled)."""


class RequestError(FrontendError):
    """An error the client is shown: a status, a word for programs, a sentence for people."""

    status: ClassVar[int] = 500
    error_type: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        """Whole seconds for the Retry-After header, or None for no header."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a body: where it is, what it is, and a stable word for its kind."""

    loc: tuple[str | int, ...]
    msg: str
    type: str


class InvalidRequest(RequestError):
    """The body fails validation. `faults` is never empty and each names its place."""

    status = 422
    error_type = "invalid_request"

    def __init__(self, faults: Sequence[Fault]) -> None:
        if not faults:
            raise Misuse("an InvalidRequest needs at least one fault")
        super().__init__(faults[0].msg)
        self.faults = tuple(faults)

    @classmethod
    def at(cls, loc: Sequence[str | int], msg: str, kind: str) -> InvalidRequest:
        """One fault at `loc`, which is relative to the body (the leading "body" is added when rendering)."""
        return cls([Fault(tuple(loc), msg, kind)])


class Poisoned(InvalidRequest):
    """This very request has ended host after host: it is not executed for a while."""

    error_type = "poisoned"

    def __init__(self, message: str) -> None:
        super().__init__([Fault((), message, self.error_type)])


class UsageError(RequestError):
    """The request is well formed and asks for something this server does not have."""

    status = 400
    error_type = "api_usage_error"


class UnknownModel(UsageError):
    """There is no model of the name that was asked for. Some dialects have a status of their own for it."""


class TokensExceeded(RequestError):
    """A text is longer than the model reads, and truncation is off."""

    status = 400
    error_type = "max_tokens_exceeded"


class Unauthenticated(RequestError):
    """Keys are needed here, and the request has none that is valid. Told before its body is read."""

    status = 401
    error_type = "authentication_error"


class KeyMissing(Unauthenticated):
    """The request has no key at all."""


class Forbidden(RequestError):
    """The request's key is valid, and not for this."""

    status = 403
    error_type = "permission_error"


class UnsupportedEncoding(RequestError):
    """The body is compressed with something we do not read."""

    status = 415
    error_type = "api_usage_error"


class UnsupportedMediaType(RequestError):
    """The body is of a media type that this route does not take, whatever is in it."""

    status = 415
    error_type = "api_usage_error"


class BadEncoding(RequestError):
    """The body says it is compressed and does not decompress, or ends too early."""

    status = 400
    error_type = "api_usage_error"


class UploadTimeout(RequestError):
    """No byte of the body arrived for the allowed time."""

    status = 408
    error_type = "request_timeout"


class RequestTooLarge(RequestError):
    """The body or its cost is above a limit that waiting does not change: no Retry-After."""

    status = 413
    error_type = "request_too_large"


class QueueFull(RequestError):
    """A budget is in use. Always carries Retry-After."""

    status = 429
    error_type = "rate_limit_error"


class InternalError(RequestError):
    """The executor failed, or returned something that is not an answer."""

    status = 500
    error_type = "internal_error"


class HostRetires(InternalError):
    """The executor failed on this request, and its host is replaced: trying again would end the next one."""


class Unavailable(RequestError):
    """Loading, restarting, draining or dead. Always carries Retry-After."""

    status = 503
    error_type = "service_unavailable"


class HostDied(Unavailable):
    """The executor host died or retired. `dispatched` says whether the unit had been sent to it, and the message
    says it too: who asks again wants to know whether the first time may have had an effect."""

    running: ClassVar[str] = "was being executed when its host died or was stopped; it is not sent again"
    """What became of a unit that had been sent."""

    def __init__(self, message: str, *, dispatched: bool, retry_after: int) -> None:
        fate = self.running if dispatched else "was waiting; what was left of it was not started"
        super().__init__(f"{message}: the request {fate}", retry_after=retry_after)
        self.dispatched = dispatched
        self.in_company = False
        """Whether it was one of several that were being executed: which of them has ended the host is not known."""


class HostLost(HostDied):
    """The connection to a host on another machine is gone. It is the same to the client, who must not be told
    that the work has ended: it may still be going on there."""

    running = "was being executed when the connection to its host was lost, and may still be; it is not sent again"


class HostDiedAgain(HostDied):
    """Host after host died before it had taken the unit. That is hardly chance: receiving it may be what ends them."""

    running = "was on its way when its host died, and not for the first time; it is not sent again"


class TimedOut(RequestError):
    """The request ran out of its own time budget: upload, queue and execution together."""

    status = 504
    error_type = "timeout_error"
