"""Every rule about waiting: what a request waits for before it is queued, and what it does not wait for.

    waits for                 while                                      ends with
    -----------------------   ----------------------------------------   ----------------------------------------
    the end of a swap         its name is held                           the name goes on, or the server stops: 503
    a processor of its model  its files are being read                   it is made, or cannot be: 503
    a host of its model       the model is absent or has never been up   a host is there, or none will come: 503,
                                                                         or the name means another one: `Moved`
    a host that comes back    it is expected within RESTART_WAIT_S and   (in the queue of a replica)
                              within the request's own time
    nothing                   the port speaks for a server that never    not ready: 503 at once
                              waited (`refuse_unless_ready`)

Who waits holds its request slot and nothing of the host. Its own deadline ends every wait.
"""

from __future__ import annotations

import asyncio
from typing import Final

from frontend import limits
from frontend.errors import Unavailable
from frontend.families.base import Prepared
from frontend.observation.record import RequestRecord
from frontend.runtime.context import ExecutionContext
from frontend.serving import intake
from frontend.serving.deployment import Deployment
from frontend.serving.replica import Availability
from protocol.states import Role

_READY: Final = Availability.READY  # see `frontend.runtime.admission`

STOPPING_RETRY_S: Final = limits.RETRY_AFTER_SECONDS[1]
"""A server that stops is not back before that."""


class Moved(Exception):
    """The name means another deployment now, and nothing was prepared for this one: look again, and ask that."""


async def for_the_swap(deployment: Deployment, context: ExecutionContext, record: RequestRecord) -> None:
    """Wait until the held `deployment` is something else to its name, with a slot of it.

    Raises `QueueFull` when it has no slot left, and `Unavailable` when the server stops, which gives the swap up.
    Cancelled, it leaves nothing behind but the slot, which `context` gives back, and what it waited for in `record`.
    """
    intake.take_slot(deployment, context, record)
    if deployment.stopping:
        raise Unavailable("the server is stopping, and the swap is given up", retry_after=STOPPING_RETRY_S)
    record.waits_for = f"the end of the swap of {deployment.name!r}"
    with record.waiting_for_host():
        await deployment.moved()
    record.waits_for = ""


async def for_a_processor(deployment: Deployment, context: ExecutionContext, record: RequestRecord) -> None:
    """Wait until there is something that can prepare for `deployment`, inside `deployment.in_use`.

    Raises `Unavailable` when there is nothing and will not be; `Moved` when the name means another deployment.
    """
    with record.waiting_for_host():
        while not deployment.prepares:
            if deployment.role is not Role.CURRENT:
                raise Moved
            if deployment.stopping and not deployment.greeting:
                raise Unavailable("the server is stopping and loads no models", retry_after=STOPPING_RETRY_S)
            if deployment.hopeless:
                _ = deployment.processor  # says why
            await deployment.moved()


async def for_a_host(
    deployment: Deployment, prepared: Prepared, context: ExecutionContext, record: RequestRecord
) -> None:
    """Wait until there is a host that requests can be prepared for; the front has one started meanwhile.

    The request was found valid, as `prepared` shows, and is inside `deployment.in_use`. Raises what admission would
    refuse it with: nothing is loaded for that. Raises `Unavailable` when no host will come, or none has come in the
    request's time, or the server stops; `Moved` when the name means another deployment, or is about to.
    """
    intake.would_admit(deployment, prepared, record)
    try:
        with deployment.awaiting_host, record.waiting_for_host():
            while deployment.cold:
                if deployment.role is not Role.CURRENT:
                    raise Moved
                if deployment.stopping:
                    raise Unavailable("the server is stopping and loads no models", retry_after=STOPPING_RETRY_S)
                if deployment.refusal:
                    raise Unavailable(
                        f"model {deployment.name!r} cannot be loaded: {deployment.refusal}",
                        retry_after=limits.RETRY_AFTER_SECONDS[1],
                    )
                if deployment.present and deployment.availability in (Availability.FAILED, Availability.RESTARTING):
                    refuse_unless_expected(deployment, context)
                await deployment.moved()
    except asyncio.CancelledError:
        remaining = None if context.closed else context.remaining()
        if remaining is not None and remaining <= limits.TIMER_SLACK_S:
            # Its time is over. There was never a host to run out of time on.
            text = f"model {deployment.name!r} could not be loaded within the request's time: it is "
            raise Unavailable(f"{text}{deployment.availability.value}", retry_after=deployment.retry_after()) from None
        raise


def refuse_unless_expected(deployment: Deployment, context: ExecutionContext) -> None:
    """Raise `Unavailable` when there is no host and none is expected soon enough for this request."""
    if deployment.availability is _READY:
        return
    wait = deployment.back_in_s()
    remaining = context.remaining()
    patience = limits.RESTART_WAIT_S if remaining is None else min(limits.RESTART_WAIT_S, remaining)
    # Late by as much as we would have waited for it: it is not known when it comes, if it does.
    late = -wait > limits.RESTART_WAIT_S
    if wait > patience or late or not deployment.expected:
        raise Unavailable(
            f"{deployment.unavailable_text()}: the request was not started", retry_after=deployment.retry_after()
        )


def refuse_unless_ready(deployment: Deployment) -> None:
    """Raise `Unavailable` unless a warm host is there, for ports that do not wait for one to come back.

    One that a new front has only to say hello to is there: no client is to notice that the front is new. A model that
    is absent is loaded for every client, at every port.
    """
    if deployment.availability is not _READY and not deployment.greeting and not deployment.on_demand:
        raise Unavailable(deployment.unavailable_text(), retry_after=deployment.retry_after())
