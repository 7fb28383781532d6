"""ExecutionContext: one deadline, one cancellation, permits that go back with the last owner."""

from __future__ import annotations

import asyncio
import math

import pytest

from frontend.errors import Cancelled, DeadlineExceeded, Misuse
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.context import ExecutionContext
from tests.unit.runtime.fakes import admitted
from tests.virtual_time import settle, virtual


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_permits_go_back_with_the_last_owner_and_only_once() -> None:
    """Whoever closes last, in any order of closing."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        slots = BoundedAdmission("slots", requests=1, cost=7)
        first = ExecutionContext(clock=Clock())
        first.retain(admitted(slots, 7))
        owners = [first, first.clone(), first.clone()]
        for which in order[:2]:
            owners[which].close()
            assert slots.statistics().held == 7
        owners[order[2]].close()
        assert (slots.statistics().outstanding, slots.statistics().held) == (0, 0)


def test_every_retained_permit_goes_back() -> None:
    """Both layers of a request, also when a clone retained one of them."""
    slots, tokens = BoundedAdmission("slots", requests=1), BoundedAdmission("tokens", requests=1, cost=5)
    context = ExecutionContext(clock=Clock())
    clone = context.clone()
    context.retain(admitted(slots))
    clone.retain(admitted(tokens, 5))
    assert context.holds(slots) and context.holds(tokens) and clone.holds(slots) and clone.holds(tokens)
    context.close()
    assert (slots.statistics().outstanding, tokens.statistics().held) == (1, 5)
    clone.close()
    assert (slots.statistics().outstanding, tokens.statistics().held) == (0, 0)


def test_holds_means_this_very_admission() -> None:
    """An admission of the same name and size is another one."""
    slots, twin = BoundedAdmission("slots", requests=1), BoundedAdmission("slots", requests=1)
    with ExecutionContext(clock=Clock()) as context:
        assert not context.holds(slots)
        context.retain(admitted(slots))
        assert context.holds(slots) and not context.holds(twin)


def test_a_permit_has_one_owner() -> None:
    """Retaining transfers it: the former holder cannot release it, nobody can retain it again."""
    slots = BoundedAdmission("slots", requests=1)
    permit = admitted(slots)
    with ExecutionContext(clock=Clock()) as context, ExecutionContext(clock=Clock()) as other:
        context.retain(permit)
        for wrong in (permit.release, lambda: context.retain(permit), lambda: other.retain(permit)):
            with pytest.raises(Misuse):
                wrong()
        assert slots.statistics().outstanding == 1
    assert slots.statistics().outstanding == 0
    with ExecutionContext(clock=Clock()) as context, pytest.raises(Misuse):
        context.retain(permit)


def test_a_permit_retained_inside_its_block_stays_with_the_context() -> None:
    """Acquire and ownership in one statement: the block gives back only what nobody took over."""
    slots = BoundedAdmission("slots", requests=1)
    with ExecutionContext(clock=Clock()) as context:
        with admitted(slots) as permit:
            context.retain(permit)
        assert slots.statistics().outstanding == 1
    assert slots.statistics().outstanding == 0


def test_closing_twice_and_using_after_close_are_misuse() -> None:
    """A closed owner answers nothing, and its clone goes on."""
    slots = BoundedAdmission("slots", requests=1)
    context = ExecutionContext(clock=Clock(), deadline=200.0)
    clone = context.clone()
    assert not context.closed
    context.close()
    assert context.closed
    permit = admitted(slots)
    for use in (
        context.close,
        context.clone,
        context.cancel,
        context.check,
        context.stopped,
        context.remaining,
        context.cancel_on_exit,
        context.__enter__,
        lambda: context.holds(slots),
        lambda: context.retain(permit),
        lambda: context.cancelled,
        lambda: context.deadline,
        lambda: context.admitted,
    ):
        with pytest.raises(Misuse):
            use()
    permit.release()
    clone.check()
    clone.close()


def test_cancellation_is_shared_and_may_be_said_twice() -> None:
    """One owner cancels, all of them see it."""
    with ExecutionContext(clock=Clock()) as context, context.clone() as clone:
        clone.cancel()
        clone.cancel()
        assert context.cancelled
        with pytest.raises(Cancelled):
            context.check()
        with context.clone() as later:
            assert later.cancelled


def test_the_deadline_has_passed_exactly_when_the_clock_shows_it() -> None:
    """Absolute and monotonic: one tick before is alive, the instant itself is not."""
    clock = Clock()
    with ExecutionContext(clock=clock, deadline=130.0) as context:
        assert (context.deadline, context.remaining()) == (130.0, 30.0)
        clock.now = math.nextafter(130.0, 0.0)
        context.check()
        clock.now = 130.0
        with pytest.raises(DeadlineExceeded):
            context.check()
        clock.now = 1000.0
        assert context.remaining() == 0.0
        with context.clone() as clone, pytest.raises(DeadlineExceeded):
            clone.check()


def test_without_a_deadline_time_does_not_matter() -> None:
    """No hidden second timeout: ten thousand years later it is still alive."""
    clock = Clock()
    with ExecutionContext(clock=clock) as context:
        clock.now = 3e11
        context.check()
        assert context.remaining() is None and context.deadline is None


def test_cancelled_is_reported_before_expired() -> None:
    """Both at once: the caller is gone is the stronger fact."""
    with ExecutionContext(clock=Clock(), deadline=0.0) as context:
        assert isinstance(context.stopped(), DeadlineExceeded)
        context.cancel()
        assert isinstance(context.stopped(), Cancelled)


def test_a_deadline_that_is_not_a_number_is_misuse() -> None:
    """NaN compares false with everything and would never pass."""
    with pytest.raises(Misuse):
        ExecutionContext(clock=Clock(), deadline=math.nan)


def test_leaving_a_guard_cancels_unless_disarmed() -> None:
    """On return and on an exception; a disarmed guard lets the request live."""
    with ExecutionContext(clock=Clock()) as context:
        with context.cancel_on_exit() as guard:
            guard.disarm()
            guard.disarm()
        assert not context.cancelled
        with context.cancel_on_exit():
            assert not context.cancelled
        assert context.cancelled
    with ExecutionContext(clock=Clock()) as context:
        with pytest.raises(ZeroDivisionError), context.cancel_on_exit():
            1 // 0  # noqa: B018
        assert context.cancelled


def test_a_guard_outlives_the_owner_it_came_from() -> None:
    """The block may close the context; dispatched work still hears that its caller is gone."""
    context = ExecutionContext(clock=Clock())
    clone = context.clone()
    with context.cancel_on_exit():
        context.close()
    assert clone.cancelled
    clone.close()


@virtual
async def test_task_cancellation_leaves_the_guard_armed() -> None:
    """A cancelled handler cancels its request."""
    with ExecutionContext(clock=Clock()) as context:

        async def handler() -> None:
            with context.cancel_on_exit() as guard:
                await asyncio.get_running_loop().create_future()
                guard.disarm()

        task = asyncio.create_task(handler())
        await settle()
        assert not context.cancelled
        task.cancel()
        await asyncio.wait([task])
        assert context.cancelled


def test_an_owner_that_is_dropped_open_is_loud() -> None:
    """It warns with its repr, and its permits are not lost with it."""
    slots = BoundedAdmission("slots", requests=1)
    context = ExecutionContext(clock=Clock(), deadline=7.0)
    context.retain(admitted(slots))
    with pytest.warns(ResourceWarning, match=r"open owners=1 deadline=7.0 permits=\[slots\]"):
        del context
    assert slots.statistics().outstanding == 0


def test_a_context_speaks() -> None:
    """State, owners, deadline and the names of what it holds; also after the close."""
    slots = BoundedAdmission("slots", requests=1)
    context = ExecutionContext(clock=Clock())
    context.retain(admitted(slots))
    with context.clone():
        assert repr(context) == "<ExecutionContext open owners=2 deadline=None permits=[slots]>"
        context.cancel()
        with context.cancel_on_exit() as guard:
            assert (repr(context).split()[1], repr(guard)) == ("cancelled", "<CancellationGuard armed>")
    context.close()
    assert repr(context) == "<ExecutionContext closed owners=0 deadline=None permits=[]>"
