"""What a dialect is, and what the answers and errors of all of them keep.

    body ─▶ strict_json ─▶ parse_request ─▶ DecisionRequest ─▶ deployment ─▶ Decision ─▶ render ─▶ 200
                 │               │                                  │
                 └───────────────┴──────────────────────────────────┴─▶ RequestError ─▶ render_error ─▶ its status

A dialect is a module with these four names. It knows bodies and words; ingress, validation before admission, budgets,
deadlines and cancellation are the same for all of them and are not its affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, Protocol

from frontend.errors import Fault, InternalError, InvalidRequest, Misuse, RequestError
from frontend.families.base import Decision
from frontend.limits import DEFAULTS, MAX_MESSAGE_CHARS, RETRY_AFTER_SECONDS, ServerLimits
from frontend.requests.questions import DecisionRequest, printable

Rendered = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body and headers of an error."""

_RETRY_STATUSES: Final = frozenset({429, 503})


class Dialect(Protocol):
    """One way to ask and to be answered."""

    @property
    def NAME(self) -> str:  # noqa: N802  a constant of the module
        """For metrics and logs."""

    def parse_request(self, document: object, limits: ServerLimits = DEFAULTS) -> DecisionRequest:
        """The request in the value of a body that `strict_json.parse` accepted, measured by `limits`.

        Raises `InvalidRequest` with every reason at once, or `UsageError` for what is valid and not possible here.
        """

    def render(self, request: DecisionRequest, model: str, decision: Decision) -> dict[str, Any]:
        """The 200 body. `request` is what this dialect's `parse_request` has returned, `model` the concrete name."""

    def render_error(self, error: RequestError) -> Rendered:
        """An error in the dialect's own shape."""


def retry_after(error: RequestError) -> dict[str, str]:
    """429 and 503 always carry an integer Retry-After within `RETRY_AFTER_SECONDS`; no other status has one, because
    waiting would not help there."""
    if error.status not in _RETRY_STATUSES:
        return {}
    least, most = RETRY_AFTER_SECONDS
    return {"Retry-After": str(min(max(error.retry_after or least, least), most))}


def public(text: str) -> str:
    """`text` as a client is shown it: one line of bounded length. Whatever a message was made from, no control
    character of it gets into a terminal or log."""
    return printable(text, MAX_MESSAGE_CHARS)


def place(fault: Fault) -> str:
    """Where a fault is, as people write it: `questions[0].levels`. Empty for the body as a whole, and for one that is
    no JSON, where it is the number of a character: the message has its line and column."""
    loc = fault.loc
    if fault.type == "json_invalid" and len(loc) == 1 and isinstance(loc[0], int):
        return ""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return public(text)


def sentence(error: RequestError) -> str:
    """The message of an error for dialects that have just one: a validation error begins with its place, and says
    how many more there are."""
    if not isinstance(error, InvalidRequest):
        return public(error.message)
    first = error.faults[0]
    where = place(first)
    text = f"{where}: {first.msg}" if where else first.msg
    more = len(error.faults) - 1
    return public(f"{text} (and {more} more)" if more else text)


def with_extras(body: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with the family's extra fields at its end.

    Their names start with "x_", as the field's suite asks of everything it does not know: another name is a
    `Misuse`. A number in them that is not finite is an `InternalError`.
    """
    for name, value in extras.items():
        if not name.startswith("x_"):
            raise Misuse(f"the extra field {name!r} does not start with x_")
        if not _finite(value):
            raise InternalError(f"the extra field {name!r} has a number that is not finite")
        body[name] = value
    return body


def count(tokens: int) -> int:
    """A token count for `usage`; what is not an integer of at least 0 is a `Misuse`."""
    if type(tokens) is not int or tokens < 0:
        raise Misuse(f"a token count of {tokens!r}")
    return tokens


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, (str, int)):
        return True
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_finite, value))
