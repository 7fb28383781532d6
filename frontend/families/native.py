"""What a family says on a listener of its own: the dialect, limits, errors and health of its original server.

    body --prepare--> Prepared --(units to the host, one by one)--> outputs --finish--> the whole response
                                       absorb(each output) ^            any error --refusal--> status and text

A model may have a native listener beside the main port (`[models.NAME.native]`). There the grammar is the
family's alone, and a `NativeProfile` is all that differs: `frontend.serving.pipeline` has the same steps for it as for
the main port, with the same queue, budgets, deadlines and hosts, and refuses in this order:

    media type ─▶ request slot ─▶ body ─▶ ready? (READY_FIRST) ─▶ prepare ─▶ slot refused? ─▶ cost ─▶ host?
       415         (remembered)   413         503                  4xx           503         503      503

A family registers its profile as `protocol.families.Family.native`. One profile lives as long as the processor
it was made from and is shared by all requests, also by those in threads: its methods keep no state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from frontend.errors import HostDied, HostRetires, QueueFull, RequestError, RequestTooLarge, TimedOut, Unavailable
from frontend.families.base import Prepared, Processor
from frontend.limits import RETRY_AFTER_SECONDS

OVERLOADED: Final = "native execution capacity exhausted"
UNAVAILABLE: Final = "model unavailable"
TIMED_OUT: Final = "request timed out"
TIMED_OUT_UPLOADING: Final = "request timed out while uploading"


class NativeRefusal(RequestError):
    """An answer in the family's own words: this status and this text, as they are."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class HostView:
    """What `health` may know of the model's host, all of it cached: no process is asked."""

    ready: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the host reported when it was ready; empty before the first one."""

    statistics: Mapping[str, Any] = field(default_factory=dict)
    """`statistics` of the last output of this host, if its executor reports them; empty before the first one."""


class NativeProfile(ABC):
    """One family's own HTTP dialect. The defaults are what most of the original servers do."""

    MAX_BODY_BYTES: ClassVar[int]
    """One body. Above: 413."""

    PREPARE_WEIGHT: ClassVar[int] = 1
    """As `Processor.PREPARE_WEIGHT`, for parsing and preparing a body together."""

    ERROR_FIELD: ClassVar[str] = "detail"
    """Every error body is an object with this one field: a string, or what `error_body` makes of it."""

    JSON_ONLY: ClassVar[bool] = True
    """Whether another media type than application/json is 415."""

    READY_FIRST: ClassVar[bool] = False
    """Whether a model that is not ready is 503 before its body is looked at. Otherwise the body is checked first,
    and a request that finds the host restarting waits for it as on the main port."""

    TOO_COSTLY: ClassVar[int] = 422
    """Status of a request whose cost is above the model's whole budget, which waiting does not change."""

    FAILED: ClassVar[str] = "model inference failed"
    """Text when the model failed on a request, whether it is still there (500) or not (503)."""

    PREPARATION_FAILED: ClassVar[str] = "request preparation failed"
    """Text of a 500 that is a bug of ours in `prepare`."""

    BODY_TOO_LARGE: ClassVar[str] = "request body too large"
    MEDIA_TYPE: ClassVar[str] = "Content-Type must be application/json"

    def __init__(self, processor: Processor) -> None:
        """`processor`: of the same family; whatever it knows of the checkpoint is used through it."""
        self.processor = processor

    @abstractmethod
    def prepare(self, body: bytes) -> Prepared:
        """The whole request, parsed and ready for the host. Raises `NativeRefusal` for everything wrong with it.

        Without units it is answered by `finish` at once, and no host is asked.
        """

    def absorb(self, prepared: Prepared, index: int, output: object) -> object:
        """As `Processor.absorb`."""
        return output

    @abstractmethod
    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        """The 200 body from one output per unit; every number in it is finite. `seconds`: since `prepare` ended.

        Raises `InternalError` when an output is not an answer.
        """

    @abstractmethod
    def health(self, host: HostView) -> Mapping[str, Any]:
        """The body of GET /health, which is 200 while the host is ready and 503 otherwise. Raises nothing."""

    def refusal(self, error: RequestError) -> tuple[int, str]:
        """Status and text of an error. What the family's server has no word for is said in this server's."""
        if isinstance(error, (NativeRefusal, TimedOut)):
            return error.status, error.message
        if isinstance(error, QueueFull):
            return 503, OVERLOADED
        if isinstance(error, HostRetires) or (isinstance(error, HostDied) and error.dispatched):
            return 503, self.FAILED
        if isinstance(error, Unavailable):
            return 503, UNAVAILABLE
        if isinstance(error, RequestTooLarge):
            return self.TOO_COSTLY, error.message
        if error.status < 500:
            return error.status, error.message
        return 500, self.FAILED

    def error_body(self, text: str) -> dict[str, Any]:
        """The body that says `text`."""
        return {self.ERROR_FIELD: text}

    def render_error(self, error: RequestError) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, body and headers. Every 503 says in whole seconds when to try again."""
        status, text = self.refusal(error)
        headers = {}
        if status == 503:
            least, most = RETRY_AFTER_SECONDS
            headers["Retry-After"] = str(min(max(math.ceil(error.retry_after or least), least), most))
        return status, self.error_body(text), headers
