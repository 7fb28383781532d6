"""What a failure that a host reports means for the request."""

from __future__ import annotations

from frontend.errors import (
    DeadlineExceeded,
    HostDied,
    HostRetires,
    InternalError,
    InvalidRequest,
    RequestError,
    Unavailable,
)
from protocol.errors import FAILURES
from protocol.messages import Failure

REFUSALS = frozenset({400, 413, 422})
"""What a host may choose from for an input that it refuses; another status is taken for 400."""


class HostFailure(RequestError):
    """Input that only the host could see is bad, with the status (of `REFUSALS`) and the word it chose."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = failure.status if failure.status in REFUSALS else 400  # type: ignore[misc]
        self.error_type = failure.error_type  # type: ignore[misc]
        self.where = tuple(failure.where)


def reported(failure: Failure) -> Exception:
    """The error of the request. Of a host that ends with it, trying again is no use where the model failed on this very
    request: it would end the next one.

    Its status is a hint between the two processes: a client gets only those that it has been told of.
    """
    if failure.fatal:
        if FAILURES[failure.code].status == HostRetires.status:
            return HostRetires(failure.message)
        return HostDied(failure.message, dispatched=failure.dispatched, retry_after=1)
    if failure.code == "input":
        if failure.status == InvalidRequest.status:
            # A body that fails validation has one shape in each dialect, wherever it was found.
            return InvalidRequest.at(tuple(failure.where), failure.message, failure.error_type)
        return HostFailure(failure)
    if failure.code == "expired":
        return DeadlineExceeded(failure.message)
    if FAILURES[failure.code].status == 503:
        return Unavailable(failure.message, retry_after=1)
    return InternalError(failure.message)
