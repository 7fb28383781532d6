"""What a full budget means to a client."""

from __future__ import annotations

from frontend.errors import QueueFull, RequestError, RequestTooLarge
from frontend.runtime.admission import BoundedAdmission, Permit, Refusal


def permit(layer: BoundedAdmission, cost: int, *, counted: bool = True) -> Permit:
    """A permit of `layer`. `counted`: as of `try_admit`.

    Raises `QueueFull`, or `RequestTooLarge` when waiting would not help.
    """
    verdict = layer.try_admit(cost, counted=counted)
    if isinstance(verdict, Refusal):
        raise refused(verdict)
    return verdict


def refused(refusal: Refusal) -> RequestError:
    """The client's answer to a refusal: which budget, what was asked, what is in use, what the bound is."""
    text = (
        f"the budget {refusal.admission!r} refused this request: {refusal.limit} requested {refusal.requested}, "
        f"in use {refusal.used}, limit {refusal.bound}"
    )
    if refusal.permanent:
        return RequestTooLarge(text)
    return QueueFull(text, retry_after=1)
