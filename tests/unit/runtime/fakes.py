"""A host that answers when it is told to, and requests that take the documented way in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.runtime.context import ExecutionContext
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.scheduler import SerialScheduler
from frontend.runtime.signals import Signal
from tests.virtual_time import virtual_loop


class FakeHost:
    """Remembers what was sent to it, in order. It is never cooperative about cancellation."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.busy: dict[str, Dispatch[str]] = {}
        self.most_busy = 0

    def start(self, name: str) -> Callable[[Dispatch[str]], None]:
        """A start callable that sends a frame of that name."""

        def send(dispatch: Dispatch[str]) -> None:
            self.sent.append(name)
            self.busy[name] = dispatch
            self.most_busy = max(self.most_busy, len(self.busy))

        return send

    def answer(self, name: str) -> None:
        self.busy.pop(name).complete(f"answer to {name}")

    def fail(self, name: str, error: BaseException) -> None:
        self.busy.pop(name).fail(error)

    def requeue(self, name: str) -> None:
        """It dies and has not taken it."""
        self.busy.pop(name).requeue()


def new_context(
    *permits: Permit, deadline: float | None = None, observer: Callable[[Signal], None] | None = None
) -> ExecutionContext:
    """A context on the virtual clock that retains `permits`."""
    context = ExecutionContext(clock=virtual_loop().time, deadline=deadline, observer=observer)
    for permit in permits:
        context.retain(permit)
    return context


def admitted(admission: BoundedAdmission, cost: int = 0) -> Permit:
    """A permit; a refusal fails the test."""
    verdict = admission.try_admit(cost)
    assert isinstance(verdict, Permit), verdict
    return verdict


async def request(
    scheduler: SerialScheduler,
    host: FakeHost,
    name: str,
    *,
    deadline: float | None = None,
    observer: Callable[[Signal], None] | None = None,
) -> str:
    """One single-unit request as an HTTP adapter makes it: admission, context, guard, deadline, unit."""
    with new_context(deadline=deadline, observer=observer) as context:
        for layer in scheduler.layers:
            context.retain(admitted(layer))
        with context.cancel_on_exit() as guard:
            async with asyncio.timeout_at(deadline):
                answer = await scheduler.run_with_context(context, host.start(name))
            guard.disarm()
            return answer


def spawn(scheduler: SerialScheduler, host: FakeHost, *names: str) -> dict[str, asyncio.Task[str]]:
    """Requests that arrive in this order once the loop turns."""
    return {name: asyncio.create_task(request(scheduler, host, name), name=name) for name in names}
