"""Every error of an executor, on one screen: what the host's main loop reports and does about each.

`failure` is the code of the FAILURE message (`protocol.errors.FAILURES`). The text is public: it is shown
to the client, so it says what is wrong and never repeats a state.

    HostError
      InputRefused         the input cannot be served           FAILURE, the host goes on
      ExecutionFailed      this call failed                     FAILURE, the host goes on
        NonFinite          its result has NaN or infinities     FAILURE, the host goes on
      Abandoned            cancelled, or its time is over       FAILURE `cancelled` or `expired`, the host goes on
      ConfigurationError   checkpoint or configuration wrong    the host exits and is not restarted
      FatalExecutionError  the device is not to be trusted      FAILURE with `fatal`, the host retires
        DeviceMemory       no memory left on the device         FAILURE `out_of_memory`, the host frees what it can and
                                                                goes on; `fatal` the second time in a row
      DialInFailed         there is no place for this host      the host exits; who started it may start it again
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class HostError(Exception):
    """Base of everything an executor raises on purpose."""

    failure: ClassVar[str] = "executor_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InputRefused(HostError):
    """Bad input that only the host can see. Never a 5xx, never fatal."""

    failure = "input"

    def __init__(self, status: int, code: str, where: Sequence[str | int], message: str) -> None:
        """`status`: HTTP, 4xx. `code`: the word for programs, as `max_tokens_exceeded`. `where`: the place in
        the payload's document, questions by their index."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.where = tuple(where)


class ExecutionFailed(HostError):
    """The executor could not answer this call, and can answer the next."""


class NonFinite(ExecutionFailed):
    """The model's numbers are not numbers."""

    failure = "non_finite"


class Abandoned(HostError):
    """The call was cancelled, or its time ran out, while it was executing; the main loop looks which it was."""

    failure = "cancelled"


class ConfigurationError(HostError):
    """Starting again would fail again: a missing or altered file, a wrong version, an unknown option."""


class FatalExecutionError(HostError):
    """The device failed; this process must not serve another call."""

    failure = "fatal"


class DeviceMemory(FatalExecutionError):
    """The device had no memory left for this call. It is whole otherwise: what is freed can be used again."""


class DialInFailed(HostError):
    """No server was found, or it sent this host away. The message says why, or what to look at."""
